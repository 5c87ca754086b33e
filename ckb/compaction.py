"""Fewer and larger files: many small commits leave many small files, and a reader opens each of them."""

from collections.abc import Iterator, Sequence

from ckb.commit import Conflict
from ckb.manifest import DataFile
from ckb.store import Store

FULL = 131_072
"""Rows that a merged file is filled up to; some hundred MB in memory while it is made. A file of half as many is left
alone, so that a row is rewritten a few times at most, however long the table grows."""
MANY = 256
"""Small files of one table that a reader opens in a quarter of a second."""


def compact(store: Store, *, by: str) -> list[int]:
    """Merge the small files of each table into large ones and return the versions that this made.

    No row changes, blame included, and older versions keep their files (until a vacuum). It may run beside any number
    of writers: an append in between is no obstacle, and files that another one replaced meanwhile are left to it. Each
    merged file is a version of its own.
    """
    state = store.state()
    versions = []
    for table, now in state.tables.items():
        for files in mergeable(now.files):
            message = f"{len(files)} files of {table} merged"
            try:
                versions.append(store.merge_files(table, files, parent=state.version, message=message, by=by))
            except Conflict:
                continue
    return versions


def tidy(store: Store, *, by: str) -> list[int]:
    """Compact when a table has so many small files that reading it is slow. Cheap otherwise: for after a commit."""
    tables = store.state().tables.values()
    if all(sum(file.rows < FULL // 2 for file in table.files) < MANY for table in tables):
        return []
    return compact(store, by=by)


def mergeable(files: Sequence[DataFile], full: int = FULL) -> Iterator[list[DataFile]]:
    """Which files to merge: runs of small ones, in the order of the table, up to `full` rows together."""
    group: list[DataFile] = []
    rows = 0
    for file in files:
        if file.rows >= full // 2:
            continue
        if rows + file.rows > full:
            if len(group) > 1:
                yield group
            group, rows = [], 0
        group.append(file)
        rows += file.rows
    if len(group) > 1:
        yield group
