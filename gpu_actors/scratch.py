"""Temporary folders that the end of their process does not leave behind: the next one that wants one removes them."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpu_actors import processes

NAME = re.compile(r"enginesmith-copies-(?P<space>\d+)-(?P<pid>\d+)-(?P<start>\d+)-")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that is removed in the end; first those of processes that were ended before they could. Copies of a
    checkpoint lie there, which may fill a disk."""
    place = Path(tempfile.gettempdir())
    for left in place.glob("enginesmith-copies-*"):
        if abandoned(left.name):
            shutil.rmtree(left, ignore_errors=True)
    pid = os.getpid()
    prefix = f"enginesmith-copies-{space()}-{pid}-{processes.start_time(pid):.0f}-"
    with tempfile.TemporaryDirectory(prefix=prefix) as held:
        yield Path(held)


def abandoned(name: str) -> bool:
    """Whether the process that made a folder of this name is gone. Of another space of process numbers, which may share
    the disk, nobody here can say."""
    found = NAME.match(name)
    if not found or int(found["space"]) != space():
        return False
    return processes.start_time(int(found["pid"])) != float(found["start"])


def space() -> int:
    """The number of this process's space of process numbers."""
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - it is no link to a file
