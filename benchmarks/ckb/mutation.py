"""Mutations of knowledge: every typed value that the source of a contract or fragment states, changed in a few ways.

A site is one value that stands in the file: a field that has its default has no line there. Each element of a list is a
site. Free text (title, text, does, state, and a failure's symptom and cause) tells people why; nothing could execute it
without understanding it. Filing fields (id, created, provenance, layer) say where a row came from, not what an engine
must be. Neither is typed knowledge. A fragment's code is a site for each of its functions, C++ ones too.
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckb.export import plain, render_row
from ckb.knowledge_files import KnowledgeFileError, parse_fragment, parse_text_row
from ckb.records import STAGES, Contract, Fragment

Fields = dict[str, Any]
Place = tuple[str | int, ...]
PROSE = {"title", "text", "does", "state", "failures", "symptom", "cause"}
FILING = {"id", "created", "provenance", "layer"}
CONSTANTS = ("HIDDEN", "INTERMEDIATE", "VOCAB", "HEADS", "KV_HEADS", "HEAD_DIM", "LAYERS", "MAX_CONTEXT")
MODULES = ("kernels.py", "cache.py", "weights.py", "model.py", "scheduler.py", "engine.py")


@dataclass(frozen=True)
class Mutation:
    """One changed value."""

    table: str
    id: str
    field: str
    """The column, with the fields of records inside it: `interface.takes.dtype`."""
    place: str
    """Where in the column: `interface.2.takes.0.dtype`, or a function of the code."""
    what: str
    """The change, in words."""
    row: Contract | Fragment | None
    """The mutated row; None where the change can't be stored: the row's own type refuses it."""


def mutations(row: Contract | Fragment) -> Iterator[Mutation]:
    """Every mutation of one row, in the order of its columns."""
    table = "contracts" if isinstance(row, Contract) else "fragments"
    fields = plain(row)
    for place, value in _leaves(fields, ()):
        names = [str(part) for part in place if not isinstance(part, int)]
        if set(names) & (PROSE | FILING) or names[0] in ("imports", "code"):
            continue
        field = _column(names)
        for what, changed in _changes(row, fields, place, value):
            yield Mutation(table, row.id, field, ".".join(map(str, place)), what, _rebuilt(table, row, changed))
    if isinstance(row, Fragment):
        for index, line in enumerate(row.imports):
            for what, lines in _imports(row.imports, index, line):
                changed = fields | {"imports": lines}
                yield Mutation(table, row.id, "imports", f"imports.{index}", what, _rebuilt(table, row, changed))
        for place_, what, code in code_mutations(row.code):
            yield Mutation(table, row.id, "code", place_, what, _rebuilt(table, row, fields | {"code": code}))


def _column(names: list[str]) -> str:
    """Names of decisions and parameters are no columns of their own."""
    return (
        names[0]
        if names[0] in ("decisions", "decision_requires", "parameters", "parameter_requires")
        else ".".join(names)
    )


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*place, index))
    else:
        yield place, value


def _rebuilt(table: str, row: Contract | Fragment, fields: Fields) -> Contract | Fragment | None:
    """The row that a file with these fields gives: through the source, as a person would change it."""
    kind = type(row)
    try:
        draft = kind.model_validate({"id": row.id, "layer": row.layer, **fields})
        content = render_row(table, draft)
        if isinstance(draft, Fragment):
            return parse_fragment(Path(f"{row.id}.py"), content)
        return parse_text_row(Path(f"{row.id}.md"), content, Contract)
    except (ValueError, KnowledgeFileError):
        return None


# --- columns ----------------------------------------------------------------------------------------------------------


def _changes(row: Contract | Fragment, fields: Fields, place: Place, value: Any) -> Iterator[tuple[str, Fields]]:
    last, column = place[-1], str(place[0])
    name = str(last) if not isinstance(last, int) else column

    def put(new: Any) -> Fields:
        return _with(fields, place, lambda _: new)

    if isinstance(last, int):  # an element of a list of plain values
        yield "dropped", _without(fields, place)
    if column in ("applies_to", "decision_requires", "parameter_requires"):
        yield "negated", put(f"not ({value})")
        yield from ((f"without {part}", put(rest)) for part, rest in _conjuncts(value))
    elif column == "decisions":
        yield "renamed", put(f"{value}_other")
        if last == 0 and len(_at(fields, place[:-1])) > 1:
            yield "another default", _with(fields, place[:-1], lambda options: [*options[1:], options[0]])
    elif column == "parameters":
        yield "changed", put(value + 1 if isinstance(value, int | float) else f"{value}_")
        if last == 0:
            yield "name changed", _with(fields, (column,), lambda held: {
                f"{key}_" if key == place[1] else key: item for key, item in held.items()
            })  # fmt: skip
    elif name == "order":
        yield "next place", put(value + 1)
        yield "first place", put(-1)
    elif name == "rank":
        yield "negated", put(-value)
    elif name == "stage":
        at = STAGES.index(value)
        yield "another stage", put(STAGES[at + 1] if at < 2 else STAGES[at - 1])
    elif name == "module":
        yield (
            "another module",
            put(MODULES[(MODULES.index(value) + 1) % len(MODULES)] if value in MODULES else "model.py"),
        )
    elif name == "status":
        yield "draft", put("draft")
    elif column == "constants":
        yield "another constant", put("MAX_POSITIONS" if value != "MAX_POSITIONS" else "HIDDEN")
    elif column == "contract":
        yield "filed elsewhere", put("rms-norm" if value != "rms-norm" else "rope")
    else:
        yield from _record(row, fields, place, str(value), name)


def _record(
    row: Contract | Fragment, fields: Fields, place: Place, value: str, name: str
) -> Iterator[tuple[str, Fields]]:
    """A value inside of a record, or a name in a list."""

    def put(new: Any) -> Fields:
        return _with(fields, place, lambda _: new)

    record = place[:-1]
    match name:
        case "shape":
            words = [n for n in CONSTANTS if n in value.split()]
            if words:
                other = CONSTANTS[(CONSTANTS.index(words[0]) + 3) % len(CONSTANTS)]
                yield "another axis", put(re.sub(rf"\b{words[0]}\b", other, value))
            else:
                yield "another axis", put(str(int(value) + 1) if value.isdigit() else f"{value}2")
        case "dtype":
            swap = {"compute": "weights", "weights": "compute", "float32": "compute", "int": "str", "long": "int"}
            yield "another type", put(swap.get(value, "complex"))
            yield "a type of no use", put("float16")
        case "placement":
            yield "another place", put("host" if value == "device" else "device")
        case "exception":
            number = re.search(r"\d+", value)
            yield "another exception", put(value.replace(number[0], str(int(number[0]) + 1)) if number else "KeyError")
        case "function":
            names = [f["name"] for f in fields.get("interface", [])]
            others = [other for other in names if other != value]
            yield "another function", put(others[0] if others else f"{value}_other")
        case "name" if len(record) == 2:  # a function
            yield "renamed", _renamed(fields, record, value, f"{value}_other")
            yield "dropped", _renamed(_without(fields, record), None, value, None)
        case "name":
            yield "renamed", put(f"{value}_other")
            yield "dropped", _without(fields, record)
        case "condition" | "subject":
            yield "changed", put(f"{value} at night")
            yield "dropped", _without(fields, record)
        case _:
            yield "changed", put(f"{value} at night" if " " in value else f"{value}_other")


def _renamed(fields: Fields, record: Place | None, old: str, new: str | None) -> Fields:
    """A function by another name, in its error cases too; without them when it is gone."""
    changed = _with(fields, (*record, "name"), lambda _: new) if record else copy.deepcopy(fields)
    cases = changed.get("error_cases", [])
    if new is None:
        cases = [case for case in cases if case["function"] != old]
    else:
        cases = [case | {"function": new} if case["function"] == old else case for case in cases]
    return changed | ({"error_cases": cases} if cases or "error_cases" in changed else {})


def _conjuncts(text: str) -> Iterator[tuple[str, str]]:
    """Each part of a conjunction, and what is left without it."""
    tree = ast.parse(text, mode="eval").body
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    for part in parts:
        rest = [f"({ast.unparse(other)})" for other in parts if other is not part]
        yield ast.unparse(part), " and ".join(rest)


def _imports(lines: tuple[str, ...], index: int, line: str) -> Iterator[tuple[str, list[str]]]:
    yield "dropped", [other for at, other in enumerate(lines) if at != index]
    node = ast.parse(line).body[0]
    assert isinstance(node, ast.Import | ast.ImportFrom)
    if len(node.names) > 1:
        node.names = node.names[:-1]
        yield "one name dropped", [ast.unparse(node) if at == index else other for at, other in enumerate(lines)]


def _at(fields: Any, place: Place) -> Any:
    for part in place:
        fields = fields[part]
    return fields


def _with(fields: Fields, place: Place, change: Callable[[Any], Any]) -> Fields:
    changed = copy.deepcopy(fields)
    holder = _at(changed, place[:-1])
    holder[place[-1]] = change(holder[place[-1]])
    return changed


def _without(fields: Fields, place: Place) -> Fields:
    changed = copy.deepcopy(fields)
    del _at(changed, place[:-1])[place[-1]]
    return changed


# --- code -------------------------------------------------------------------------------------------------------------

SWAPS: dict[type[ast.operator] | type[ast.cmpop], ast.operator | ast.cmpop] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.Mult(), ast.FloorDiv: ast.Mult(),
    ast.BitOr: ast.BitAnd(), ast.Pow: ast.Mult(),
    ast.Lt: ast.GtE(), ast.Gt: ast.LtE(), ast.LtE: ast.Gt(), ast.GtE: ast.Lt(), ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(),
}  # fmt: skip
CPP = (("+=", "-="), (" * ", " + "), (" + ", " - "), ("<<", ">>"), (" < ", " <= "), ("return ", "return 1 + "))


def code_mutations(code: str) -> Iterator[tuple[str, str, str]]:
    """(function, change, code) for each function of a fragment, Python and C++, and for each constant at its top."""
    tree = ast.parse(code)
    for index, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for what, edit in _edits(node):
                other = ast.parse(code)
                edit(next(n for at, n in enumerate(ast.walk(other)) if at == index))
                yield f"code.{node.name}", what, ast.unparse(other) + "\n"
                break
        elif isinstance(node, ast.Assign) and node in tree.body and isinstance(node.value, ast.Tuple | ast.Dict):
            other = ast.parse(code)
            same = next(n for at, n in enumerate(ast.walk(other)) if at == index)
            parts = same.value.elts if isinstance(same.value, ast.Tuple) else same.value.values  # type: ignore[attr-defined]
            if parts:
                parts.pop()
                if isinstance(same.value, ast.Dict):  # type: ignore[attr-defined]
                    same.value.keys.pop()  # type: ignore[attr-defined]
                yield f"code.{ast.unparse(node.targets[0])}", "last item dropped", ast.unparse(other) + "\n"
    yield from _cpp(code)


def _edits(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Edits of one function, the first that fits: an operator, a constant, an argument, a statement."""
    for index, inner in enumerate(ast.walk(node)):
        if isinstance(inner, ast.BinOp) and type(inner.op) in SWAPS and not _annotates(node, inner):
            yield f"{type(inner.op).__name__} swapped", _edit(index, _swap_binary)
        elif isinstance(inner, ast.Compare) and type(inner.ops[0]) in SWAPS:
            yield f"{type(inner.ops[0]).__name__} swapped", _edit(index, _swap_compare)
    for index, inner in enumerate(ast.walk(node)):
        if isinstance(inner, ast.Constant) and type(inner.value) is int:
            yield f"{inner.value} + 1", _edit(index, _increment)
    for index, inner in enumerate(ast.walk(node)):
        if isinstance(inner, ast.Call) and inner.args and inner not in node.decorator_list:
            yield f"an argument of {ast.unparse(inner.func)} dropped", _edit(index, lambda call: call.args.pop())
    yield "first statement dropped", _drop_statement


