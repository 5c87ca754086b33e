"""One version of the store: the manifest that is its commit, and the state that a chain of manifests adds up to."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.hashing import sha256, sha256_json

FORMAT = 1
CHECKPOINT_EVERY = 64
"""Every 64th manifest holds the whole state, so that no version is more than 63 manifests away from one; the 64
manifests up to it are copied into one page of the log."""
Operation = Literal["create", "append", "overwrite", "compact", "vacuum"]


class DataFile(Frozen):
    """One immutable Parquet file."""

    path: str
    rows: int
    bytes: int
    sha256: str


class Change(Frozen):
    """What a version does to one table."""

    rows: int = 0
    """Rows that it added or replaced: the added file may also hold untouched rows of a removed one."""
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    """Paths of files that no longer belong to the table; their surviving rows are in an added file."""
    arrow: str | None = None
    """The table's new Arrow schema (IPC, base64), when this version changed it."""


class Snapshot(Frozen):
    """One table, whole."""

    files: tuple[DataFile, ...]
    arrow: str


class Closing(Frozen):
    """A vacuum is about to raise the horizon: from this version on no version below `below` can be tagged, and the
    tags that are there by now are looked at once more before the horizon is raised."""

    below: int
    since: int
    """The version that says so. Only the vacuum that made it may raise the horizon; a later one takes over."""


class Manifest(Frozen):
    """One version. Its creation is the commit."""

    format: int = FORMAT
    version: int
    id: str
    """Made by the writer before the first try: how it recognises its own commit."""
    operation: Operation
    message: str
    by: str
    at: str
    """ISO 8601, UTC."""
    changes: dict[str, Change] = Field(default_factory=dict)
    horizon: int = 0
    """Oldest version whose rows can still be read (vacuum raises it)."""
    floor: float | None = None
    """A vacuum deletes data files of no version that the storage dates before this, in seconds since the epoch: a
    commit whose files are older can't be published any more."""
    closing: Closing | None = None
    checkpoint: dict[str, Snapshot] | None = None


@dataclass(frozen=True)
class TableState:
    """One table at one version."""

    files: tuple[DataFile, ...]
    schema: pa.Schema


@dataclass(frozen=True)
class State:
    """Everything at one version."""

    version: int = -1
    tables: dict[str, TableState] = field(default_factory=dict)
    horizon: int = 0
    floor: float | None = None
    closing: Closing | None = None

    def after(self, manifest: Manifest) -> "State":
        """The state that `manifest` leads to. Raises ValueError for a schema that can't be read."""
        if manifest.checkpoint is not None:
            tables = {t: _table(s) for t, s in manifest.checkpoint.items()}
        else:
            tables = dict(self.tables)
            for name, change in manifest.changes.items():
                tables[name] = _apply(tables.get(name), change)
        return State(manifest.version, tables, manifest.horizon, manifest.floor, manifest.closing)

    def checkpoint(self) -> dict[str, Snapshot]:
        return {name: Snapshot(files=t.files, arrow=pack_schema(t.schema)) for name, t in self.tables.items()}


def with_checkpoint(manifest: Manifest, parent: State) -> Manifest:
    """The manifest as it is to be written: every 64th holds the state that it leads to."""
    if manifest.version % CHECKPOINT_EVERY:
        return manifest
    return manifest.model_copy(update={"checkpoint": parent.after(manifest).checkpoint()})


def _table(snapshot: Snapshot) -> TableState:
    return TableState(snapshot.files, unpack_schema(snapshot.arrow))


def _apply(table: TableState | None, change: Change) -> TableState:
    files = table.files if table else ()
    if change.remove:
        removed = set(change.remove)
        files = tuple(file for file in files if file.path not in removed)
    schema = unpack_schema(change.arrow) if change.arrow else table.schema if table else pa.schema([])
    return TableState(files + change.add, schema)


def pack_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpack_schema(text: str) -> pa.Schema:
    """Raises ValueError for what is no schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"a table's Arrow schema can't be read: {error}") from error


def encode_manifest(manifest: Manifest) -> bytes:
    """JSON with a checksum of everything else in it."""
    fields = manifest.model_dump(mode="json", exclude_none=True)
    return json.dumps({**fields, "checksum": sha256_json(fields)}, ensure_ascii=False).encode()


def decode_manifest(data: bytes, *, checkpoint: bool = True) -> Manifest:
    """Read a manifest, without its checkpoint if that isn't wanted.

    Raises UserError for an unknown format number, ValueError for what isn't as it was written.
    """
    fields = from_json(data)
    if not isinstance(fields, dict):
        raise ValueError(f"it is no JSON object but a {type(fields).__name__}")
    _refuse_unknown(fields.get("format"), fields.get("version"))
    if fields.pop("checksum", None) != sha256_json(fields):
        raise ValueError("the checksum does not fit the content")
    if not checkpoint:
        fields.pop("checkpoint", None)
    return Manifest.model_validate(fields)


PAGE = TypeAdapter(list[Manifest])


def encode_page(manifests: list[Manifest]) -> bytes:
    """A page of the log: manifests without their checkpoints, and the checksum of them all."""
    text = PAGE.dump_json(manifests, exclude_none=True)
    return _page_head(text) + text + b"}"


def decode_page(data: bytes, last: int) -> list[Manifest]:
    """The manifests of the page that ends with version `last`.

    Raises UserError for an unknown format number, ValueError for what isn't as it was written.
    """
    text = data[len(_page_head(b"")) : -1]
    if data != _page_head(text) + text + b"}":
        raise ValueError("the checksum does not fit the content")
    manifests = PAGE.validate_json(text)
    for manifest in manifests:
        _refuse_unknown(manifest.format, manifest.version)
    if [manifest.version for manifest in manifests] != list(range(last - CHECKPOINT_EVERY + 1, last + 1)):
        raise ValueError(f"it does not hold the versions {last - CHECKPOINT_EVERY + 1} to {last}")
    return manifests


def _page_head(text: bytes) -> bytes:
    return f'{{"checksum":"{sha256(text)}","manifests":'.encode()


def _refuse_unknown(format: Any, version: Any) -> None:
    if format != FORMAT:
        raise UserError(
            f"version {version} of the knowledge base is written in format {format}; "
            f"this release reads format {FORMAT}: install a release that knows it"
        )
