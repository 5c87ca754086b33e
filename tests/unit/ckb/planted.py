"""Copies of framework functions as a copyist would hide them: made when a test runs, from what is installed."""

import ast
import builtins
import io
import random
import tokenize
from importlib.util import find_spec
from pathlib import Path

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "jetty", "kelp", "larch")
LIBRARIES = {"torch", "nn", "F", "math", "self"} | set(dir(builtins))
SOURCES = (
    "models/llama/modeling_llama.py", "models/gpt_oss/modeling_gpt_oss.py", "models/gemma3/modeling_gemma3.py",
    "models/qwen3_moe/modeling_qwen3_moe.py", "models/deepseek_v3/modeling_deepseek_v3.py", "masking_utils.py",
    "models/mamba2/modeling_mamba2.py", "cache_utils.py", "generation/logits_process.py", "modeling_rope_utils.py",
)  # fmt: skip
"""Files of transformers from which copies are taken."""


def transformers_folder() -> Path:
    """Where the package lies, without importing it."""
    spec = find_spec("transformers")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent


def chosen(count: int, lines: int, seed: int) -> list[tuple[str, ast.FunctionDef]]:
    """(file, function) of the installed transformers, the same in every run, of at least `lines` lines each."""
    draws = random.Random(seed)
    found = []
    for source in SOURCES:
        long_enough = functions((transformers_folder() / source).read_text(encoding="utf-8"), lines)
        found += [(source, node) for node in draws.sample(long_enough, min(4, len(long_enough)))]
    draws.shuffle(found)
    return found[:count]


def functions(source: str, lines: int) -> list[ast.FunctionDef]:
    """The functions of a module with at least `lines` lines of canonical text, comments and docstrings not counted."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return [node for node in map(without_docstring, found) if len(ast.unparse(node).splitlines()) >= lines]


def without_docstring(function: ast.FunctionDef) -> ast.FunctionDef:
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:] or [ast.Pass()]
    function.decorator_list = []
    return function


class Renamer(ast.NodeTransformer):
    """Gives every name of the author's own another one, and every text and number another value."""

    def __init__(self, draws: random.Random):
        self._draws = draws
        self._names: dict[str, str] = {}

    def renamed(self, name: str) -> str:
        if name in LIBRARIES:
            return name
        return self._names.setdefault(name, f"{self._draws.choice(WORDS)}_{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.renamed(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg, node.annotation = self.renamed(node.arg), None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name, node.returns = self.renamed(node.name), None
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self.renamed(node.attr)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant(f"{self._draws.choice(WORDS)} is wrong")

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if type(node.value) in (int, float):
            node.value += 3
        elif isinstance(node.value, str):
            node.value = self._draws.choice(WORDS)
        return node


def disguised(functions: list[ast.FunctionDef], draws: random.Random) -> str:
    """The functions in another order, renamed, and set with other line breaks, blank lines and comments."""
    renamer = Renamer(draws)
    texts = [reformatted(ast.unparse(ast.fix_missing_locations(renamer.visit(node))), draws) for node in functions]
    draws.shuffle(texts)
    return "\n\n".join(texts) + "\n"


def reformatted(text: str, draws: random.Random) -> str:
    """The same program with a line break after every other comma inside of brackets, and remarks between statements."""
    depth, breaks = 0, set()
    ends = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == "," and depth and draws.random() < 0.5:
                breaks.add(token.end)
        elif token.type == tokenize.NEWLINE and draws.random() < 0.3:
            ends.add(token.start)
    lines = []
    for row, line in enumerate(text.splitlines(), 1):
        for _, column in sorted((place for place in breaks if place[0] == row), reverse=True):
            line = f"{line[:column]}\n      {line[column:].lstrip()}"
        lines.append(line)
        if any(place[0] == row for place in ends):
            lines.append(f"# {draws.choice(WORDS)}\n")
    return "\n".join(lines)
