"""Reads the seed knowledge: front matter and text of contracts, front matter and code of fragments."""

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from ckb.errors import UserError
from ckb.records import Contract, Fragment, Row, Status
from ckb.schemas import TABLES
from ckb.schemas.experience import Experience

R = TypeVar("R", bound=Row)

KNOWLEDGE = Path(__file__).parent / "knowledge"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's safe loader where it was built in: the seed is read in a tenth of the time."""
SUFFIXES = {
    "contracts": ".md",
    "experience": ".md",
    "guides": ".md",
    "test_contracts": ".md",
    "fragments": ".py",
    "models": ".yaml",
    "platforms": ".yaml",
    "parallelism": ".yaml",
}
"""Table of the seed -> how the names of its files end. The other tables are written by runs and have no files."""
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ast.parse raises: besides its own error for a null byte, half of a surrogate pair, and nesting without end."""


class KnowledgeFileError(UserError):
    """A seed file that can't be read; the message names the file and the field."""


@dataclass(frozen=True)
class Knowledge:
    """The part of one version of the knowledge base that generation works from."""

    contracts: dict[str, Contract]
    fragments: dict[str, Fragment]
    version: int = 0
    """Version of the store that it was read from; 0 is the seed files themselves."""
    experience: tuple[Experience, ...] = ()
    """What was learned and is not tentative: it says where to look next, never what is right."""
    drafts: dict[str, Contract] = field(default_factory=dict)
    """Contracts that no gate has run: coverage names them in its gaps, and nothing else sees them."""


def read_contract(path: Path) -> Contract:
    """A contract file."""
    return read_text_row(path, Contract)


def read_text_row(path: Path, kind: type[R]) -> R:
    """A row of a table with a `text`, from its file."""
    return parse_text_row(path, _content(path), kind)


def read_yaml_row(path: Path, kind: type[R]) -> R:
    """A row that is one YAML mapping, from its file."""
    return parse_yaml_row(path, _content(path), kind)


def read_fragment(path: Path) -> Fragment:
    """A fragment file."""
    return parse_fragment(path, _content(path))


def read_row(table: str, path: Path) -> Row:
    """A row of a table that has files, from its file."""
    return parse_row(table, path, _content(path))


def parse_row(table: str, path: Path, content: str) -> Row:
    """A row of a table that has files, from what its file holds."""
    if SUFFIXES[table] == ".py":
        return parse_fragment(path, content)
    parse = parse_text_row if SUFFIXES[table] == ".md" else parse_yaml_row
    return parse(path, content, TABLES[table])


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KnowledgeFileError(f"{path} can't be read: {error}") from error


def parse_text_row(path: Path, content: str, kind: type[R]) -> R:
    """A row of a table with a `text`: a line ---, YAML front matter, a line ---, the text.

    A text that surrounding blank space belongs to stands in the front matter instead, as `text`.
    """
    lines = content.split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        raise KnowledgeFileError(f"{path}: the file starts with YAML front matter between two lines of ---")
    end = lines.index("---", 1)
    fields, body = _mapping(path, "\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()
    if body and "text" in fields:
        raise KnowledgeFileError(f"{path}: the text stands twice, in the front matter and below it")
    return _record(path, kind, {"id": path.stem, "text": body + "\n", **fields})


def parse_yaml_row(path: Path, content: str, kind: type[R]) -> R:
    """A row that is one YAML mapping."""
    return _record(path, kind, {"id": path.stem, **_mapping(path, content)})


def parse_fragment(path: Path, content: str) -> Fragment:
    """A fragment: front matter in comment lines between `# ---` and `# ---`, imports, code.

    The row keeps the imports and what stands below the last of them: anything else above it is refused.
    """
    lines = content.split("\n")
    if lines[0] != "# ---" or "# ---" not in lines[1:]:
        raise KnowledgeFileError(f"{path}: a fragment starts with front matter in comments between two lines of # ---")
    end = lines.index("# ---", 1)
    fields = _mapping(path, "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[1:end]))
    blank = [""] * (end + 1)  # so that lines have the numbers that they have in the file
    imports, code = split_imports([*blank, *lines[end + 1 :]], path)
    return _record(path, Fragment, {"id": path.stem, **fields, "imports": imports, "code": code})


def split_imports(lines: list[str], path: Path) -> tuple[list[str], str]:
    """The import lines at the top of a fragment, and the code below them.

    Raises KnowledgeFileError for anything but imports above the last one of the module, which neither would hold.
    """
    source = "\n".join(lines)
    try:
        tree = ast.parse(source)
        last = max((_last_line(node) for node in tree.body if _is_import(node)), default=0)
        comments = [token for token in _tokens(source) if token.type == tokenize.COMMENT and token.start[0] <= last]
    except (*NO_PYTHON, tokenize.TokenError) as error:
        raise KnowledgeFileError(f"{path}: the code does not parse: {error}") from error
    lost = {node.lineno: "a statement" for node in tree.body if node.lineno <= last and not _is_import(node)}
    lost |= {token.start[0]: "a comment" for token in comments}
    if lost:
        line = min(lost)
        raise KnowledgeFileError(
            f"{path}:{line}: {lost[line]} stands at or above the last import, which ends in line {last}: only imports "
            f"may stand there ({len(lost)} lines do not)"
        )
    imports = [ast.unparse(node) for node in tree.body if _is_import(node)]
    return imports, "\n".join(lines[last:]).strip("\n") + "\n"


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _tokens(source: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def read_knowledge(root: Path = KNOWLEDGE) -> Knowledge:
    """What generation may use of the files below `root`. Raises KnowledgeFileError for a bad file or a dangling
    reference."""
    contracts = {c.id: c for c in map(read_contract, sorted((root / "contracts").glob("*.md")))}
    fragments = {f.id: f for f in map(read_fragment, sorted((root / "fragments").glob("*.py")))}
    for fragment in fragments.values():
        if fragment.contract not in contracts:
            raise KnowledgeFileError(f"fragment {fragment.id}: there is no contract {fragment.contract!r}")
    for contract in contracts.values():
        for name in contract.requires:
            if name not in contracts:
                raise KnowledgeFileError(f"contract {contract.id}: requires the unknown contract {name!r}")
    return Knowledge(
        of_status(contracts, "verified"), of_status(fragments, "verified"), drafts=of_status(contracts, "draft")
    )


def of_status(rows: Mapping[str, R], status: Status) -> dict[str, R]:
    """The rows of one status, by id."""
    return {id: row for id, row in rows.items() if row.status == status}


def _mapping(path: Path, text: str) -> dict[str, Any]:
    try:
        fields = yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of no calendar; brackets without end
        raise KnowledgeFileError(f"{path} is no YAML: {error}") from error
    if not isinstance(fields, dict):
        raise KnowledgeFileError(f"{path} holds no mapping of fields")
    return fields


def _record(path: Path, kind: type[R], fields: dict[str, Any]) -> R:
    layer = {"layer": "contract"} if kind.model_fields["layer"].is_required() else {}
    try:
        return kind.model_validate(layer | fields)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise KnowledgeFileError(f"{path}: {details}") from error
