"""The static zero-reference audit: what a generated tree imports, executes and loads, from its syntax trees alone.

    found = violations(tree, allowed=target.operators)     # [] or file, line and what is wrong

Allowed are the standard library, ENGINE_LIBRARIES, the operator libraries that the Target lists, and the engine's own
modules by relative import. What hides an import from this audit (exec, import by a computed name, loading by path) is
a violation itself.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ckb.audit_module import Import, Module, within
from ckb.audit_native import COMPILER_FLAG, native_findings
from ckb.audit_tables import (
    BUILDS,
    BY_NAME,
    COMPILED,
    CTYPES,
    DYNAMIC,
    ENGINE_LIBRARIES,
    EXECUTES,
    FILES_OF,
    LOADS,
    LOADS_CODE,
    NAMESPACES,
    NATIVE,
    NATIVE_SOURCE,
    OURS,
    PACKAGES,
    PRIVATE,
    PROCESSES,
    SENSITIVE,
    SERVER_ONLY,
    SETTINGS,
    STARTS,
    TAMPERS,
    UNPICKLES,
)
from ckb.frameworks import framework_part


@dataclass(frozen=True)
class Violation:
    """One finding, at a line of a file of the tree."""

    file: str
    line: int
    what: str
    unreadable: bool = False
    """It does not parse: there is nothing else to say of it."""


def imports_of(source: str) -> list[Import]:
    """Every import of a module, in order: statements, importlib.import_module and __import__ with a constant name.

    Raises SyntaxError for source that does not parse.
    """
    return Module(source).imports


def violations(tree_dir: Path, allowed: Collection[str] = ()) -> list[Violation]:
    """What is wrong with a tree. `allowed`: top-level names of the operator libraries that the Target lists."""
    found = []
    for path in sorted(tree_dir.rglob("*")):
        name = path.relative_to(tree_dir).as_posix()
        if path.is_symlink():
            found.append(Violation(name, 0, "is a link"))
        elif path.suffix in COMPILED and path.parent.name != "__pycache__":
            found.append(Violation(name, 0, f"is a {path.suffix} file: an engine is Python source"))
        elif path.suffix == ".py":
            found += source_violations(path.read_text(encoding="utf-8", errors="replace"), name, allowed)
    return found


def source_violations(source: str, file: str, allowed: Collection[str] = ()) -> list[Violation]:
    """What is wrong with one module."""
    try:
        module = Module(source)
        found = [*_import_violations(module, file, allowed), *_use_violations(module)]
    except (SyntaxError, ValueError) as error:
        return [Violation(file, getattr(error, "lineno", None) or 0, f"does not parse: {error}", unreadable=True)]
    except (RecursionError, MemoryError):  # what the parser, or a walk over its tree, says of a tower of brackets
        return [Violation(file, 0, "does not parse: it is nested too deep", unreadable=True)]
    return [Violation(file, line, what) for line, what in sorted(set(found))]


def _import_violations(module: Module, file: str, allowed: Collection[str]) -> Iterator[tuple[int, str]]:
    for found in module.imports:
        top = found.module.split(".")[0]
        if not top:
            if found.module.startswith(".."):
                yield found.line, f"imports {found.module}, which is outside of the engine"
        elif part := framework_part(found.module):
            whose = "an inference framework" if part == top else f"{part} is a framework's part of an operator library"
            yield found.line, f"imports {found.module}: {whose}"
        elif top in OURS:
            yield found.line, f"imports {found.module}: an engine runs without Enginesmith"
        elif top in SERVER_ONLY and file != "server.py":
            yield found.line, f"imports {found.module}, which only server.py may"
        elif within(found.module, LOADS):
            yield found.line, f"imports {found.module}, which can run code that this audit does not see"
        elif within(found.module, PROCESSES):
            yield found.line, f"imports {found.module}, whose processes nothing watches"
        elif top.startswith("_") and top not in ("__future__", "_thread"):
            yield found.line, f"imports {found.module}, an inside of the interpreter"
        elif found.star:
            yield found.line, f"imports all names of {found.module}: which ones can't be audited"
        elif top not in sys.stdlib_module_names and top not in ENGINE_LIBRARIES and top not in allowed:
            yield found.line, f"imports {found.module}, which the Target's operators do not list"


def _use_violations(module: Module) -> Iterator[tuple[int, str]]:
    for whole, line in module.names:
        for name in module.seen_as(whole):
            if what := _what_is_wrong_with(name, foreign=whole.split(".")[0] in module.foreign):
                yield line, f"uses {name}: {what}"
            elif name in DYNAMIC and line not in module.constant_imports:
                yield line, f"uses {name} other than with a constant name"
        inner, _, last = whole.rpartition(".")
        if last in FILES_OF and inner in module.foreign:
            yield line, f"uses {whole}: where another package lies, and what is in it"
    for name, line in module.insides:
        yield line, f"uses {name}: from there every module can be reached"
    for name, line in module.changed:
        if name.split(".")[0] in module.foreign and "." in name and not within(name, SETTINGS):
            yield line, f"gives {name} another value: what a library does to others is not an engine's to change"
    yield from _handed_on(module)
    yield from _call_violations(module)
    yield from _text_violations(module)


def _what_is_wrong_with(name: str, *, foreign: bool) -> str:
    """`foreign`: it begins with a module; a variable may be called `code` or `profile`."""
    if name in EXECUTES:
        return "code that can't be audited"
    if name in TAMPERS:
        return "it changes what an import finds, or tells where it is found"
    if name.startswith(STARTS):
        return "it starts another program"
    if name.startswith(LOADS_CODE) or (foreign and within(name, LOADS)):
        return "it loads a program from a file"
    if name.startswith(BY_NAME) and name not in NATIVE:
        return "it loads a shared object by its name"
    if name.startswith("ctypes.") and not CTYPES.fullmatch(name):
        return "it reads, writes or calls whatever address it is given"
    if foreign and inside_of_torch(name) and not within(name, PRIVATE):
        return "an inside of torch, where texts are compiled and run"
    return ""


def inside_of_torch(name: str) -> bool:
    """Whether a dotted name lies in a private module of torch, or is a private name of a public one's."""
    top, *parts = name.split(".")
    return top == "torch" and any(re.match(r"_[a-zA-Z]", part) for part in (parts if len(parts) > 1 else ()))


