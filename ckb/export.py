"""Renders rows as the files that people read and review, in one canonical form: the way back from `ckb.build`.

Equal rows give equal files, and what a file says is the row and nothing else: a field that has its default is left out,
and so is the date of a seed row, which the store gives it. A row that its file would not give back is refused.
"""

import ast
import io
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ckb.build import read_seed
from ckb.errors import UserError
from ckb.knowledge_files import KNOWLEDGE, NO_PYTHON, SUFFIXES, KnowledgeFileError, parse_row
from ckb.records import Fragment, Row
from ckb.store import Store, Version
from ckb.whole_files import write_files
from ckb.yaml_form import to_yaml

FIRST = ("contract", "title", "layer", "status", "applies_to")
LAST = ("test", "provenance", "created", "text")
"""Fields that come before and after all others, which keep the order of the record."""
FILE_NAME = re.compile(r"[^./\\\0][^/\\\0]*")
MOST_BYTES = 255
"""Of a file's name, on the usual file systems."""


def export_store(store: Store, out: Path, version: Version = None) -> list[Path]:
    """Write the seed's tables at a version below `out`; returns the files. Raises UserError as `export` does."""
    number = store.state(version).version
    return export({table: store.rows(table, number) for table in SUFFIXES}, out)


def export_files(out: Path, root: Path = KNOWLEDGE) -> list[Path]:
    """Write the seed files below `root` in their canonical form below `out`, which may be `root` itself."""
    return export(read_seed(root), out)


def export(rows: Mapping[str, Sequence[Row]], out: Path) -> list[Path]:
    """Write a file for each row below `out`, and return them in order.

    Raises UserError for a row that no file can hold, when `out` holds other files of a table, which would be read as
    rows too, where a link or a folder stands in a file's place, and when there is no room: then nothing is written. All
    files are written elsewhere in `out` first and then take their places, so that none is ever there in part.
    """
    files = render(rows)
    try:
        _check_places(out, files)
        write_files(out, files)
    except OSError as error:
        raise UserError(f"{out}: the {len(files)} files can't be written: {error}") from error
    return [out / name for name in files]


def _check_places(out: Path, files: Mapping[str, str]) -> None:
    """Raises UserError where a file of the tables would not be a file of its own below `out`."""
    places = {out / name.partition("/")[0]: "folder" for name in files} | {out / name: "file" for name in files}
    for place, kind in places.items():
        if place.is_symlink():
            raise UserError(f"{place} is a link, and what it points to is not the export's to write: remove it")
        if place.exists() and not (place.is_dir() if kind == "folder" else place.is_file()):
            raise UserError(f"{place} must be a {kind}, and something else stands there: name another folder")
    others = sorted(path for t, suffix in SUFFIXES.items() for path in (out / t).glob(f"*{suffix}"))
    if strangers := [path for path in others if str(path.relative_to(out)) not in files]:
        raise UserError(
            f"{out} holds {len(strangers)} file(s) that belong to none of these rows ({strangers[0]}): "
            "name an empty folder, or remove them"
        )


