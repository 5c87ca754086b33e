"""What the command line and the report show of a store, as data."""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
from pydantic_core import to_jsonable_python

from ckb.errors import UserError
from ckb.history import RowChange, diff
from ckb.records import Row
from ckb.schemas import Experience
from ckb.schemas.arrow import field_of
from ckb.store import Store, Version


@dataclass(frozen=True)
class LogLine:
    """One version."""

    version: int
    at: str
    """ISO 8601, UTC."""
    by: str
    operation: str
    message: str
    rows: dict[str, int]
    """Table -> rows that the version added or replaced."""
    tags: tuple[str, ...]


def log_lines(store: Store) -> list[LogLine]:
    """The versions, newest first."""
    tags = store.tags().items()
    return [
        LogLine(
            version=manifest.version,
            at=manifest.at,
            by=manifest.by,
            operation=manifest.operation,
            message=manifest.message,
            rows={table: change.rows for table, change in manifest.changes.items()},
            tags=tuple(name for name, version in tags if version == manifest.version),
        )
        for manifest in store.log()
    ]


def counts(store: Store, version: Version = None) -> dict[str, int]:
    """Table -> its rows at a version."""
    tables = store.state(version).tables
    return {name: sum(f.rows for f in tables[name].files) if name in tables else 0 for name in store.tables}


def show(store: Store, table: str, version: Version = None) -> list[Row]:
    """The rows of a table at a version, by id."""
    return sorted(store.rows(table, version), key=lambda row: row.id)


def headline(row: Row) -> str:
    """What a row says, in a line: an experience with its effect, else the row's title."""
    if isinstance(row, Experience):
        interval = f" [{row.interval[0]:+.0%}, {row.interval[1]:+.0%}]" if row.interval else ""
        effect = f", {row.metric or 'speed'} {row.effect:+.0%}{interval}" if row.effect is not None else ""
        return f"{row.title}{effect} ({row.signal})"
    return str(getattr(row, "title", ""))


def show_row(store: Store, table: str, id: str, version: Version = None) -> Row:
    """One row. Raises UserError if it isn't there."""
    found = store.rows(table, version, where=pc.field("id") == id)
    if not found:
        raise UserError(f"table {table!r} has no row {id!r} at version {store.state(version).version}")
    return found[0]


SHOWN = 40
"""Characters of a value in a line."""
BEFORE = 12
"""Of these, characters before the place where two values part."""


@dataclass(frozen=True)
class DiffLine:
    """One row that differs between two versions."""

    table: str
    id: str
    change: str
    """added, removed or changed."""
    fields: dict[str, tuple[Any, Any]]
    """Field -> (before, after) as JSON values, for those that differ; None where there is no value."""


def diff_lines(store: Store, a: Version, b: Version) -> list[DiffLine]:
    """The rows that differ from version `a` to version `b`, by table and id, with the values of the records."""
    return [_diff_line(store.tables[change.table], change) for change in diff(store, a, b)]


def _diff_line(kind: type[Row], change: RowChange) -> DiffLine:
    fields = {
        name: tuple(to_jsonable_python(field_of(kind, name, value)) for value in values)
        for name, values in change.fields.items()
    }
    return DiffLine(change.table, change.id, change.kind, {name: (old, new) for name, (old, new) in fields.items()})


def shortened(before: Any, after: Any) -> str:
    """Two values in a line, each from a little before the place where they part."""
    old, new = (json.dumps(value, ensure_ascii=False) for value in (before, after))
    parted = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(parted - BEFORE, 0) if max(len(old), len(new)) > SHOWN else 0
    return f"{_window(old, start)} -> {_window(new, start)}"


def _window(text: str, start: int) -> str:
    end = start + SHOWN
    return f"{'...' if start else ''}{text[start:end]}{'...' if len(text) > end else ''}"
