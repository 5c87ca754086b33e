"""What the command line and the report show of a store, as data."""

from dataclasses import dataclass

import pyarrow.compute as pc

from ckb.errors import UserError
from ckb.records import Row
from ckb.schemas import Experience
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
