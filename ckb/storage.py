"""The one storage primitive that commits rest on: a file that is created whole, exactly once, or not at all."""

import errno
import fcntl
import os
import random
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ckb.errors import PlaceError

PATIENCE_S = 0.5
"""How long a writer waits for its turn. A holder that was stopped or hangs holds the others up this long, no longer."""
LOOK_S = 0.002
"""Mean time between two looks whether it is one's turn: a fraction of what a commit takes."""
FULL = {errno.ENOSPC, errno.EDQUOT}
MENDABLE = FULL | {
    errno.EACCES,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}
"""What a file system says when it is the place that is wrong, and nothing of ours."""


def put_if_absent(path: Path, data: bytes, linked: Callable[[], None] = lambda: None) -> None:
    """Create `path` with `data`, whole and on disk, or raise FileExistsError and leave the file that is there.

    A temporary file beside it is written and fsync'd, then linked to its name: a hard link is the only local call that
    is atomic, publishes a complete file and refuses an existing name. `linked` is called once others can see the file;
    then the folder is fsync'd, so that the name survives.
    """
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
        linked()
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
        """Create the file whole or raise FileExistsError. Never emulated by a check and a write.

        Any other OSError leaves open whether the file was created: the reply may be what was lost.
        """

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file. Raises FileNotFoundError."""

    def modified(self, path: str) -> float:
        """When a file was written, by the clock of the storage: seconds since the epoch. Raises FileNotFoundError."""

    def list(self, folder: str) -> list[Stored]:
        """The files of a folder, sorted by name, temporary ones (.name) included; a missing folder is empty."""

    def delete(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""

    def turn(self) -> AbstractContextManager[None]:
        """Around the creation of a version: writers that can see each other take turns. Nothing is safe because of it;
        without it most of the writers at work at once write and fsync a manifest that another one's forestalls."""


Place = Path | str | Storage
"""Where a store is: a folder, the URL of an object store (s3://bucket/prefix), or a Storage that is open already."""


def storage_at(place: Place) -> Storage:
    """The storage at a place. Raises UserError for a URL that can't be used."""
    if isinstance(place, Path):
        return LocalStorage(place)
    if not isinstance(place, str):
        return place
    if "://" not in place:
        return LocalStorage(Path(place))
    from ckb.object_storage import ObjectStorage  # an extra: only who names a URL needs it

    return ObjectStorage(place)


def put_recognised(storage: Storage, path: str, data: bytes) -> bool:
    """Create a file whose content is its writer's alone (it holds a random id), and say whether it is ours.

    It is ours too when it was created and the reply was lost, or when the client's own second try met the file of its
    first. Whatever the reply was, what is stored there decides. Raises OSError when nothing was stored.
    """
    try:
        storage.put_if_absent(path, data)
    except OSError as error:
        if _stored(storage, path) == data:
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def clock(storage: Storage) -> float:
    """The time of the storage, which dates its files: seconds since the epoch. That of this machine may be wrong."""
    path = f"data/.{uuid.uuid4().hex}.tmp"
    storage.put_if_absent(path, b"")
    try:
        return storage.modified(path)
    finally:
        storage.delete(path)


def _stored(storage: Storage, path: str) -> bytes | None:
    try:
        return bytes(storage.read(path).to_pybytes())
    except FileNotFoundError:
        return None


class LocalStorage:
    """A folder of a local or shared POSIX file system that has hard links."""

    def __init__(self, root: Path):
        self.root = root
        self._turns = threading.local()

    def put_if_absent(self, path: str, data: bytes) -> None:
        target = self.root / path
        with self._errors("write", path):
            make_folder(target.parent)
            try:
                put_if_absent(target, data, self._end_turn)
            except FileNotFoundError as error:
                raise PlaceError(
                    f"can't write {target}: its temporary file was removed meanwhile; nothing was written, try again"
                ) from error

    def read(self, path: str) -> pa.Buffer:
        with self._errors("read", path):
            return pa.py_buffer((self.root / path).read_bytes())

    def modified(self, path: str) -> float:
        with self._errors("read", path):
            return (self.root / path).stat().st_mtime

    def list(self, folder: str) -> list[Stored]:
        with self._errors("list", folder):
            try:
                entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                return []
            found = []
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)  # a link that leads nowhere is an entry like another
                except FileNotFoundError:
                    continue  # a temporary file that its writer removed in between
                if not stat.S_ISDIR(status.st_mode):
                    found.append(Stored(f"{folder}/{entry.name}", status.st_mtime))
            return found

    def delete(self, path: str) -> None:
        with self._errors("delete", path):
            (self.root / path).unlink(missing_ok=True)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A file lock, which the kernel lets go of when its holder is killed. Whoever has waited long goes ahead.

        It ends as soon as a file is linked: the next writer can build on it while its folder is still being fsync'd,
        since the two names are in one folder, and the second can't be on disk without the first.
        """
        with self._errors("open", ".turn"):
            flags = os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK  # a FIFO would wait for somebody to write into it
            self._turns.handle = handle = os.open(self.root / ".turn", flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise PlaceError(f"{self.root}/.turn is no plain file: remove it, a writer makes its own")
            until = time.monotonic() + PATIENCE_S
            while not _locked(handle) and time.monotonic() < until:
                time.sleep(random.uniform(0.5, 1.5) * LOOK_S)
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        handle: int | None = getattr(self._turns, "handle", None)
        if handle is not None:
            self._turns.handle = None
            os.close(handle)

    @contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        """What the file system refuses as a PlaceError that names this place, which need not be on the disk of home."""
        try:
            yield
        except PlaceError:
            raise
        except OSError as error:
            if error.errno not in MENDABLE:
                raise
            detail = str(error.strerror)
            if error.errno in FULL:
                status = os.statvfs(next(folder for folder in (self.root, *self.root.parents) if folder.exists()))
                free = status.f_bavail * status.f_frsize / 2**30
                detail += f": the disk is full: {free:.1f} GiB are left at {self.root}; free some there"
            raise PlaceError(f"can't {verb} {self.root / path}: {detail}") from error

    def __str__(self) -> str:
        return str(self.root)


def _locked(handle: int) -> bool:
    """Try to take the lock. A file system without locks counts as taken: the writers then just race."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
