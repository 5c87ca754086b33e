"""A commit: data files that are written once, and tries to be the next version until one works or none can."""

import random
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from ckb import parquet
from ckb.errors import UserError
from ckb.hashing import sha256
from ckb.manifest import Change, DataFile, Manifest, State, pack_schema, with_checkpoint
from ckb.storage import Storage, put_recognised
from ckb.versions import Versions

LONGEST_PAUSE_S = 0.1
"""Between two tries of a writer that others forestall."""


class Conflict(Exception):
    """A commit that was made against version `expected`, when the store had moved on to `found`."""

    def __init__(self, expected: int, found: int):
        self.expected, self.found = expected, found
        super().__init__(f"the commit was made against version {expected}, the knowledge base is at version {found}")


@dataclass(frozen=True)
class Commit:
    """What is to become a version."""

    draft: Manifest
    """Its id is the commit's own; number, changes and checkpoint depend on what others commit meanwhile."""
    new: Mapping[str, pa.Table]
    """Table -> the rows of the file that it gets; those that are not yet marked with a commit are the new ones."""
    removed: Mapping[str, tuple[str, ...]]
    """Table -> paths of the files whose rows are in the new one."""
    parent: int | None
    """The version that it was made against; None: whatever is the newest."""

    def carry_out(self, versions: Versions) -> int:
        """The number of the version that it became.

        Raises Conflict, and UserError for columns that don't fit and for a commit that took so long that a vacuum may
        have deleted its files; nothing was published then.
        """
        known = versions.newest().floor
        files = self._write_all(versions.storage)
        attempt = 0
        while (version := self._try(versions, files, known)) is None:
            attempt += 1
            time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.002 * 2 ** min(attempt, 10))))
        versions.write_page(version)
        return version

    def _try(self, versions: Versions, files: Mapping[str, DataFile], known: float | None) -> int | None:
        """Once: the number of the version, or None if another commit took it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(versions.storage.turn())
                state = versions.newest()
                self._check_parent(state)
                if state.floor != known:
                    _check_age(versions.storage, files, state)
                manifest = self._following(state, files)
            except (Conflict, UserError):
                _discard(versions.storage, files)
                raise
            return manifest.version if versions.publish(manifest) else None

    def _following(self, state: State, files: Mapping[str, DataFile]) -> Manifest:
        """The manifest of the version after `state`."""
        number, closing = state.version + 1, state.closing
        if self.draft.operation == "vacuum":  # it ends what another one began, and begins its own
            closing = self.draft.closing and self.draft.closing.model_copy(update={"since": number})
        following = {
            "version": number,
            "changes": {name: self._change(name, file, state) for name, file in files.items()},
            "horizon": max(self.draft.horizon, state.horizon),
            "floor": max((f for f in (self.draft.floor, state.floor) if f is not None), default=None),
            "closing": closing,
        }
        return with_checkpoint(self.draft.model_copy(update=following), state)

    def _check_parent(self, state: State) -> None:
        """A compaction can follow any state in which the files that it merged are still there, and a vacuum any in
        which what it said before (version `parent`) still holds."""
        if self.parent is None:
            return
        there = {file.path for table in state.tables.values() for file in table.files}
        merged = {path for paths in self.removed.values() for path in paths}
        rebases = {
            "compact": merged <= there,
            "vacuum": state.closing is not None and state.closing.since == self.parent,
        }.get(self.draft.operation, False)
        if state.version != self.parent and not rebases:
            raise Conflict(self.parent, state.version)

    def _change(self, name: str, file: DataFile, state: State) -> Change:
        rows = self.new[name]
        return Change(
            rows=parquet.unmarked(rows),
            add=(file,),
            remove=self.removed.get(name, ()),
            arrow=_new_schema(name, rows, state),
        )

    def _write_all(self, storage: Storage) -> dict[str, DataFile]:
        files: dict[str, DataFile] = {}
        try:
            for name, rows in self.new.items():
                files[name] = self._write(storage, name, rows)
        except OSError:
            _discard(storage, files)
            raise
        return files

    def _write(self, storage: Storage, table: str, rows: pa.Table) -> DataFile:
        data = parquet.encode(rows, self.draft.id)
        path = f"data/{table}-{self.draft.id}.parquet"
        if not put_recognised(storage, path, data):
            raise FileExistsError(f"{storage}/{path} holds something else than what was written")
        return DataFile(path=path, rows=rows.num_rows, bytes=len(data), sha256=sha256(data))


def _discard(storage: Storage, files: Mapping[str, DataFile]) -> None:
    """Delete files that no manifest names, since nothing was published. What stays is a vacuum's to find."""
    for file in files.values():
        with suppress(OSError):
            storage.delete(file.path)


def _check_age(storage: Storage, files: Mapping[str, DataFile], state: State) -> None:
    """A vacuum has said since the commit began which files it deletes. Whoever publishes after that must not be one of
    those that it deletes: both are versions of one chain, so that one of the two sees the other."""
    for file in files.values():
        try:
            modified = storage.modified(file.path)
        except FileNotFoundError:
            modified = 0.0
        if state.floor is not None and modified < state.floor:
            begun = datetime.fromtimestamp(modified, UTC).isoformat(timespec="seconds") if modified else "long ago"
            raise UserError(
                f"the commit took too long: it wrote {file.path} at {begun}, and since then a vacuum deletes what no "
                f"version needs and is older than {datetime.fromtimestamp(state.floor, UTC).isoformat()}; "
                "nothing was published: make the commit again"
            )


def _new_schema(name: str, rows: pa.Table, state: State) -> str | None:
    """The table's schema after these rows, if they change it. Raises UserError when a column's type doesn't fit."""
    added = parquet.visible(rows).schema
    if name not in state.tables:
        return pack_schema(added)
    old = state.tables[name].schema
    try:
        schema = pa.unify_schemas([old, added], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UserError(f"the rows don't fit table {name!r} of version {state.version}: {error}") from error
    return None if schema.equals(old) else pack_schema(schema)
