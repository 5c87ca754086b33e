"""Whether predicates can hold together: for some facts and choices, without knowing any.

A conjunction is split into alternatives of single comparisons. Those that speak of one name are tried on the values at
which one of them could change its mind; names are taken to be independent of each other. What compares two names, or
asks for more values than can be tried, is not decided.
"""

import ast
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations, islice, pairwise, product
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ckb.facts import FACT_NAMES, Facts, Scalar
from ckb.predicate import ORDERS, Predicate, PredicateError, dotted_names, predicate

Domains = Mapping[str, Sequence[Any]]
"""Name -> all values that it can have (the options of a decision), or of a collection all of its elements."""
Literals = tuple[ast.expr, ...]
"""Comparisons that must all hold."""

MOST_ALTERNATIVES = 1024
MOST_PARTS = 6
"""Constants that one alternative looks for in a text or a collection: all of their subsets are tried."""
OTHER = "\0"
"""A text that no predicate names."""


def satisfiable(*texts: str, domains: Domains | None = None) -> bool | None:
    """Whether all of these predicates can hold at once; None where that is not decided.

    Raises PredicateError for a predicate that can't be read.
    """
    trees = [predicate(text).tree for text in texts]
    found: list[bool | None] = []
    for literals in islice(_all_of(trees, wanted=True), MOST_ALTERNATIVES):
        found.append(_consistent(literals, domains or {}))
        if found[-1]:
            return True
    return None if None in found or len(found) == MOST_ALTERNATIVES else False


def _all_of(nodes: Sequence[ast.expr], wanted: bool) -> Iterator[Literals]:
    parts = [tuple(islice(_alternatives(node, wanted), MOST_ALTERNATIVES)) for node in nodes]
    for choice in product(*parts):
        yield tuple(literal for part in choice for literal in part)


def _alternatives(node: ast.expr, wanted: bool) -> Iterator[Literals]:
    """The ways in which a predicate comes out as wanted: its disjunctive normal form, one term after the other."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _alternatives(operand, not wanted)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == wanted:
            yield from _all_of(values, wanted)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _alternatives(value, wanted)
        case _:
            yield (node if wanted else ast.UnaryOp(op=ast.Not(), operand=node),)


def _consistent(literals: Literals, domains: Domains) -> bool | None:
    """Whether some facts meet all of these comparisons."""
    about: dict[tuple[str, ...], list[ast.expr]] = defaultdict(list)
    for literal in literals:
        about[tuple(sorted(set(dotted_names(literal))))].append(literal)
    found = {_meets(names[0] if names else "", asked, domains) for names, asked in about.items() if len(names) < 2}
    if False in found:
        return False
    return None if None in found or any(len(names) > 1 for names in about) else True


class _One:
    """Facts of which one is known."""

    def __init__(self, name: str, value: Any):
        self._known = {name: value}

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        value: Scalar | tuple[Scalar, ...] = self._known[path]
        return value


def _meets(name: str, literals: Sequence[ast.expr], domains: Domains) -> bool | None:
    """Whether some value of a name meets all comparisons that speak of it alone."""
    together = predicate(" and ".join(f"({ast.unparse(literal)})" for literal in literals))
    values = _values(name, literals, domains.get(name))
    return None if values is None else any(_holds(together, name, value) for value in values)


def _holds(condition: Predicate, name: str, value: Any) -> bool:
    try:
        return condition.holds(_One(name, value), {name.removeprefix("choice."): value})
    except PredicateError:  # None against a number: what can't be asked does not hold
        return False


def _values(name: str, literals: Sequence[ast.expr], domain: Sequence[Any] | None) -> list[Any] | None:
    """The values of a name that differ in what the comparisons say of them. None: too many to try."""
    constants = [n.value for literal in literals for n in ast.walk(literal) if isinstance(n, ast.Constant)]
    types = kinds(name) or {str, *map(type, constants)}
    if domain is not None and not any(get_origin(kind) is tuple for kind in types):
        return list(domain)
    values: list[Any] = []
    for kind in types:
        sought = [c for c in _sought(literals) if domain is None or c in domain]
        some = _of_kind(kind, constants, sought)
        if some is None or ((kind is str or get_origin(kind) is tuple) and _ordered(literals)):
            return None
        values += some
        if get_origin(kind) is tuple:
            values += [found for found in _lists(literals) if domain is None or set(found) <= set(domain)]
    return values


def _of_kind(kind: Any, constants: Sequence[Any], sought: Sequence[Any]) -> list[Any] | None:
    """The values of one type round the constants, in whose neighbourhood alone something can change."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if kind is NoneType or kind is bool:
        return [None] if kind is NoneType else [False, True]
    if kind is int or kind is float:
        return _numbers(kind, [c for c in constants if isinstance(c, int | float)])
    if len(sought) > MOST_PARTS:
        return None
    sets = [some for count in range(len(sought) + 1) for some in combinations(sought, count)]
    if kind is str:
        texts = [constant for constant in constants if isinstance(constant, str)]
        return ["", *texts, *(OTHER.join((*map(str, some), OTHER)) for some in sets)]
    return [*sets, *((*some, OTHER) for some in sets)]


def _sought(literals: Sequence[ast.expr]) -> list[Any]:
    """The constants that are looked for in a name: `'avx2' in platform.isa`."""
    asked = [node for literal in literals for node in ast.walk(literal) if isinstance(node, ast.Compare)]
    found = [node.left.value for node in asked if isinstance(node.left, ast.Constant)]
    return list(dict.fromkeys(found))


def _lists(literals: Sequence[ast.expr]) -> Iterator[tuple[Any, ...]]:
    """The lists of constants that a collection may be compared with: `platform.isa == ['avx2']`."""
    for node in (node for literal in literals for node in ast.walk(literal)):
        if isinstance(node, ast.List | ast.Tuple):
            with suppress(ValueError):  # one that holds a name
                yield tuple(ast.literal_eval(node))


def _numbers(kind: type, constants: Sequence[float]) -> list[int] | list[float]:
    """Every number that a comparison may name, with its sign, its neighbours, and one between each two."""
    named = sorted({0, 1, *constants, *(-constant for constant in constants)})
    if kind is int:
        return sorted({math.floor(number) + step for number in named for step in (-1, 0, 1, 2)})
    between = [(low + high) / 2 for low, high in pairwise(named)]
    return [*map(float, named), *between, named[0] - 1.0, named[-1] + 1.0]


def _ordered(literals: Sequence[ast.expr]) -> bool:
    """Whether anything is compared by size: between two texts, and two collections, there is always another one."""
    return any(isinstance(node, ORDERS) for literal in literals for node in ast.walk(literal))


@cache
def kinds(name: str) -> tuple[Any, ...]:
    """The types of a fact; none for a decision, or a name that stands for nothing."""
    if name not in FACT_NAMES:
        return ()
    section, _, key = name.partition(".")
    record = get_type_hints(Facts)[section]
    hints = get_type_hints(record)
    kind = hints[key] if key in hints else get_type_hints(getattr(record, key).fget)["return"]
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
