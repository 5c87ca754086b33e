"""The predicate language of `applies_to`: parsed, checked against a list of node kinds, never eval'ed.

    model.model_type == 'llama' and platform.accelerator == 'cpu' and 'avx2' in platform.isa
    choice.kv_layout == 'head_major' or workload.max_context <= 1024

Names are `model.*`, `platform.*`, `workload.*` (see ckb.facts) and `choice.*` (the decisions of one candidate).
Operators: == != < <= > >= in, `not in`, and, or, not, parentheses; strings, numbers, True, False, None and lists of
them, with brackets of either kind. A predicate is a comparison, a name, True or False, or these with and, or, not: a
text or a list that stands alone says nothing, though Python takes it for true. The empty predicate holds always.

None, which is what a fact is that a model or machine does not have, is neither smaller nor larger than anything and
contains nothing: what was learned of a window must not make a model without one fail.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
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
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
MOST_DEPTH = 32
"""Nested and, or, not: Python's own limits depend on who calls."""
STRING = re.compile(r"""(\'\'\'|\"\"\"|'|")(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
"""A text in quotes, as Python reads it."""


class PredicateError(UserError):
    """A predicate that does not parse, or that names something which does not exist."""


class FactSource(Protocol):
    """What a predicate is asked of: ckb.facts.Facts, or a part of them."""

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        """The value of a dotted name. Raises KeyError for one that isn't known."""


class Predicate:
    """One parsed predicate."""

    text: str
    """What was written, on one line."""
    tree: ast.expr
    """What Python makes of it."""

    def __init__(self, text: str):
        self.text = self._one_line(text)
        try:
            self.tree = ast.parse(self.text or "True", mode="eval").body
        except SyntaxError as error:
            raise PredicateError(
                f"predicate {_short(text)} does not parse: {error.msg} at column {error.offset}"
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:  # half of a surrogate pair; nesting without end
            raise PredicateError(f"predicate {_short(text)} does not parse: {error}") from error
        self._check_condition(self.tree, 1)
        self._asked = frozenset(dotted_names(self.tree))
        self._decisions = frozenset(n.removeprefix("choice.") for n in self._asked if n.startswith("choice."))

    @staticmethod
    def _one_line(text: str) -> str:
        """The text with its lines joined. What stands in quotes stays as it is: a processor's name may hold blanks."""
        parts, end = [], 0
        for quoted in (*STRING.finditer(text), None):
            between = text[end : quoted.start()] if quoted else text[end:]
            if "#" in between:  # it would swallow what follows, once the lines are joined
                raise PredicateError(f"predicate {_short(text)}: a comment is not part of the language")
            parts += [re.sub(r"\s+", " ", between), quoted[0] if quoted else ""]
            end = quoted.end() if quoted else end
        return "".join(parts).strip()

    def _check_condition(self, node: ast.expr, depth: int) -> None:
        """Raises PredicateError for what is not true or false by itself."""
        if depth > MOST_DEPTH:
            raise PredicateError(f"predicate {_short(self.text)}: more than {MOST_DEPTH} and, or, not in each other")
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self._check_condition(value, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._check_condition(operand, depth + 1)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for op in ops:
                    if type(op) not in COMPARISONS:
                        raise self._stranger(op)
                for side in (left, *comparators):
                    self._check_value(side)
            case ast.Attribute() | ast.Name():
                self._dotted(node)
            case ast.Constant(value=bool()):
                pass
            case ast.Constant() | ast.List() | ast.Tuple():
                what = f"{_cut(ast.unparse(node))} is a value: it must be compared with something"
                raise PredicateError(f"predicate {_short(self.text)}: {what}")
            case _:
                raise self._stranger(node)

    def _check_value(self, node: ast.expr, inside: bool = False) -> None:
        """Raises PredicateError for what can't be compared: anything but names, numbers, texts and lists of them."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) in (int, float):
                pass
            case ast.UnaryOp(op=ast.USub()):
                raise PredicateError(f"predicate {_short(self.text)}: a minus may stand before a number only")
            case ast.List(elts=items) | ast.Tuple(elts=items) if not inside:
                for item in items:
                    self._check_value(item, inside=True)
            case ast.Attribute() | ast.Name():
                self._dotted(node)
            case _:
                raise self._stranger(node, " here" if isinstance(node, ast.List | ast.Tuple | ast.Compare) else "")

    def _stranger(self, node: ast.AST, where: str = "") -> PredicateError:
        return PredicateError(
            f"predicate {_short(self.text)}: {type(node).__name__} is not part of the language{where}"
        )

    def names(self) -> frozenset[str]:
        """The dotted names that the predicate asks about."""
        return self._asked

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        raise PredicateError(f"predicate {_short(self.text)}: only dotted names may stand before a dot")

    def choices(self) -> frozenset[str]:
        """The decisions that the predicate depends on, without the `choice.` before them."""
        return self._decisions

    def unknown(self, decisions: Collection[str]) -> frozenset[str]:
        """The names that are neither a fact nor `choice.` and one of `decisions`."""
        return self.names() - FACT_NAMES - {f"choice.{name}" for name in decisions}

    def failing(self, facts: FactSource, choices: Mapping[str, Any] | None = None) -> list["Predicate"]:
        """The parts of a conjunction `a and b and c` that don't hold, or ask for a decision that nobody has made."""
        match self.tree:
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [predicate(ast.unparse(value)) for value in values]
            case _:
                parts = [self]
        made = choices or {}
        return [part for part in parts if not (part.choices() <= made.keys() and part.holds(facts, made))]

    def holds(self, facts: FactSource, choices: Mapping[str, Any] | None = None) -> bool:
        """Whether the predicate is true of these facts and choices. Raises PredicateError for an unknown name."""
        return bool(self._value(self.tree, facts, choices or {}))

    def _value(self, node: ast.expr, facts: FactSource, choices: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return tuple(self._value(item, facts, choices) for item in items)
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
            try:
                if not self._compared(type(op), value, other):
                    return False
            except TypeError as error:
                raise PredicateError(
                    f"predicate {_short(self.text)}: {value!r} can't be compared with {other!r}"
                ) from error
            value = other
        return True

    @staticmethod
    def _compared(op: type[ast.cmpop], value: Any, other: Any) -> bool:
        if op in ORDERS and (value is None or other is None):
            return False
        if op in (ast.In, ast.NotIn) and other is None:
            return op is ast.NotIn
        return COMPARISONS[op](value, other)

    def _lookup(self, name: str, facts: FactSource, choices: Mapping[str, Any]) -> Any:
        section, _, key = name.partition(".")
        if section == "choice":
            if key not in choices:
                raise PredicateError(
                    f"predicate {_short(self.text)} asks for the decision {key!r}, which nobody has made"
                )
            return choices[key]
        try:
            return facts.lookup(name)
        except KeyError:
            raise PredicateError(f"predicate {_short(self.text)} names the unknown fact {name!r}") from None


@lru_cache(maxsize=4096)
def predicate(text: str) -> Predicate:
    """The predicate of a text, parsed once. Raises PredicateError."""
    return Predicate(text)


def dotted_names(node: ast.AST) -> Iterator[str]:
    """The names that a part of a predicate's tree asks about."""
    if isinstance(node, ast.Attribute | ast.Name):
        yield ast.unparse(node)
    else:
        for child in ast.iter_child_nodes(node):
            yield from dotted_names(child)


def _short(text: str) -> str:
    """A predicate for a message."""
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]} ..."