def _handed_on(module: Module) -> Iterator[tuple[int, str]]:
    """Modules, and functions that find by a text, used other than in place."""
    for node in module.values:
        name = module.dotted(node)
        if name in SENSITIVE and name in module.foreign:
            yield node.lineno, f"hands on the module {name}: what is taken from it can't be audited"
        elif name in ("getattr", "operator.attrgetter") or name in NAMESPACES:
            yield node.lineno, f"hands on {name}: what it finds can't be audited"


def _call_violations(module: Module) -> Iterator[tuple[int, str]]:
    for call in module.calls:
        function = module.dotted(call.func)
        arguments = [*call.args[:1], *(keyword.value for keyword in call.keywords)]
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if function in NATIVE:
            if any(_constant_text(argument) for argument in arguments):
                yield call.lineno, f"loads a shared object by a constant path with {function}: only what it built"
            if not arguments or any(isinstance(a, ast.Constant) and a.value is None for a in arguments):
                yield call.lineno, f"opens its own process with {function}"
        elif function in BUILDS:
            inside = (node for argument in arguments for node in ast.walk(argument) if isinstance(node, ast.Constant))
            if any(str(node.value).startswith(("/", "..", "~/")) and "\n" not in str(node.value) for node in inside):
                yield call.lineno, f"builds with {function} what lies outside of the engine"
            yield from (
                (line, f"gives its compiler {text[:60]!r}") for text, line in module.texts if COMPILER_FLAG.match(text)
            )
        elif function in UNPICKLES:
            word, value = ("weights_only", True) if function.startswith("torch") else ("allow_pickle", False)
            given = keywords.get(word, ast.Constant(value=False))  # which numpy leaves out, and older torch did
            if not isinstance(given, ast.Constant) or given.value is not value:
                yield call.lineno, f"uses {function} without {word}={value}: it runs what the data says"
        elif function in ("getattr", "setattr", "delattr") and len(call.args) > 1:
            if module.dotted(call.args[0]) in module.foreign and _constant_text(call.args[1]) is None:
                yield call.lineno, f"uses {function} on a module other than with a constant name"
        elif function in NAMESPACES and not (function == "vars" and call.args):
            yield call.lineno, f"uses {function}(): names that this audit does not see"


def _text_violations(module: Module) -> Iterator[tuple[int, str]]:
    """What constant texts say: folders of packages, and C++ that does more than compute."""
    for text, line in module.texts:
        if found := next((word for word in PACKAGES if word in text), ""):
            yield line, f"names {found}, where other packages lie"
        if any(word in text for word in NATIVE_SOURCE) or line in module.native_lines:
            yield from ((line + below, f"its C++ uses {what}") for below, what in native_findings(text))


def _constant_text(node: ast.expr) -> str | None:
    """The text of a constant, also inside Path("...") or str("...")."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(args=[ast.expr() as inner]):
            return _constant_text(inner)
    return None
