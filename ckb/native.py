"""What the C++ in a module's text constants offers: declarations by regular expression, no compiler."""

import ast
import re
from dataclasses import dataclass

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
TEMPLATE = re.compile(r"template\s*<([^>]*)>\s*$")
WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Signature:
    """One C++ function."""

    returns: str
    takes: tuple[tuple[str, str], ...]
    """(type, name) of each parameter; an empty name where it has none."""
    templates: tuple[str, ...] = ()
    """Names of the types that it is a template over."""


def source(module: ast.Module) -> str:
    """The C++ of a module: every text constant that is handed to a call or assigned, f-strings without their values."""
    texts = []
    docstrings = {id(n.value) for n in ast.walk(module) if isinstance(n, ast.Expr)}
    inside: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            texts.append("".join(_part(part) for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            texts.append(node.value)
    return ATTRIBUTE.sub("", COMMENT.sub("", "\n".join(text for text in texts if ";" in text)))


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "0"


def function(text: str, name: str) -> Signature | None:
    """The definition of a function, or None."""
    for found in re.finditer(rf"(?:^|[;}}\n])([^;{{}}\n#]*?)\b{re.escape(name)}\s*\(([^()]*)\)\s*\{{", text):
        before = found[1].replace('extern "C"', " ").strip()
        head = text[: found.start(1)].rstrip()
        template = TEMPLATE.search(head) or re.match(r"template\s*<([^>]*)>", before)
        before = re.sub(r"template\s*<[^>]*>", "", before)
        words = [word for word in before.split() if word not in ("static", "inline", "constexpr")]
        if words:
            parameters = re.findall(r"(?:typename|class)\s+(\w+)", template[1]) if template else []
            takes = tuple(_parameter(part) for part in found[2].split(",") if part.strip())
            return Signature(spaced(" ".join(words)), takes, tuple(parameters))
    return None


def _parameter(text: str) -> tuple[str, str]:
    kind, name = re.fullmatch(r"(.*?)(\b[A-Za-z_]\w*)?\s*", text.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
    if not kind.strip() or kind.strip() == "const":  # the one word is the type
        return spaced(text), ""
    return spaced(kind), name or ""


def spaced(kind: str) -> str:
    """A type in one spelling: `const float*`."""
    return re.sub(r"\s*([*&])\s*", r"\1", " ".join(kind.split())).strip()


def is_type(text: str, name: str) -> bool:
    return bool(re.search(rf"\btypedef\b[^;]*\b{name}\b[^;]*;|\b(?:struct|class)\s+{name}\b", text))


def constant(text: str, name: str) -> str | None:
    """The type of a constant, `constexpr long`, or None."""
    found = re.search(rf"\b(constexpr\s+\w+)\s+[^;]*?\b{name}\s*=", text)
    return spaced(found[1]) if found else None
