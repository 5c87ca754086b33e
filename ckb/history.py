"""What changed between two versions, and which commit a row came from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc

from ckb.errors import Damaged, UserError
from ckb.manifest import Manifest, TableState
from ckb.parquet import COMMIT
from ckb.store import Store, Version


@dataclass(frozen=True)
class RowChange:
    """One row that differs between two versions."""

    table: str
    id: str
    kind: Literal["added", "removed", "changed"]
    fields: dict[str, tuple[Any, Any]]
    """Field -> (before, after), for those that differ; None where there is no value."""


def diff(store: Store, a: Version, b: Version) -> list[RowChange]:
    """The rows that differ from version `a` to version `b`, by table and id. Files that both share aren't read."""
    before, after = store.state(a), store.state(b)
    changes: list[RowChange] = []
    for table in store.tables:
        old, new = before.tables.get(table), after.tables.get(table)
        shared = {file.path for file in old.files} & {file.path for file in new.files} if old and new else set()
        changes += _changes(table, _rows(store, old, shared), _rows(store, new, shared))
    return changes


def _rows(store: Store, state: TableState | None, shared: set[str]) -> dict[str, dict[str, Any]]:
    if state is None:
        return {}
    own = TableState(tuple(file for file in state.files if file.path not in shared), state.schema)
    return {row["id"]: row for row in store.read_files(own).to_pylist()}


def _changes(table: str, old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> Iterator[RowChange]:
    for id in sorted(old.keys() | new.keys()):
        before, after = old.get(id, {}), new.get(id, {})
        fields = {
            name: (before.get(name), after.get(name))
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        }
        if fields:
            yield RowChange(table, id, "added" if not before else "changed" if after else "removed", fields)


def blame(store: Store, table: str, id: str, version: Version = None) -> Manifest:
    """The commit that wrote the row as it is at a version. Raises UserError if there is no such row.

    The row knows the commit's id. Its number nobody knew when the row was written, so that the log is read from its
    newest page on until the id turns up.
    """
    found = store.read(table, version, columns=["id", COMMIT], where=pc.field("id") == id)
    if not found.num_rows:
        raise UserError(f"table {table!r} has no row {id!r} at version {store.state(version).version}")
    commit = found[COMMIT][0].as_py()
    for manifest in store.versions.history():
        if manifest.id == commit:
            return manifest
    raise Damaged(f"{store.storage} is damaged: no version is the commit {commit} that wrote {id!r} of {table!r}")
