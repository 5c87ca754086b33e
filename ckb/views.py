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


COLUMNS = ("gate", "level", "stage")
"""Fields that a listing of a table shows beside what every row has, where its rows have them."""
SAYING = ("title", "text", "description", "target", "definition")
"""Fields that say what a row is about, the first that it has: some tables have no titles."""


def columns(store: Store, table: str) -> tuple[str, ...]:
    """Which of COLUMNS the rows of a table have."""
    return tuple(name for name in COLUMNS if name in store.tables[table].model_fields)


def headline(row: Row) -> str:
    """What a row says, in a line: an experience with its effect, else its title, or a sentence of what it has."""
    if isinstance(row, Experience):
        interval = f" [{row.interval[0]:+.0%}, {row.interval[1]:+.0%}]" if row.interval else ""
        effect = f", {row.metric or 'speed'} {row.effect:+.0%}{interval}" if row.effect is not None else ""
        return f"{row.title}{effect} ({row.signal})"
    return next((first_sentence(text) for name in SAYING if (text := getattr(row, name, ""))), "")


def first_sentence(text: str) -> str:
    """In one line. A full stop ends a sentence only before a space: 0.5 does not."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def show_row(store: Store, table: str, id: str, version: Version = None) -> Row:
    """One row, by its id or, of a test contract, by the gate that runs it. Raises UserError if it isn't there."""
    gates = "gate" in columns(store, table) if table in store.tables else False
    for name in ("id", "gate") if gates else ("id",):
        if found := store.rows(table, version, where=pc.field(name) == id):
            return found[0]
    also = " and no gate of that name" if gates else ""
    raise UserError(f"table {table!r} has no row {id!r}{also} at version {store.state(version).version}")


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
