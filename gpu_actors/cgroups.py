"""Control groups of one child: hard limits on its memory and on the number of its processes and threads.

Version 2 where the folder above our own group is ours to write (delegated by systemd to a user, or root in a
container), version 1 as root. Where neither is, a group without controllers, which limits nothing.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from gpu_actors import processes

Kind = Literal["memory", "processes"]
CONTROLLERS: dict[str, Kind] = {"memory": "memory", "pids": "processes"}


def mounts(mountinfo: str, groups: str) -> tuple[dict[str, Path], Path | None]:
    """(our own group of each controller of version 1, that of version 2), from the texts of /proc/self/mountinfo and
    /proc/self/cgroup.

    A mount shows the hierarchy from some folder on, in a container mostly from its own group."""
    own = {name: line[2] for line in _fields(groups, ":") for name in line[1].split(",")}
    first: dict[str, Path] = {}
    second: Path | None = None
    for line in _fields(mountinfo, " "):
        kind, options = line[line.index("-") + 1], line[-1].split(",")
        if kind == "cgroup2" and "" in own:
            second = _inside(line[4], line[3], own[""])
        if kind == "cgroup":
            first |= {
                name: _inside(line[4], line[3], own[name]) for name in CONTROLLERS if name in options and name in own
            }
    return first, second


def _fields(text: str, separator: str) -> list[list[str]]:
    return [line.split(separator) for line in text.splitlines() if line]


def _inside(mount: str, root: str, path: str) -> Path:
    within = PurePosixPath(path)
    return Path(mount) / (within.relative_to(root) if within.is_relative_to(root) else ".")


@cache
def places() -> dict[Kind, Path]:
    """The folder below which a group can be made, by what it limits. Tried for real, once in a process."""
    proc = Path("/proc/self")
    try:
        first, second = mounts((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    except OSError:
        return {}
    found: dict[Kind, Path] = {}
    above = second.parent if second else None  # a group that holds processes can't hand controllers to groups below it
    for name, kind in CONTROLLERS.items():
        if above and name in _read(above / "cgroup.subtree_control").split() and _writable(above):
            found[kind] = above
        elif name in first and _writable(first[name]):
            found[kind] = first[name]
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _writable(folder: Path) -> bool:
    probe = folder / f"enginesmith-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


class Group:
    """The groups of one child. Remove it when its processes have ended."""

    def __init__(self, memory_bytes: int, tasks: int, *, use: bool = True):
        """`tasks`: processes and threads. `use`: False makes a group that limits nothing."""
        name = f"enginesmith-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._folders = {kind: folder / name for kind, folder in places().items()} if use else {}
        try:
            for folder in set(self._folders.values()):
                folder.mkdir()
            if memory := self._folders.get("memory"):
                # swap too, where it is counted; the plain limit first, for the one on both may not be under it
                self._write(memory, ("memory.max", "memory.limit_in_bytes"), memory_bytes)
                with contextlib.suppress(FileNotFoundError):
                    self._write(memory, ("memory.swap.max",), 0)
            if processes := self._folders.get("processes"):
                self._write(processes, ("pids.max",), tasks)
        except OSError:
            self.remove()
            raise

    @staticmethod
    def _write(folder: Path, names: Iterable[str], value: int) -> None:
        there = next((folder / name for name in names if (folder / name).exists()), None)
        if there is None:
            raise FileNotFoundError(f"{folder} has none of {', '.join(names)}")
        there.write_text(str(value))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What it limits."""
        return tuple(self._folders)

    @property
    def files(self) -> list[str]:
        """Whoever writes 0 into each of these has joined."""
        return [str(folder / "cgroup.procs") for folder in sorted(set(self._folders.values()))]

    def members(self) -> set[int]:
        """Ids of the processes in it, whatever their parents and sessions."""
        return {int(pid) for file in self.files for pid in _read(Path(file)).split()}

    def kill(self) -> None:
        """Ends every member."""
        processes.end(self.members)

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process because the group was at its memory limit."""
        folder = self._folders.get("memory")
        if not folder:
            return False
        told = _read(folder / "memory.events") or _read(folder / "memory.oom_control")
        return any(line.split() != ["oom_kill", "0"] for line in told.splitlines() if line.startswith("oom_kill "))

    def remove(self) -> None:
        """Removes the folders. A kernel that still counts an ended process says busy for some milliseconds."""
        deadline = time.monotonic() + 2.0
        for folder in set(self._folders.values()):
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)
