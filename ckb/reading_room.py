"""Where sources of other projects may be read at all: inside of evolution, with a purpose, and every opening logged.

    room = ReadingRoom({"transformers": folder}, log=run / "sources.jsonl", role="explorer")
    text = room.read("transformers/models/llama/modeling_llama.py", purpose="which norm precedes the rotation")

In a run with sources off nothing makes one. What was read is material for a contract in words of one's own; what is
generated from it afterwards is generated with sources off, in a sandbox that holds none of them.
"""

import os
import time
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

from ckb.errors import UserError
from ckb.facts import Frozen

SHORTEST_PURPOSE = 12
"""Characters: less is no purpose but a word to get past the question."""


class Reading(Frozen):
    """One source that was opened."""

    package: str
    version: str
    """Of the installed distribution; empty for a folder that is none."""
    path: str
    """Relative to the package's folder."""
    sha256: str
    """Of the file's bytes."""
    purpose: str
    role: str
    at: float
    """Seconds since the epoch."""


class ReadingRoom:
    """Reads files below some roots, and no others."""

    def __init__(self, roots: Mapping[str, Path], log: Path, role: str):
        """`roots`: package -> its folder. `log`: a file of one JSON line a reading, that is added to."""
        self._roots = {name: folder.resolve() for name, folder in roots.items()}
        self._log = log
        self._role = role

    def read(self, path: str, purpose: str) -> str:
        """The text of `package/path/below/it`, logged before it is handed over. Raises UserError for a reading without
        a purpose, and for what is not a plain file below one of the roots: a link is none, wherever it leads."""
        if len(purpose.strip()) < SHORTEST_PURPOSE:
            raise UserError(f"{path} is read for {purpose!r}: say in {SHORTEST_PURPOSE} characters what it is for")
        name, inner = self._located(path)
        try:
            data = (self._roots[name] / inner).read_bytes()
        except OSError as error:
            raise UserError(f"{path} can't be read: {error.strerror}") from error
        self._write(
            Reading(
                package=name,
                version=_version(name),
                path=inner.as_posix(),
                sha256=sha256(data).hexdigest(),
                purpose=purpose.strip(),
                role=self._role,
                at=time.time(),
            )
        )
        return data.decode("utf-8", errors="replace")

    def _located(self, path: str) -> tuple[str, PurePosixPath]:
        """The package and the path below it."""
        name, *parts = PurePosixPath(path).parts or ("",)
        if name not in self._roots:
            raise UserError(f"{path} is in none of the packages that may be read here: {', '.join(self._roots)}")
        inner = PurePosixPath(*parts)
        if not parts or ".." in parts:
            raise UserError(f"{path} leads out of {name}, or to no file of it")
        file = self._roots[name] / inner
        if file.resolve() != file or not file.is_file():
            raise UserError(f"{path} is a link, or no file")
        return name, inner

    def _write(self, reading: Reading) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(reading.model_dump_json() + "\n")
            log.flush()
            os.fsync(log.fileno())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def readings(log: Path) -> list[Reading]:
    """What a log holds, in order; nothing for one that was never begun."""
    if not log.exists():
        return []
    return [Reading.model_validate_json(line) for line in log.read_text(encoding="utf-8").splitlines()]
