"""How a tree reads: the share of its lines that run, branches on what its Target fixed, and how long functions are.

It is told beside an engine's speed and decides nothing. Pure functions of sources and of the lines that were executed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from types import CodeType

from ckb.facts import Frozen

MOST = 40
"""Lines that did not run which are named."""
PURE = {"len", "min", "max", "abs", "int", "float", "bool", "str", "sum", "any", "all"}
"""Functions that make nothing but a constant of constants."""


class Readability(Frozen):
    """Of one tree."""

    executed: float
    """Share of its executable lines that ran while the gates of all stages did; the server's own process, which only
    starts what ran here, is not looked into."""
    lines: int
    """Executable lines."""
    idle: tuple[str, ...]
    """file:line of those that did not run, the first ones."""
    fact_branches: tuple[str, ...]
    """file:line of each branch whose condition names nothing but constants: the Target decided it, one side is dead."""
    functions: int
    median_function: float
    """Lines, from `def` to the end."""
    longest_function: int
    longest: str
    """Its file and name."""


def readability(files: Mapping[str, str], executed: Mapping[str, Sequence[int]]) -> Readability:
    """`files`: path -> source, each of which parses. `executed`: path -> lines that ran."""
    all_lines = [(file, line) for file, source in sorted(files.items()) for line in sorted(executable(source, file))]
    idle = [f"{file}:{line}" for file, line in all_lines if line not in executed.get(file, ())]
    trees = {file: ast.parse(source) for file, source in sorted(files.items())}
    lengths = [(length, f"{file} {name}") for file, tree in trees.items() for length, name in functions(tree)]
    longest = max(lengths, default=(0, ""))
    shared = {name for tree in trees.values() for name in constants(tree)}
    return Readability(
        executed=1 - len(idle) / max(1, len(all_lines)),
        lines=len(all_lines),
        idle=tuple(idle[:MOST]),
        fact_branches=tuple(f"{file}:{line}" for file, tree in trees.items() for line in fact_branches(tree, shared)),
        functions=len(lengths),
        median_function=float(median([length for length, _ in lengths] or [0])),
        longest_function=longest[0],
        longest=longest[1],
    )


def executable(source: str, file: str = "") -> set[int]:
    """The lines of a source that the interpreter would stop at."""
    found: set[int] = set()
    open_ = [compile(source, file or "<tree>", "exec")]
    while open_:
        code = open_.pop()
        # a function's first line is its `def`, which is executed where it stands
        found |= {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
        open_ += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found | statements_on_first_line(source)


def statements_on_first_line(source: str) -> set[int]:
    """The module's own first line, where it is code: it is also its code object's first line."""
    body = ast.parse(source).body
    return {body[0].lineno} if body and body[0].lineno == 1 else set()


def functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Length and name of every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, node.name


def constants(tree: ast.Module) -> set[str]:
    """Names that a module sets once, at its top level, to a value that is made of nothing but constants."""
    found: set[str] = set()
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    modules = imported_modules(tree)
    for node in tree.body:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        once = isinstance(target, ast.Name) and stored.count(target.id) == 1
        if isinstance(target, ast.Name) and once and value and constant(value, found | modules):
            found.add(target.id)
    return found


def imported_modules(tree: ast.Module) -> set[str]:
    """Names that `import` binds: what hangs on them is fixed too."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}


def constant(value: ast.expr, known: set[str]) -> bool:
    """Whether an expression names nothing but constants. A collection that grows later is none."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return False
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id not in known | PURE:
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in PURE):
            return False
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda | ast.NamedExpr):
            return False
    return True


def fact_branches(tree: ast.Module, shared: set[str]) -> Iterator[int]:
    """Lines of `if` and conditional expressions that only constants decide. `shared`: constants of all modules; one
    that is imported, or set here, counts here."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)
    known = {alias.asname or alias.name for node in froms for alias in node.names if alias.name in shared}
    known |= constants(tree) | imported_modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and constant(node.test, known - local_names(tree)):
            yield node.lineno


def local_names(tree: ast.Module) -> set[str]:
    """Parameters: a function's argument hides a constant of the same name."""
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
