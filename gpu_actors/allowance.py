"""What one child's process group uses of the machine, and whether that is too much."""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_actors import processes

PROCESS_LIMIT = 256
DISK_S = 1.0
"""Least time between two looks at the folders: they are walked, and may hold many files."""
FILE_LIMIT = 200_000
"""Most files in the folders that a child may write: empty ones take no bytes, but inodes and our time."""


@dataclass(frozen=True)
class Allowance:
    """The most that a group may use."""

    memory_bytes: int
    disk_bytes: int
    folders: tuple[Path, ...]
    """What it may write: their sizes count, whoever filled them."""


class Guard:
    """Looks at a process group from time to time."""

    def __init__(self, allowance: Allowance):
        self._allowance = allowance
        self._next_disk = 0.0
        self.full = False
        """Whether it was the disk that was too much."""
        self.peak_rss_bytes = 0

    def excess(self, members: Sequence[int]) -> str | None:
        """Why the group must be ended now, or None. `members`: ids of its processes, the first is its root."""
        allowed = self._allowance
        resident = sum(processes.rss_bytes(pid) for pid in members)
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident, processes.peak_rss_bytes(members[0]))
        if resident > allowed.memory_bytes:
            return f"its resident memory of {resident:,} bytes is over the limit of {allowed.memory_bytes:,}"
        if len(members) > PROCESS_LIMIT:
            return f"it started more than {PROCESS_LIMIT} processes"
        if time.monotonic() < self._next_disk:
            return None
        begun = time.monotonic()
        reason = self._disk(members)
        took = time.monotonic() - begun
        self._next_disk = time.monotonic() + max(DISK_S, 20 * took)
        self.full = reason is not None
        return reason

    def _disk(self, members: Iterable[int]) -> str | None:
        allowed = self._allowance
        size, files = folder_size(allowed.folders)
        # what was written to a file that has no name any more lies in no folder
        used = max(size, sum(processes.written_bytes(pid) for pid in members))
        if used > allowed.disk_bytes:
            return f"it wrote {used:,} bytes to the disk; the limit is {allowed.disk_bytes:,}"
        if files > FILE_LIMIT:
            return f"it has more than {FILE_LIMIT:,} files in its folders"
        return None


def folder_size(folders: Iterable[Path]) -> tuple[int, int]:
    """(bytes on the disk, files) below some folders. Links are not followed; it stops counting beyond FILE_LIMIT."""
    size = files = 0
    waiting = [str(folder) for folder in folders]
    while waiting and files <= FILE_LIMIT:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return size, files
