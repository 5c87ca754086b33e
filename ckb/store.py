"""The versioned store: immutable Parquet files under data/, one manifest a version under versions/.

    root/versions/0000000042.json       created exactly once: this creation is the commit
    root/data/<table>-<commit>.parquet  written before it, never changed
    root/log/0000000064.json            copies of the manifests of 64 versions, for reading the log
    root/tags/<name>.json               names of versions, created the same way

Any number of processes may read and write at once. Readers see whole versions. An append takes the next free version
number, whoever came first; an overwrite whose parent has moved raises Conflict.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json, to_json

from ckb import parquet
from ckb.commit import Commit, Conflict
from ckb.errors import Damaged, PlaceError, UserError
from ckb.hashing import sha256
from ckb.manifest import Closing, DataFile, Manifest, Operation, State, TableState
from ckb.records import Row
from ckb.schemas import TABLES
from ckb.schemas.arrow import from_arrow, schema_of, to_arrow, unknown_columns
from ckb.storage import Place, put_recognised, storage_at
from ckb.versions import Versions, now

__all__ = ["Conflict", "Store", "Version"]

R = TypeVar("R", bound=Row)
Version = int | str | None
"""A version number, the name of a tag, or None for the newest."""

LONGEST_TAG = 100
TAG_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_TAG - 1}}}")


class Store:
    """One knowledge base. Opens what is at `root`; `Store.create` makes a new one."""

    def __init__(self, root: Place, tables: Mapping[str, type[Row]] = TABLES):
        """`tables` maps each table's name to its record. Raises UserError if there is no store at `root`."""
        self.storage = storage_at(root)
        self.tables = tables
        self.versions = Versions(self.storage)

    @classmethod
    def create(cls, root: Place, tables: Mapping[str, type[Row]] = TABLES, *, exist_ok: bool = False) -> "Store":
        """Make an empty store: version 0. Raises UserError if there is one already, unless that is `exist_ok`."""
        storage = storage_at(root)
        first = Manifest(version=0, id=uuid.uuid4().hex, operation="create", message="empty", by="store", at=now())
        if not Versions.create(storage, first) and not exist_ok:
            raise UserError(f"there is a knowledge base at {storage} already")
        return cls(storage, tables)

    @property
    def latest(self) -> int:
        """Number of the newest version."""
        return self.versions.newest().version

    def log(self) -> list[Manifest]:
        """Every version's manifest, newest first."""
        return self.versions.log()

    # Reading

    @overload
    def rows(self, table: type[R], version: Version = None, where: pc.Expression | None = None) -> list[R]: ...
    @overload
    def rows(self, table: str, version: Version = None, where: pc.Expression | None = None) -> list[Row]: ...
    def rows(
        self, table: str | type[Row], version: Version = None, where: pc.Expression | None = None
    ) -> Sequence[Row]:
        """The rows of a table as records; a record class names its table, and gives typed rows."""
        name = table if isinstance(table, str) else next(n for n, kind in self.tables.items() if kind is table)
        state = self.table_state(name, version)
        if unknown := unknown_columns(self.tables[name], state.schema):
            raise UserError(
                f"table {name!r} has the columns {', '.join(unknown)}, which this release does not know: "
                "a newer one wrote them"
            )
        return from_arrow(self.tables[name], self.read_files(state, where=where))

    def read(
        self,
        table: str,
        version: Version = None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of a table at a version, with the table's schema of then."""
        return self.read_files(self.table_state(table, version), columns, where)

    def read_files(
        self, state: TableState, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The rows of a table's files under its schema; `columns` may name the hidden one (ckb.parquet.COMMIT)."""
        full = state.schema.append(pa.field(parquet.COMMIT, pa.string()))
        schema = state.schema if columns is None else pa.schema([full.field(name) for name in columns])
        parts = [parquet.decode(self.data(file), full, columns, where) for file in state.files]
        if columns is None:
            parts = [parquet.visible(part) for part in parts]
        return parquet.concat([schema.empty_table(), *parts])

    def table_state(self, table: str, version: Version = None) -> TableState:
        """Files and schema of a table at a version. Raises UserError for an unknown table or version."""
        empty = TableState((), schema_of(self._kind(table)))
        return self.state(version).tables.get(table, empty)

    def state(self, version: Version = None) -> State:
        """The state at a version. Raises UserError for one that isn't there or that was vacuumed away."""
        if isinstance(version, str):
            tags = self.tags()
            if version not in tags and not version.isdecimal():
                raise UserError(f"there is no tag {version!r}; there are {', '.join(tags) or 'none'}")
            version = tags.get(version) if version in tags else int(version)
        return self.versions.at(version)

    def data(self, file: DataFile) -> pa.Buffer:
        """The bytes of a data file. Raises Damaged for one that is missing or is not as it was written: what is read
        may be written again, under a checksum that says it is right."""
        try:
            data = self.storage.read(file.path)
        except FileNotFoundError:
            raise Damaged(f"{self.storage} is damaged: {file.path}: missing, it had {file.rows} rows") from None
        if data.size != file.bytes:
            raise Damaged(f"{self.storage} is damaged: {file.path}: {data.size} bytes, the manifest says {file.bytes}")
        if sha256(memoryview(data)) != file.sha256:
            raise Damaged(f"{self.storage} is damaged: {file.path}: the checksum does not fit the content")
        return data

    # Writing

    def append(self, tables: Mapping[str, Sequence[Row]], *, message: str, by: str, parent: int | None = None) -> int:
        """Add rows, all in one new version, and return its number. Their ids must be new to their tables.

        It rebases on whatever was committed meanwhile, unless `parent` says that it must follow that very version:
        then Conflict is raised when the store has moved.
        """
        new = {name: self._arrow(name, rows) for name, rows in tables.items() if rows}
        return self._commit("append", new, {}, message=message, by=by, parent=parent)

    def overwrite(self, tables: Mapping[str, Sequence[Row]], *, parent: int, message: str, by: str) -> int:
        """Replace the rows of the same ids, add the others, all in one new version made against version `parent`.

        Raises Conflict(expected, found) when the store is no longer at `parent`.
        """
        state = self.versions.newest()
        if state.version != parent:
            raise Conflict(parent, state.version)
        new, removed = {}, {}
        for name, rows in tables.items():
            if rows:
                kept, removed[name] = self._survivors(state.tables.get(name), [row.id for row in rows])
                new[name] = parquet.concat([*kept, self._arrow(name, rows)])
        return self._commit("overwrite", new, removed, message=message, by=by, parent=parent)

    def merge_files(self, table: str, files: Sequence[DataFile], *, parent: int, message: str, by: str) -> int:
        """Put one clustered file in the place of several of version `parent` (see ckb.compaction). No row changes.

        It rebases. Raises Conflict when one of the files has been replaced meanwhile.
        """
        rows = parquet.clustered(parquet.concat([parquet.whole(self.data(file)) for file in files]))
        removed = {table: tuple(file.path for file in files)}
        return self._commit("compact", {table: rows}, removed, message=message, by=by, parent=parent)

    def close_below(self, below: int, *, message: str, by: str) -> int:
        """A version that says: a vacuum is about to raise the horizon to `below`, nobody tags what is older."""
        closing = Closing(below=below, since=0)
        return self._commit("vacuum", {}, {}, message=message, by=by, parent=None, closing=closing)

    def raise_horizon(self, horizon: int, floor: float, *, message: str, by: str, parent: int | None = None) -> int:
        """A version that says: what is older than version `horizon` can no longer be read, and files of no version that
        are older than `floor`, in seconds since the epoch, are deleted (see ckb.maintenance).

        `parent` is the version of `close_below`. Raises Conflict if another vacuum has begun since.
        """
        bounds = {"horizon": horizon, "floor": floor}
        return self._commit("vacuum", {}, {}, message=message, by=by, parent=parent, **bounds)

    def tag(self, name: str, version: Version = None) -> int:
        """Name a version for good, and return its number. Raises UserError for a bad or taken name, and for a version
        that a vacuum is closing."""
        if not TAG_NAME.fullmatch(name) or name.isdecimal():
            raise UserError(
                f"a tag is a word of at most {LONGEST_TAG} letters, digits, dots, dashes and underscores; "
                f"{name[: LONGEST_TAG + 1]!r} was given"
            )
        number = self._open_to_tags(self.state(version).version)
        path = f"tags/{name}.json"
        if not put_recognised(self.storage, path, to_json({"version": number, "at": now(), "id": uuid.uuid4().hex})):
            raise UserError(f"the tag {name!r} is taken by version {self.tags()[name]}")
        try:
            return self._open_to_tags(number)  # a vacuum in between either sees the tag or is seen here
        except UserError:
            self.storage.delete(path)
            raise

    def tags(self) -> dict[str, int]:
        """Tag -> version."""
        paths = [s.path for s in self.storage.list("tags") if s.path.endswith(".json")]
        return {path.removeprefix("tags/").removesuffix(".json"): self.tagged(path) for path in paths}

    def tagged(self, path: str) -> int:
        """The version that the file of a tag names. Raises Damaged if it names none."""
        try:
            return int(from_json(self.storage.read(path).to_pybytes())["version"])
        except (ValueError, KeyError, TypeError, PlaceError) as error:
            raise Damaged(f"{self.storage} is damaged: {path} names no version") from error

    # Inside

    def _open_to_tags(self, number: int) -> int:
        """The version. Raises UserError if a vacuum has closed it, or is about to."""
        self.state(number)
        closing = self.versions.newest().closing
        if closing is not None and number < closing.below:
            raise UserError(
                f"version {number} can't be tagged: a vacuum is closing the versions below {closing.below}; if it was "
                "killed, another vacuum ends what it began"
            )
        return number

    def _kind(self, table: str) -> type[Row]:
        if table not in self.tables:
            raise UserError(f"there is no table {table!r}; there are {', '.join(self.tables)}")
        return self.tables[table]

    def _arrow(self, table: str, rows: Sequence[Row]) -> pa.Table:
        kind = self._kind(table)
        if strangers := {type(row).__name__ for row in rows if type(row) is not kind}:
            raise TypeError(f"table {table} holds {kind.__name__}, not {', '.join(sorted(strangers))}")
        if (different := len({row.id for row in rows})) < len(rows):
            raise ValueError(f"{len(rows)} rows for {table} have only {different} different ids")
        return to_arrow(kind, rows)

    def _survivors(self, table: TableState | None, ids: Sequence[str]) -> tuple[list[pa.Table], tuple[str, ...]]:
        """The rows to keep of the files that hold any of `ids`, and the paths of these files."""
        kept, removed = [], []
        for file in table.files if table else ():
            rest, hit = parquet.split(parquet.whole(self.data(file)), ids)
            if hit:
                kept.append(rest)
                removed.append(file.path)
        return kept, tuple(removed)

    def _commit(
        self,
        operation: Operation,
        new: Mapping[str, pa.Table],
        removed: Mapping[str, tuple[str, ...]],
        *,
        message: str,
        by: str,
        parent: int | None,
        **bounds: Any,
    ) -> int:
        if not new and operation != "vacuum":
            raise ValueError("a commit needs at least one row")
        for name, text in (("message", message), ("author", by)):
            if not _is_utf8(text):
                raise UserError(f"the {name} of a commit must be text that UTF-8 can hold; {text!r} was given")
        id = uuid.uuid4().hex
        draft = Manifest(version=0, id=id, operation=operation, message=message, by=by, at=now(), **bounds)
        return Commit(draft, new, removed, parent).carry_out(self.versions)


def _is_utf8(text: str) -> bool:
    """Whether a file can hold the text: half of a surrogate pair, as names of files may have them, is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
