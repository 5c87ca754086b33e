"""Whether what a predicate compares can be equal, ordered or contained at all, by the types of the facts.

`model.heads != '4'` always holds and `not model.heads > '4'` can't be asked: neither is what somebody meant to say, and
neither is a contradiction that ckb.satisfiable would find.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from ckb.predicate import ORDERS, Predicate
from ckb.satisfiable import Domains, kinds

NAMES: dict[Any, str] = {bool: "True or False", int: "a number", float: "a number", str: "a text", NoneType: "None"}
"""Type of a fact or of a constant -> what it is called; whole numbers and fractions are one thing here."""
FLAG, NUMBER, TEXT = NAMES[bool], NAMES[int], NAMES[str]


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    shown: str
    kinds: frozenset[str]
    """What it may be, of a list or collection what its elements may be: values of NAMES."""
    many: bool = False
    """Whether it is a list or a collection."""
    members: tuple[Any, ...] | None = None
    """All values that it, or its elements, can have, where they are known."""
    constants: tuple[Any, ...] = ()
    """The values that the predicate itself states."""

    def __str__(self) -> str:
        what = f"one of {', '.join(map(repr, self.members))}" if self.members else " or ".join(sorted(self.kinds))
        return f"{self.shown} {'holds' if self.many else 'is'} {what or 'nothing'}"

    def takes(self, value: Any) -> bool:
        """Whether it, or one of its elements, may be this value."""
        kind = NAMES[type(value)]
        among = self.members is None or any(kind == NAMES[type(m)] and value == m for m in self.members)
        return kind in self.kinds and among


def mismatches(predicate: Predicate, domains: Domains) -> Iterator[str]:
    """What is wrong with the parts of a predicate, each by itself. Names that nothing declares are passed over."""
    yield from _condition(predicate.tree, domains)


def _condition(node: ast.expr, domains: Domains) -> Iterator[str]:
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _condition(value, domains)
        case ast.UnaryOp(operand=operand):
            yield from _condition(operand, domains)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_side(side, domains) for side in (left, *comparators)]
            for op, (one, other) in zip(ops, pairwise(sides), strict=True):
                if one and other:
                    yield from _comparison(op, one, other)
        case ast.Attribute() | ast.Name():
            side = _side(node, domains)
            if side and (side.many or side.kinds != {FLAG}):
                yield f"{side}, and no condition by itself: compare it with something"


def _comparison(op: ast.cmpop, one: Side, other: Side) -> Iterator[str]:
    if isinstance(op, ORDERS):
        if one.many or other.many or not one.kinds & other.kinds & {NUMBER, TEXT}:
            yield f"{one} and {other}: neither is larger"
    elif isinstance(op, ast.In | ast.NotIn):
        if one.many or not (other.many or TEXT in one.kinds & other.kinds):
            yield f"{one} and {other}: the one can't be in the other"
        elif other.many:
            yield from _strangers(one, other)
    elif one.many != other.many:
        yield f"{one} and {other}: a list is never equal to what is none"
    else:
        yield from _strangers(one, other)


def _strangers(one: Side, other: Side) -> Iterator[str]:
    """Values of one side that the other never has."""
    strangers = [(side, value) for side, by in ((one, other), (other, one)) for value in by.constants]
    if found := [(side, value) for side, value in strangers if not side.takes(value)]:
        yield "; ".join(f"{side}, never {value!r}" for side, value in found[:3])
    elif not (one.kinds & other.kinds) and one.kinds and other.kinds:
        yield f"{one} and {other}: they are never equal"


def _side(node: ast.expr, domains: Domains) -> Side | None:
    """None for a name of which nothing is known, and a list that holds one."""
    shown = ast.unparse(node)
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            parts = [_side(item, domains) for item in items]
            known = [part for part in parts if part and not part.many]
            if len(known) < len(parts):
                return None
            kinds_of = frozenset(kind for part in known for kind in part.kinds)
            return Side(shown, kinds_of, True, None, tuple(c for part in known for c in part.constants))
        case ast.Attribute() | ast.Name():
            return _named(shown, kinds(shown), domains.get(shown))
    value = ast.literal_eval(node)
    return Side(shown, frozenset((NAMES[type(value)],)), constants=(value,))


def _named(name: str, types: Sequence[Any], domain: Sequence[Any] | None) -> Side | None:
    """A fact, by its annotation and by what the rows of the knowledge base let it be; or a decision, by its options."""
    if not types:
        return Side(name, frozenset(NAMES[type(value)] for value in domain), False, tuple(domain)) if domain else None
    many = any(get_origin(kind) is tuple for kind in types)
    types = [get_args(kind)[0] if get_origin(kind) is tuple else kind for kind in types]
    stated = [value for kind in types if get_origin(kind) is Literal for value in get_args(kind)]
    members = tuple(domain) if domain is not None else tuple(stated) if stated else None
    return Side(name, frozenset(NAMES[str if get_origin(k) is Literal else k] for k in types), many, members)