def _annotates(node: ast.FunctionDef | ast.AsyncFunctionDef, inner: ast.AST) -> bool:
    held = [a.annotation for a in [*node.args.args, *node.args.kwonlyargs] if a.annotation] + [node.returns]
    held += [n.annotation for n in ast.walk(node) if isinstance(n, ast.AnnAssign)]
    return any(inner in ast.walk(part) for part in held if part)


def _edit(index: int, change: Callable[[Any], object]) -> Callable[[Any], None]:
    def edit(node: Any) -> None:
        change(next(inner for at, inner in enumerate(ast.walk(node)) if at == index))

    return edit


def _swap_binary(node: Any) -> None:
    node.op = SWAPS[type(node.op)]


def _swap_compare(node: Any) -> None:
    node.ops[0] = SWAPS[type(node.ops[0])]


def _increment(node: Any) -> None:
    node.value += 1


def _drop_statement(node: Any) -> None:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    node.body = [*body[1:]] or [ast.Pass()]


def _cpp(code: str) -> Iterator[tuple[str, str, str]]:
    """One operator swapped in the body of each C++ function."""
    for found in re.finditer(r"^(?!\s|//|#)[^\n=]*?\b(\w+)\([^;{]*\)\s*(?:__attribute__\S*\s*)?\{", code, re.MULTILINE):
        if found[0].startswith(("def ", "class ", "SOURCES", "constexpr")):
            continue
        end = re.compile(r"^\}|\}$", re.MULTILINE).search(code, found.end())
        body = code[found.end() : end.start() if end else len(code)]
        for old, new in CPP:
            if old in body:
                changed = code[: found.end()] + body.replace(old, new, 1) + code[found.end() + len(body) :]
                yield f"code.{found[1]}()", f"{old.strip()} for {new.strip()}", changed
                break