def render(rows: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Path below the knowledge folder -> content, by table and id. Raises UserError for a row that no file can hold."""
    files: dict[str, str] = {}
    for name, content in _files(rows):
        if name in files:
            raise UserError(f"two rows would be the file {name}: an id is unique in its table")
        files[name] = content
    return files


def _files(rows: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, str]]:
    for table in sorted(rows):
        for row in sorted(rows[table], key=lambda row: row.id):
            name = file_name(table, row.id)
            content = render_row(table, row)
            _check(table, row, Path(table, name), content)
            yield f"{table}/{name}", content


def file_name(table: str, id: str) -> str:
    """The name of a row's file. Raises UserError for an id that gives none."""
    why = f"table {table}: the id {id!r} is no file name, so the row can't be exported"
    name = f"{id}{SUFFIXES[table]}"
    if not FILE_NAME.fullmatch(id):
        raise UserError(why)
    if (size := len(name.encode("utf-8", "surrogatepass"))) > MOST_BYTES:
        raise UserError(f"{why}: {size} bytes with its {SUFFIXES[table]}, at most {MOST_BYTES} are allowed")
    return name


def render_row(table: str, row: Row) -> str:
    """The content of one row's file."""
    if isinstance(row, Fragment):
        return _fragment(row)
    fields = plain(row)
    if SUFFIXES[table] == ".yaml":
        return to_yaml(fields)
    body = fields["text"]
    if body.strip() and body == body.strip() + "\n" and "\r" not in body:
        del fields["text"]
    else:  # white space that the reader of a body would not give back
        body = ""
    return f"---\n{to_yaml(fields)}---\n{body}"


def plain(record: BaseModel) -> dict[str, Any]:
    """A record as plain values, without the fields that a reader fills in by itself: defaults, and a row's id."""
    dropped = _implied(record) if isinstance(record, Row) else set()
    fields = type(record).model_fields
    names = [name for name in fields if name not in (*FIRST, *LAST)]
    names = [*(n for n in FIRST if n in fields), *names, *(n for n in LAST if n in fields)]
    values = ((name, getattr(record, name)) for name in names if name not in dropped)
    return {name: _plain_value(value) for name, value in values if not _is_default(fields[name], value)}


def _implied(row: Row) -> set[str]:
    """Fields that a file doesn't say: its name is the id, and the store dates what comes from the seed."""
    layer = {"layer"} if type(row).model_fields["layer"].is_required() and row.layer == "contract" else set()
    return {"id", *layer} | ({"created"} if row.provenance.source == "seed" else set())


def _plain_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return plain(value)
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain_value(item) for key, item in value.items()}
    return value


def _is_default(field: FieldInfo, value: Any) -> bool:
    if field.is_required():
        return False
    default = field.get_default(call_default_factory=True)
    return type(value) is type(default) and bool(value == default)


def _fragment(row: Fragment) -> str:
    """Front matter in comments, the imports by origin, the code."""
    fields = {name: value for name, value in plain(row).items() if name not in ("imports", "code")}
    head = [f"# {line}".rstrip() for line in ["---", *to_yaml(fields).rstrip("\n").split("\n"), "---"]]
    blocks = ["\n".join(lines) for _, lines in itertools.groupby(row.imports, _origin)]
    top = "\n".join([*head, "\n\n".join(blocks)]) if blocks else "\n".join(head)
    return f"{top}\n{_gap(row) if blocks else ''}{row.code}"


def _origin(line: str) -> int:
    """0 for an import of the standard library, 1 for one of another package, 2 for one of the engine's own modules."""
    module = line.split()[1]
    if module.startswith("."):
        return 2
    return 0 if module.partition(".")[0] in sys.stdlib_module_names else 1


def _gap(row: Fragment) -> str:
    """The blank lines between imports and code: two before a definition. Code that does not parse is refused later."""
    try:
        body = ast.parse(row.code).body
    except NO_PYTHON:
        return "\n"
    return "\n\n" if body and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else "\n"


def _check(table: str, row: Row, path: Path, content: str) -> None:
    """Raises UserError unless the content gives the row back."""
    try:  # as a file is read: where a carriage return is the end of a line
        back = parse_row(table, path, io.TextIOWrapper(io.BytesIO(content.encode("utf-8")), encoding="utf-8").read())
    except (KnowledgeFileError, UnicodeEncodeError) as error:
        raise UserError(f"{table} {row.id!r} can't be exported: {error}") from error
    dropped = {"created"} if row.provenance.source == "seed" else set()
    names = [name for name in type(row).model_fields if name not in dropped]
    lost = [name for name in names if repr(getattr(back, name)) != repr(getattr(row, name))]
    if lost:
        raise UserError(
            f"{table} {row.id!r} can't be exported: its file would give back another {', '.join(lost)} "
            f"({getattr(back, lost[0])!r} for {getattr(row, lost[0])!r})"
        )
