"""The journal of a run: append-only typed events, one writer.

RUN/journal/<epoch>.jsonl, one file for each driver that ever worked on the run. Whoever takes the run over creates the
next file with put-if-absent; its first line records how many bytes of each older file were whole lines by then.
Whatever an older driver (frozen, not dead) still appends lies beyond that mark and is never read; its own next append
sees the newer file and raises TakenOver. Every event is on disk before `append` returns.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ckb.errors import UserError
from ckb.storage import put_if_absent
from swarm.events import EVENT, AnyEvent, Event
from swarm.state import RunState, fold
from swarm.workspace import TakenOver

FORMAT = 1
E = TypeVar("E", bound=Event)


class JournalError(UserError):
    """A journal that can't be read: no run, or a format of another version."""


def epoch_file(journal: Path, epoch: int) -> Path:
    return journal / f"{epoch:06d}.jsonl"


def epochs(journal: Path) -> list[int]:
    """The epochs that exist, in order."""
    return sorted(int(path.stem) for path in journal.glob("[0-9]*.jsonl"))


def whole_lines(data: bytes) -> bytes:
    """Without the torn line that a killed writer may have left at the end."""
    return data[: data.rfind(b"\n") + 1]


def read_events(run_dir: Path) -> list[AnyEvent]:
    """Every event that counts, in order. Raises JournalError if there is no journal or its format is unknown."""
    journal = run_dir / "journal"
    numbers = epochs(journal)
    if not numbers:
        raise JournalError(f"{run_dir} holds no run: there is no journal in it")
    limits: dict[str, int] = {}
    bodies: dict[int, bytes] = {}
    for number in reversed(numbers):
        data = whole_lines(epoch_file(journal, number).read_bytes())
        bodies[number] = data[: limits.get(str(number), len(data))]
        limits |= _header(journal, number, data)["previous"]  # of two marks for a file, the older one holds
    return [EVENT.validate_json(line) for number in numbers for line in bodies[number].splitlines()[1:] if line.strip()]


def state_of(run_dir: Path) -> RunState:
    """What a run's journal adds up to: nothing yet while its first driver is starting. Raises JournalError."""
    begun = epochs(run_dir / "journal")
    return fold(read_events(run_dir)) if begun else RunState()


def _header(journal: Path, number: int, data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(data.split(b"\n", 1)[0])
    if header.get("format") != FORMAT:
        raise JournalError(
            f"{epoch_file(journal, number)} has format {header.get('format')}, this version reads {FORMAT}"
        )
    return header


class Journal:
    """The writer of one epoch, with the state that its events add up to. Safe to use from several threads."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.time):
        """Takes the run over: reads what is there and opens the next epoch. Raises TakenOver if another driver was
        faster."""
        self._journal = run_dir / "journal"
        self._journal.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.Lock()
        self.epoch = (epochs(self._journal) or [0])[-1] + 1
        self._path = self._open()
        self.state = RunState()
        for event in read_events(run_dir):
            self.state.apply(event)

    def _open(self) -> Path:
        previous = {str(n): len(whole_lines(epoch_file(self._journal, n).read_bytes())) for n in epochs(self._journal)}
        header = {"format": FORMAT, "epoch": self.epoch, "previous": previous}
        path = epoch_file(self._journal, self.epoch)
        try:
            put_if_absent(path, json.dumps(header).encode() + b"\n")
        except FileExistsError:
            raise TakenOver(f"{path} was just created by another driver: the run is being resumed there") from None
        return path

    def append(self, event: E) -> E:
        """Writes one event and applies it to the state. Raises TakenOver when a newer epoch exists."""
        with self._lock:
            if epoch_file(self._journal, self.epoch + 1).exists():
                raise TakenOver(f"epoch {self.epoch + 1} of {self._journal} exists: this driver was replaced")
            event = event.model_copy(update={"at": self._clock(), "epoch": self.epoch})
            self._write(event.model_dump_json().encode() + b"\n")
            self.state.apply(EVENT.validate_python(event))
            return event

    def _write(self, line: bytes) -> None:
        """The whole line on disk, or (a full disk) none of it: half a line would swallow the next one."""
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
