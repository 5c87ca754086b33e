"""The predicate language of `applies_to`: parsed, checked against a list of node kinds, never eval'ed.

    model.model_type == 'llama' and platform.accelerator == 'cpu' and 'avx2' in platform.isa
    choice.kv_layout == 'head_major' or workload.max_context <= 1024

Names are `model.*`, `platform.*`, `workload.*` (see ckb.facts) and `choice.*` (the decisions of one candidate).
Operators: == != < <= > >= in, `not in`, and, or, not, parentheses; strings, numbers, True, False, None and lists of
them. The empty predicate holds always.
"""

import ast
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from ckb.errors import UserError
from ckb.facts import FACT_NAMES, Scalar

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class PredicateError(UserError):
    """A predicate that does not parse, or that names something which does not exist."""


class FactSource(Protocol):
    """What a predicate is asked of: ckb.facts.Facts, or a part of them."""

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        """The value of a dotted name. Raises KeyError for one that isn't known."""


class Predicate:
    """One parsed predicate."""

    def __init__(self, text: str):
        self.text = " ".join(text.split())
        try:
            self._tree = ast.parse(self.text or "True", mode="eval").body
        except SyntaxError as error:
            raise PredicateError(f"predicate {text!r} does not parse: {error.msg} at column {error.offset}") from error
        for node in ast.walk(self._tree):
            self._check(node)

    def _check(self, node: ast.AST) -> None:
        allowed = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.cmpop, ast.Constant)
        containers = (ast.List, ast.Tuple, ast.Attribute, ast.Name, ast.Load)
        if not isinstance(node, allowed + containers):
            raise PredicateError(f"predicate {self.text!r}: {type(node).__name__} is not part of the language")

    def names(self) -> set[str]:
        """The dotted names that the predicate asks about."""
        return set(self._names(self._tree))

    def _names(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Attribute | ast.Name):
            yield self._dotted(node)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self._names(child)

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        raise PredicateError(f"predicate {self.text!r}: only dotted names may stand before a dot")

    def choices(self) -> set[str]:
        """The decisions that the predicate depends on, without the `choice.` before them."""
        return {name.removeprefix("choice.") for name in self.names() if name.startswith("choice.")}

    def unknown(self, decisions: Collection[str]) -> set[str]:
        """The names that are neither a fact nor `choice.` and one of `decisions`."""
        return self.names() - FACT_NAMES - {f"choice.{name}" for name in decisions}

    def failing(self, facts: FactSource, choices: Mapping[str, Any] | None = None) -> list["Predicate"]:
        """The parts of a conjunction `a and b and c` that don't hold, or ask for a decision that nobody has made."""
        match self._tree:
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [Predicate(ast.unparse(value)) for value in values]
            case _:
                parts = [self]
        made = choices or {}
        return [part for part in parts if not (part.choices() <= made.keys() and part.holds(facts, made))]

    def holds(self, facts: FactSource, choices: Mapping[str, Any] | None = None) -> bool:
        """Whether the predicate is true of these facts and choices. Raises PredicateError for an unknown name."""
        return bool(self._value(self._tree, facts, choices or {}))

    def _value(self, node: ast.expr, facts: FactSource, choices: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, facts, choices) for item in items]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand, facts, choices)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand, facts, choices)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self._value(value, facts, choices) for value in values)
            case ast.BoolOp(values=values):
                return any(self._value(value, facts, choices) for value in values)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(left, ops, comparators, facts, choices)
        return self._lookup(self._dotted(node), facts, choices)

    def _compare(
        self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr], facts: FactSource, choices: Mapping[str, Any]
    ) -> bool:
        value = self._value(left, facts, choices)
        for op, comparator in zip(ops, rest, strict=True):
            other = self._value(comparator, facts, choices)
            if type(op) not in COMPARISONS:
                raise PredicateError(f"predicate {self.text!r}: {type(op).__name__} is not part of the language")
            try:
                if not COMPARISONS[type(op)](value, other):
                    return False
            except TypeError as error:
                raise PredicateError(f"predicate {self.text!r}: {value!r} can't be compared with {other!r}") from error
            value = other
        return True

    def _lookup(self, name: str, facts: FactSource, choices: Mapping[str, Any]) -> Any:
        section, _, key = name.partition(".")
        if section == "choice":
            if key not in choices:
                raise PredicateError(f"predicate {self.text!r} asks for the decision {key!r}, which nobody has made")
            return choices[key]
        try:
            return facts.lookup(name)
        except KeyError:
            raise PredicateError(f"predicate {self.text!r} names the unknown fact {name!r}") from None
