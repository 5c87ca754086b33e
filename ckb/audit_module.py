"""One module as the static audit sees it (ckb.audit): what it imports, names and calls, with its aliases resolved."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ckb.audit_tables import BUILDS, DYNAMIC, EXECUTES, INSIDES, LOADS, NATIVE, PROCESSES
from ckb.frameworks import framework_part

OF_MODULES = frozenset({"getattr", "hasattr", "setattr", "delattr"})
"""Are judged by their second argument."""


@dataclass(frozen=True)
class Import:
    """One import, as written; relative ones keep their dots."""

    module: str
    line: int
    names: tuple[str, ...] = field(default=(), compare=False)
    """What `from module import` takes from it."""
    star: bool = field(default=False, compare=False)


def within(module: str, names: Collection[str]) -> bool:
    """Whether a module is one of these or lies in one."""
    return any(module == name or module.startswith(f"{name}.") for name in names)


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
        self.foreign = {found.module for found in self.imports if not found.module.startswith(".")}
        """Dotted names of modules that are not the engine's own."""
        self.foreign |= {name.split(".")[0] for name in self.foreign}
        self.values = [child for node in nodes for child in _values_of(node)]
        self.texts = [(n.value, n.lineno) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        self.native_lines = {
            node.lineno
            for call in self.calls
            if self.dotted(call.func) == "SOURCES.append" or self.dotted(call.func) in BUILDS
            for node in ast.walk(call)
            if isinstance(node, ast.Constant)
        }
        expressions = [node for node in nodes if isinstance(node, ast.expr)]
        self.insides = [(name, node.lineno) for node in expressions for name in _attributes(node) if name in INSIDES]
        changes = [target for node in nodes for target in _changed_by(node)]
        self.changed = [(name, target.lineno) for target in changes if (name := self.dotted(target))]
        """Attributes and items that are assigned or deleted."""
        kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Call
        self.names = [(name, node.lineno) for node in nodes if isinstance(node, kinds) and (name := self.dotted(node))]
        self.names += [(f"{found.module}.{name}", found.line) for found in self.imports for name in found.names]

    def seen_as(self, name: str) -> Iterator[str]:
        """A dotted name, and its ends: `torch.hub.os.system` is os.system however one came to it."""
        parts = name.split(".")
        yield name
        if len(parts) > 2 and parts[0] in self.foreign:
            yield from (".".join(parts[at:]) for at in range(1, len(parts) - 1))

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
                taken = tuple(item.name for item in names)
                self.imports.append(Import(base, node.lineno, taken, star="*" in taken))
                for item in names:
                    self._aliases[item.asname or item.name] = f"{base}.{item.name}"
                    if within(f"{base}.{item.name}", (*LOADS, *PROCESSES)) or framework_part(f"{base}.{item.name}"):
                        self.imports.append(Import(f"{base}.{item.name}", node.lineno))

    def _assignments(self, nodes: list[ast.AST]) -> None:
        """`run = exec` and `ext = torch.utils.cpp_extension` make aliases too, of one another as well."""
        tops = {*self._aliases.values(), *(found.module.split(".")[0] for found in self.imports)}
        for _ in range(3):
            for node in nodes:
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)], value=value)
                        | ast.NamedExpr(target=ast.Name(id=name), value=value)
                    ):
                        target = self.dotted(value)
                        if target and (target in EXECUTES | DYNAMIC | NATIVE or target.split(".")[0] in tops):
                            self._aliases.setdefault(name, target)

    def _dynamic(self, call: ast.Call) -> None:
        if self.dotted(call.func) in DYNAMIC and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self.imports.append(Import(name.value, call.lineno))
                self.constant_imports.add(call.func.lineno)


def _attributes(node: ast.AST) -> Iterator[str]:
    """The attribute that a node takes, also of what has no name, and by getattr with a constant."""
    match node:
        case ast.Attribute(attr=name):
            yield name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name


def _changed_by(node: ast.AST) -> Iterator[ast.expr]:
    """The attributes and items that a node gives another value, also by setattr and delattr with a constant."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            yield node
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[value, ast.Constant(value=str(name)), *_]):
            yield ast.Attribute(value=value, attr=name, lineno=node.lineno)


def _values_of(node: ast.AST) -> Iterator[ast.expr]:
    """Names and attributes that a node uses as values: not as what an attribute is taken of, or what is called."""
    if isinstance(node, ast.Attribute):
        return
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.Call) and name == "func":
            continue
        judged = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OF_MODULES
        if judged and name == "args":
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load):
                yield child
