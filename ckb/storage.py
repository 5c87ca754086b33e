"""The one storage primitive that commits rest on: a file that is created whole, exactly once, or not at all."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa


def put_if_absent(path: Path, data: bytes) -> None:
    """Create `path` with `data`, whole and on disk, or raise FileExistsError and leave the file that is there.

    A temporary file beside it is written and fsync'd, then linked to its name: a hard link is the only local call that
    is atomic, publishes a complete file and refuses an existing name. The folder is fsync'd so that the name survives.
    """
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and those above it, each on disk. An existing one is left as it is."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Stored:
    """One stored file, as a listing shows it."""

    path: str
    modified: float
    """Seconds since the epoch."""


class Storage(Protocol):
    """What the store asks of the place where it lives. Paths are relative, `folder/name`; a folder is one level."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the file whole or raise FileExistsError. Never emulated by a check and a write."""

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file. Raises FileNotFoundError."""

    def list(self, folder: str) -> list[Stored]:
        """The files of a folder, sorted by name, temporary ones (.name) included; a missing folder is empty."""

    def delete(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""


class LocalStorage:
    """A folder of a local or shared POSIX file system that has hard links."""

    def __init__(self, root: Path):
        self.root = root

    def put_if_absent(self, path: str, data: bytes) -> None:
        target = self.root / path
        make_folder(target.parent)
        put_if_absent(target, data)

    def read(self, path: str) -> pa.Buffer:
        return pa.py_buffer((self.root / path).read_bytes())

    def list(self, folder: str) -> list[Stored]:
        try:
            entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        found = []
        for entry in entries:
            try:
                found.append(Stored(f"{folder}/{entry.name}", entry.stat().st_mtime))
            except FileNotFoundError:
                continue  # a temporary file that its writer removed in between
        return found

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.root)
