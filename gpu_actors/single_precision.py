"""A tree in float32: its one constant replaced, and in C++ the definitions of the contract `compute-format`.

Faults that are smaller than a bfloat16 rounding (a 1% scale, ten times an epsilon) drown in it, and show in float32.
"""

import ast
import re
import shutil
from pathlib import Path

from gpu_actors.child import ChildFailure

RULE = (
    "an engine takes its compute dtype from the one constant DTYPE of kernels.py, and its C++ from the definitions of "
    "kv_t, rounded, load and store alone, so that it can be tried in float32"
)
TYPES = (re.compile(r"\btypedef\s+\w+\s+kv_t\s*;"), re.compile(r"\busing\s+kv_t\s*=\s*[^;]+;"))
BODIES = {"rounded": "return {0};", "load": "return *(const vf*){0};", "store": "*{0} = {1};"}
"""What each function does in float32, by its parameters."""


def written(tree: Path, copy: Path) -> None:
    """Writes the copy. Raises ChildFailure for a tree that breaks the rule."""
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("__pycache__"))
    places = [(path, span) for path in sorted(copy.glob("*.py")) for span in constants(path)]
    if len(places) != 1:
        found = ", ".join(f"{path.name}:{node.lineno}" for path, node in places) or "nowhere"
        raise ChildFailure("PROTOCOL", f"DTYPE is set to a dtype of torch in {found}: {RULE}")
    path, value = places[0]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line = lines[value.lineno - 1].encode()  # columns of a syntax tree are bytes
    lines[value.lineno - 1] = (line[: value.col_offset] + b"torch.float32" + line[value.end_col_offset :]).decode()
    path.write_text("".join(lines), encoding="utf-8")
    for file in copy.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        if (other := native(text)) != text:
            file.write_text(other, encoding="utf-8")


def constants(path: Path) -> list[ast.Attribute]:
    """The values `torch.NAME` that a module's top level gives to DTYPE."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "DTYPE"
    ]
    return [value for value in values if isinstance(value, ast.Attribute) and value.lineno == value.end_lineno]


def native(text: str) -> str:
    """A module's text with the C++ definitions of the compute format in float32, where it has them."""
    for kind in TYPES:
        text = kind.sub("typedef float kv_t;", text)
    for name, body in BODIES.items():
        for found in reversed(list(re.finditer(rf"\b(?:float|vf|void)\s+{name}\s*\(([^()]*)\)\s*\{{", text))):
            parameters = [part.split()[-1].lstrip("*&") for part in found[1].split(",")]
            if "kv_t" in found[1] or name == "rounded":
                text = f"{text[: found.end()]} {body.format(*parameters)} {text[closing(text, found.end()) :]}"
    return text


def closing(text: str, start: int) -> int:
    """Where the brace is that closes the one before `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    raise ChildFailure("PROTOCOL", f"C++ with a brace that nothing closes: {text[start : start + 60]!r}")
