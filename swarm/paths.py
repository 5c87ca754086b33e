"""Where things are. Every relative path of a Target is below ENGINESMITH_HOME (default: the current checkout)."""

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ckb.errors import UserError


def home() -> Path:
    """The folder that holds models/, runs/, engines/, store/ and cache/.

    ENGINESMITH_HOME if set (it must exist), otherwise the checkout that this file is in, otherwise the current folder.
    """
    if value := os.environ.get("ENGINESMITH_HOME"):
        folder = Path(value).expanduser()
        if not folder.is_dir():
            raise UserError(f"ENGINESMITH_HOME is {value}, which is no folder on node {os.uname().nodename}")
        return folder.resolve()
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def resolve(path: str) -> Path:
    """An absolute path as it is, a relative one below home()."""
    return home() / Path(path).expanduser()


def models_dir() -> Path:
    return home() / "models"


def store_dir(place: str | None = None) -> Path | str:
    """Where the knowledge base is: `place`, or ENGINESMITH_STORE, a folder or the URL of an object store
    (s3://bucket/prefix) that several machines may share; store/ below home() if neither is set."""
    value = place or os.environ.get("ENGINESMITH_STORE", "")
    return value if "://" in value else resolve(value or "store")


def runs_dir() -> Path:
    return home() / "runs"


def new_run_dir(target_name: str) -> Path:
    """runs/<target>-<date>-<time>, unused so far."""
    stem = f"{target_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = [runs_dir() / stem, *(runs_dir() / f"{stem}-{n}" for n in range(2, 100))]
    return next(path for path in candidates if not path.exists())


def engines_dir() -> Path:
    return home() / "engines"


def cache_dir() -> Path:
    return home() / "cache"


def found_in(folder: Path, names: Iterable[str]) -> str:
    """Where a name was looked for in vain, and what is there: one who stands in another folder must see which it is."""
    return f"in {folder} there are: {', '.join(names) or 'none yet'} (ENGINESMITH_HOME sets where that lies)"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Around code that writes below `folder`: a full disk and missing rights become UserErrors with the numbers."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(disk_full(folder)) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UserError(
                f"can't write {error.filename or folder}: {error.strerror}; set ENGINESMITH_HOME to a folder that you "
                "may write to"
            ) from error
        raise


def disk_full(folder: Path) -> str:
    """What to tell a user whose disk is full."""
    return (
        f"the disk is full: {free_gib(folder):.1f} GiB are left at {folder}; free some, or set ENGINESMITH_HOME to a "
        "folder on a larger disk"
    )


def free_gib(folder: Path) -> float:
    """Free space of the file system that holds `folder` (or would hold it), GiB."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize / 2**30
