"""What reviewer, judge and gates read from a syntax tree."""

import ast
from collections.abc import Iterator

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names, else an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            base = dotted(value)
            return f"{base}.{attribute}" if base else ""
    return ""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def imports(tree: ast.AST) -> Iterator[tuple[int, str, ast.stmt]]:
    """(level, module, statement) of every import, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", node


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def members(node: ast.ClassDef | ast.Module) -> dict[str, ast.stmt]:
    """Definitions and assignments at the top of a module or class, by name."""
    found: dict[str, ast.stmt] = {}
    for child in node.body:
        if isinstance(child, Definition):
            found[child.name] = child
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            found[child.target.id] = child
        elif isinstance(child, ast.Assign):
            found |= {target.id: child for target in child.targets if isinstance(target, ast.Name)}
    return found


def find(module: ast.Module, path: str) -> ast.stmt | None:
    """The definition of `name` or `Class.name`, inherited ones within the module included."""
    owner, _, name = path.rpartition(".")
    if not owner:
        return members(module).get(name)
    top = members(module).get(owner)
    if not isinstance(top, ast.ClassDef):
        return None
    if name in members(top):
        return members(top)[name]
    bases = (find(module, f"{dotted(base)}.{name}") for base in top.bases)
    return next((base for base in bases if base), None)


def parameters(module: ast.Module, node: ast.stmt) -> list[str] | None:
    """Names that a call may pass: of a function, or of a class's constructor (written, inherited or a dataclass's).

    None for something that can't be called.
    """
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            rest = [f"*{args.vararg.arg}"] if args.vararg else []
            names = [*(arg.arg for arg in [*args.posonlyargs, *args.args]), *rest, *(a.arg for a in args.kwonlyargs)]
            return names[1:] if names[:1] in (["self"], ["cls"]) else names
        case ast.ClassDef(name=name):
            if constructor := find(module, f"{name}.__init__"):
                return parameters(module, constructor)
            return [key for key, child in members(node).items() if isinstance(child, ast.AnnAssign)]
    return None


def optional(module: ast.Module, node: ast.stmt) -> int:
    """How many of the last of these a call may leave out."""
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            return len(args.defaults) + sum(default is not None for default in args.kw_defaults) + bool(args.vararg)
        case ast.ClassDef(name=name):
            if constructor := find(module, f"{name}.__init__"):
                return optional(module, constructor)
            return sum(isinstance(child, ast.AnnAssign) and child.value is not None for child in members(node).values())
    return 0
