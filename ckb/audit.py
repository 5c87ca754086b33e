"""The static zero-reference audit: what a generated tree imports, executes and loads, from its syntax trees alone.

    found = violations(tree, allowed=target.operators)     # [] or file, line and what is wrong

Allowed are the standard library, ENGINE_LIBRARIES, the operator libraries that the Target lists, and the engine's own
modules by relative import. What hides an import from this audit (exec, import by a computed name, loading by path) is
a violation itself.
"""

import ast
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ENGINE_LIBRARIES = frozenset({"torch", "safetensors", "tokenizers", "jinja2", "starlette", "uvicorn", "numpy"})
"""What every engine may stand on, besides the standard library."""
FRAMEWORKS = frozenset({"transformers", "vllm", "sglang", "lmdeploy", "tensorrt_llm", "mlc_llm"})
"""Inference frameworks and model code: forbidden whatever a Target lists."""
OURS = frozenset({"swarm", "roles", "ckb", "gpu_actors", "benchmarks", "enginesmith"})
SERVER_ONLY = frozenset({"subprocess", "socket", "socketserver"})
"""Modules that only server.py may import."""
EXECUTES = frozenset({"exec", "eval", "compile", "builtins.exec", "builtins.eval", "builtins.compile"})
STARTS = ("os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "pty.spawn")
TAMPERS = frozenset({"sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks", "__builtins__", "builtins.__dict__"})
LOADS = (
    "builtins", "importlib.util", "importlib.machinery", "imp", "runpy", "zipimport", "pkgutil", "pickle", "marshal",
    "shelve", "code", "codeop", "timeit", "pydoc", "doctest", "cProfile", "profile", "pdb", "bdb", "trace",
)  # fmt: skip
"""Modules that import by path, or run what a text or data says."""
BY_NAME = ("ctypes.cdll.", "ctypes.pydll.")
"""`ctypes.cdll.name` and `ctypes.cdll[name]` load a shared object."""
DYNAMIC = frozenset({"__import__", "builtins.__import__", "importlib.import_module", "importlib.__import__"})
LIBRARIES = ("CDLL", "PyDLL", "WinDLL", "OleDLL", "cdll.LoadLibrary", "pydll.LoadLibrary")
NATIVE = frozenset({f"ctypes.{name}" for name in LIBRARIES} | {"torch.ops.load_library", "torch.classes.load_library"})
COMPILED = frozenset({".so", ".pyd", ".pyc", ".pyo", ".dylib", ".dll", ".a", ".o", ".pth", ".zip", ".whl", ".egg"})


@dataclass(frozen=True)
class Import:
    """One import, as written; relative ones keep their dots."""

    module: str
    line: int


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


def _import_violations(module: "Module", file: str, allowed: Collection[str]) -> Iterator[tuple[int, str]]:
    for found in module.imports:
        top = found.module.split(".")[0]
        if not top:
            if found.module.startswith(".."):
                yield found.line, f"imports {found.module}, which is outside of the engine"
        elif top in FRAMEWORKS:
            yield found.line, f"imports {found.module}: an inference framework"
        elif top in OURS:
            yield found.line, f"imports {found.module}: an engine runs without Enginesmith"
        elif top in SERVER_ONLY and file != "server.py":
            yield found.line, f"imports {found.module}, which only server.py may"
        elif any(found.module == name or found.module.startswith(f"{name}.") for name in LOADS):
            yield found.line, f"imports {found.module}, which can run code that this audit does not see"
        elif top not in sys.stdlib_module_names and top not in ENGINE_LIBRARIES and top not in allowed:
            yield found.line, f"imports {found.module}, which the Target's operators do not list"


def _use_violations(module: "Module") -> Iterator[tuple[int, str]]:
    for name, line in module.names:
        if name in EXECUTES:
            yield line, f"uses {name}: code that can't be audited"
        elif name in TAMPERS:
            yield line, f"uses {name}: it changes what an import finds"
        elif name.startswith(STARTS):
            yield line, f"uses {name}: it starts another program"
        elif name.startswith(BY_NAME) and name not in NATIVE:
            yield line, f"uses {name}: it loads a shared object by its name"
        elif name in DYNAMIC and line not in module.constant_imports:
            yield line, f"uses {name} other than with a constant name"
    for call in module.calls:
        loader = module.dotted(call.func)
        arguments = [*call.args[:1], *(keyword.value for keyword in call.keywords)]
        if loader in NATIVE and any(_constant_text(argument) for argument in arguments):
            yield call.lineno, f"loads a shared object by a constant path with {loader}: it may load only what it built"


def _constant_text(node: ast.expr) -> str | None:
    """The text of a constant, also inside Path("...") or str("...")."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(args=[ast.expr() as inner]):
            return _constant_text(inner)
    return None


class Module:
    """What one module imports, names and calls, with the aliases that it made resolved."""

    def __init__(self, source: str):
        """Raises SyntaxError."""
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        self.imports: list[Import] = []
        self._aliases: dict[str, str] = {}
        for node in nodes:
            self._statement(node)
        self._assignments(nodes)
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.constant_imports: set[int] = set()
        for call in self.calls:
            self._dynamic(call)
        self.imports.sort(key=lambda found: found.line)
        self.names = [
            (name, node.lineno)
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and (name := self.dotted(node))
        ]

    def dotted(self, node: ast.expr) -> str | None:
        """`importlib.import_module` for `il.import_module` after `import importlib as il`, and so on."""
        match node:
            case ast.Name(id=name):
                return self._aliases.get(name, name)
            case ast.Attribute(value=value, attr=attr):
                base = self.dotted(value)
                return f"{base}.{attr}" if base else None
            case ast.Subscript(value=value, slice=ast.Constant(value=str(attr))):
                base = self.dotted(value)
                return f"{base}.{attr}" if base else None
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attr)), *_]):
                base = self.dotted(value)
                return f"{base}.{attr}" if base else None
        return None

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for item in names:
                    self.imports.append(Import(item.name, node.lineno))
                    if item.asname:
                        self._aliases[item.asname] = item.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = "." * level + (module or "")
                self.imports.append(Import(base, node.lineno))
                for item in names:
                    self._aliases[item.asname or item.name] = f"{base}.{item.name}"
                    if f"{base}.{item.name}" in LOADS:
                        self.imports.append(Import(f"{base}.{item.name}", node.lineno))

    def _assignments(self, nodes: list[ast.AST]) -> None:
        """`run = exec` makes an alias too."""
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    target = self.dotted(value)
                    if target in EXECUTES | DYNAMIC | NATIVE:
                        self._aliases[name] = str(target)

    def _dynamic(self, call: ast.Call) -> None:
        if self.dotted(call.func) in DYNAMIC and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self.imports.append(Import(name.value, call.lineno))
                self.constant_imports.add(call.func.lineno)
