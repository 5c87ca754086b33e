"""Levels 1 and 2: what contracted functions were given and returned while the stage's tests ran (drivers/record.py),
against the columns: shapes, dtypes, placement, Python types.

An axis is a number, a constant of the Target, an integer argument by name, an expression of these, or a free name: one
number within a call. A free name that nothing else of its function fixes says nothing, and is refused. What one
contract returns and another takes must be described alike by both: on a CPU no more can be seen of a placement.
"""

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ckb.constants import constants
from ckb.facts import Facts
from ckb.records import Contract, Function, Stage, Tensor
from gpu_actors.gates.base import Finding, Subject, failed, for_each_stage, passed
from gpu_actors.gates.interface import evidence, is_constant, named, rows_of

TENSORS = {"float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool", "compute", "weights"}
STORED = {"bf16": "bfloat16", "fp32": "float32"}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
Description = Mapping[str, Any]


def calls(subject: Subject, stage: Stage) -> Finding:
    """What contracted functions were given and returned while the stage's tests ran is what their columns say."""
    rows = rows_of(subject, stage)
    reply = subject.call("recorded", constants=named(rows, constants=True))
    seen, values = reply.value("calls", dict[str, list[Any]]), reply.value("values", dict[str, Any])
    found = list(faults(rows, subject.job.rows, seen, values, subject.facts))
    data = {"calls": seen, "values": values, **evidence(subject, rows)}
    if found:
        return failed(f"{len(found)} deviation(s) from the contracts: {'; '.join(found[:4])}", deviations=found, **data)
    count = sum(map(len, seen.values()))
    return passed(f"{count} different calls of {len(seen)} functions are as their contracts say", **data)


def faults(
    rows: Sequence[Contract],
    every: Sequence[Contract],
    seen: Mapping[str, Sequence[Description]],
    values: Mapping[str, Description],
    facts: Facts,
) -> Iterator[str]:
    """One sentence for each function that isn't used as its contract says. `every`: the contracts of all stages."""
    judge = Judge(facts, {f"{Path(row.module).stem}:{f.name}": f for row in every for f in row.interface})
    for row in rows:
        for function in row.interface:
            key = f"{Path(row.module).stem}:{function.name}"
            try:
                if is_constant(function):
                    if len(function.returns) != 1:
                        raise Deviation(f"a constant is one value, the contract names {len(function.returns)}")
                    judge.check(function.returns[0], values.get(key, {"kinds": ["nothing"]}), {}, "it")
                else:
                    judge.function(function, seen.get(key, ()))
            except Deviation as deviation:
                yield f"{row.id}: {function.name}: {deviation}"
        for function in row.native:
            try:
                judge.axes(function, complete=False)
            except Deviation as deviation:
                yield f"{row.id}: {function.name}: {deviation}"


class Deviation(Exception):
    """What is not as the contract says."""


