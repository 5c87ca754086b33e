"""Integer expressions over facts, as tensor shapes and derived facts use them: `heads * head_dim`. Never eval'ed."""

import ast
import operator
from collections.abc import Callable, Mapping

from ckb.errors import UserError

OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(text: str, values: Mapping[str, object]) -> int:
    """The value of an expression of names, integers, + - * // and parentheses. Raises UserError for anything else."""
    try:
        return _value(ast.parse(text, mode="eval").body, values)
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        raise UserError(f"expression {text!r}: {error}") from error


def _value(node: ast.expr, values: Mapping[str, object]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            found = values.get(name)
            if type(found) is not int:
                raise ValueError(f"{name} is {found!r}, not an integer")
            return found
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, values), _value(right, values))
    raise ValueError(f"{type(node).__name__} is not part of the language")
