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
from ckb.hashing import sha256_json

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

    def after(self, manifest: Manifest) -> "State":
        """The state that `manifest` leads to."""
        if manifest.checkpoint is not None:
            return State(manifest.version, {t: _table(s) for t, s in manifest.checkpoint.items()}, manifest.horizon)
        tables = dict(self.tables)
        for name, change in manifest.changes.items():
            tables[name] = _apply(tables.get(name), change)
        return State(manifest.version, tables, manifest.horizon)

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
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def encode_manifest(manifest: Manifest) -> bytes:
    """JSON with a checksum of everything else in it."""
    fields = manifest.model_dump(mode="json", exclude_none=True)
    return json.dumps({**fields, "checksum": sha256_json(fields)}, ensure_ascii=False).encode()


def decode_manifest(data: bytes, *, checkpoint: bool = True) -> Manifest:
    """Read a manifest, without its checkpoint if that isn't wanted. Raises UserError for an unknown format number."""
    fields = _fields(data)
    fields.pop("checksum", None)
    if not checkpoint:
        fields.pop("checkpoint", None)
    return Manifest.model_validate(fields)


def checksum_fits(data: bytes) -> bool:
    fields = _fields(data)
    return bool(fields.pop("checksum", None) == sha256_json(fields))


PAGE = TypeAdapter(list[Manifest])


def encode_page(manifests: list[Manifest]) -> bytes:
    """A page of the log: manifests without their checkpoints."""
    return PAGE.dump_json(manifests, exclude_none=True)


def decode_page(data: bytes) -> list[Manifest]:
    """Raises UserError for an unknown format number, ValueError for what is no page."""
    manifests = PAGE.validate_json(data)
    for manifest in manifests:
        _refuse_unknown(manifest.format, manifest.version)
    return manifests


def _fields(data: bytes) -> dict[str, Any]:
    fields = from_json(data)
    if not isinstance(fields, dict):
        raise ValueError(f"it is no JSON object but a {type(fields).__name__}")
    _refuse_unknown(fields.get("format"), fields.get("version"))
    return fields


def _refuse_unknown(format: Any, version: Any) -> None:
    if format != FORMAT:
        raise UserError(
            f"version {version} of the knowledge base is written in format {format}; "
            f"this release reads format {FORMAT}: install a release that knows it"
        )