@dataclass(frozen=True)
class Judge:
    """Compares descriptions with columns for one Target."""

    facts: Facts
    functions: Mapping[str, Function]
    """`module:name` -> every function of the contracts in force."""

    @property
    def numbers(self) -> dict[str, int]:
        return _numbers(self.facts)

    def function(self, function: Function, seen: Sequence[Description]) -> None:
        """Every recorded call of a function. Raises Deviation."""
        self.axes(function)
        if not seen and (function.takes or function.returns):
            raise Deviation("no test of the stage calls it, so nothing shows what it takes and returns")
        for call in seen:
            given = call["takes"]
            taken = [(tensor, given[name]) for tensor in function.takes if (name := tensor.name.lstrip("*")) in given]
            returned = list(zip(function.returns, self._returned(function, call), strict=True))
            bound = {name: item["value"] for name, item in given.items() if "value" in item} | self.numbers
            pairs = [(f"its argument {t.name}", t, d) for t, d in taken] + [(f"{t.name}", t, d) for t, d in returned]
            for _, tensor, description in pairs:
                for axis, size in zip(tensor.shape or (), sizes(description), strict=False):
                    if axis.isidentifier():
                        bound.setdefault(axis, size)
            for what, tensor, description in pairs:
                self.check(tensor, description, bound, what)
            for tensor, description in taken:
                self._flow(tensor, description)

    def _returned(self, function: Function, call: Description) -> Sequence[Description]:
        if function.name.rpartition(".")[2][0].isupper():  # a class: what it makes is of itself
            if function.returns:
                raise Deviation("a class returns nothing but itself")
            return ()
        if not function.returns:
            if "NoneType" not in call["returns"].get("kinds", ()):
                raise Deviation("it returns something, the contract says nothing")
            return ()
        if len(function.returns) == 1:
            return [call["returns"]]
        parts: Sequence[Description] = call.get("parts", ())
        if len(parts) != len(function.returns):
            raise Deviation(f"it returns {len(parts) or 1} values, the contract says {len(function.returns)}")
        return parts

    def axes(self, function: Function, *, complete: bool = True) -> None:
        """That every axis of the columns can be told. `complete`: a free one stands twice at least."""
        integers = {t.name for t in function.takes if t.dtype in ("int", "long")}
        tensors = [*function.takes, *function.returns]
        every = [name for tensor in tensors for axis in tensor.shape or () for name in names(axis)]
        for name in every:
            known = name in self.numbers or name in integers
            if complete and not known and every.count(name) < 2:
                raise Deviation(f"nothing else fixes its axis {name}")

    def check(self, tensor: Tensor, found: Description, bound: Mapping[str, int], what: str) -> None:
        """One argument or result. Raises Deviation."""
        if not self._is(tensor, found):
            is_ = found.get("dtype") or (found["kinds"] or ["?"])[0]
            raise Deviation(f"{what} is {is_}, the contract says {tensor.dtype}")
        if tensor.shape is not None:
            wanted = [size(axis, bound) for axis in tensor.shape]
            if wanted != sizes(found):
                names_ = ", ".join(tensor.shape)
                raise Deviation(f"{what} has shape {sizes(found)}, the contract says [{names_}] = {wanted}")
        if tensor.placement == "device" and "device" in found and found["device"] != self.facts.platform.accelerator:
            raise Deviation(f"{what} lies on {found['device']}, the contract says device")

    def _is(self, tensor: Tensor, found: Description) -> bool:
        if tensor.dtype == "Packed":  # opaque: it is what `pack` made
            source = self._source(found)
            return source is None or source.dtype == "Packed"
        if tensor.dtype not in TENSORS or "tensor" not in found:
            return tensor.dtype not in TENSORS - {"bool"} and matches(parsed(tensor.dtype), found)
        dtypes = {"compute": self.facts.workload.dtype, "weights": STORED.get(self.facts.model.weights)}
        return bool(found["dtype"] == dtypes.get(tensor.dtype, tensor.dtype))

    def _source(self, found: Description) -> Tensor | None:
        """What the contract of the function that returned a value says of it, if one did."""
        if "from" not in found:
            return None
        key, index = found["from"]
        returns = self.functions[key].returns if key in self.functions else ()
        return returns[index] if index < len(returns) else None

    def _flow(self, tensor: Tensor, found: Description) -> None:
        source = self._source(found)
        if source is None or "tensor" not in found:
            return
        if "either" not in (places := {source.placement, tensor.placement}) and len(places) > 1:
            raise Deviation(
                f"its argument {tensor.name} is placed on {tensor.placement}; {found['from'][0]} returned it on "
                f"{source.placement}"
            )
        if source.dtype != tensor.dtype:
            raise Deviation(
                f"its argument {tensor.name} is {tensor.dtype}; {found['from'][0]}, which returned it, says "
                f"{source.dtype}"
            )


@cache
def _numbers(facts: Facts) -> dict[str, int]:
    found = ((name, ast.literal_eval(text)) for name, text in constants(facts).items() if text.lstrip("-").isdigit())
    return {name: value for name, value in found if isinstance(value, int)}


def sizes(found: Description) -> list[int]:
    """The shape of a tensor; of a list of lists its outer lengths."""
    return list(found["tensor"]) if "tensor" in found else [found["length"]] if "length" in found else []


def names(axis: str) -> list[str]:
    return [node.id for node in ast.walk(parsed(axis)) if isinstance(node, ast.Name)]


@cache
def parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise Deviation(f"{text!r} is no type and no axis") from None


def size(axis: str, bound: Mapping[str, int]) -> int | float:
    """The number of an axis. Raises Deviation for one that can't be told."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in bound:
                return bound[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return float(OPERATORS[type(op)](value(left), value(right)))
        raise Deviation(f"its axis {axis} can't be told from the call")

    return value(parsed(axis))


def matches(kind: ast.expr, found: Description) -> bool:
    """Whether a description is of a Python type, as far as it was looked into."""
    kinds = found.get("kinds", ())
    match kind:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return matches(left, found) or matches(right, found)
        case ast.Constant(value=None):
            return "NoneType" in kinds
        case ast.Name(id="int"):
            return "int" in kinds and "bool" not in kinds
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in kinds
        case ast.Subscript(value=base, slice=inner):
            if not matches(base, found):
                return False
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if "values" in found:
                first, second = items
                return all(matches(first, i) for i in found["items"]) and all(
                    matches(second, i) for i in found["values"]
                )
            given = found.get("items", ())
            if "tuple" in kinds and not isinstance(items[-1], ast.Constant):
                return len(items) == found["length"] and all(map(matches, items, given))
            return all(matches(items[0], item) for item in given)
    return False


GATES = for_each_stage("calls", calls)
