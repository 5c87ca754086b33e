"""What the kernel says of a child's process tree from outside: processor time, loaded code, files, executed code.

None of it is the child's word: a process can burn time or memory, and that it can't deny. Reads /proc directly.
"""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_actors import processes
from gpu_actors.child import Child
from gpu_actors.processes import GONE, PROC

CPUCLOCK_SCHED = 2
"""Linux names the clock of another process's time on a processor ~pid << 3 | 2 (clock_getcpuclockid(3))."""
HIDDEN = (*GONE, PermissionError, OSError)
"""What reading about a process that ends meanwhile, or that may not be looked into, raises."""


def cpu_ns(pid: int) -> int:
    """Processor time of a process and its living descendants, and of those of theirs that have ended (the latter in
    ticks of 10 ms), in nanoseconds."""
    total = 0
    for member in processes.tree(pid):
        with contextlib.suppress(OSError):  # it has ended
            total += time.clock_gettime_ns((~member << 3) | CPUCLOCK_SCHED)
        total += round(processes.reaped_seconds(member) * 1e9)
    return total


def code_files(pid: int) -> frozenset[str]:
    """Files whose code is mapped into a process tree: its programs and shared objects."""
    found: set[str] = set()
    for member in processes.tree(pid):
        with contextlib.suppress(*HIDDEN):
            for line in (PROC / str(member) / "maps").read_text().splitlines():
                _, rights, _, _, _, *path = line.split(maxsplit=5)
                if "x" in rights and path and not path[0].startswith("["):
                    found.add(path[0])
    return frozenset(found)


def gone_code(pid: int, folders: Iterable[Path]) -> frozenset[str]:
    """Code that is mapped into a process tree from files below some folders, or from memory, that are gone since."""
    roots = (*(f"{folder.resolve()}/" for folder in folders), "/memfd:")
    gone = (name for name in code_files(pid) if name.endswith(" (deleted)") and name.startswith(roots))
    return frozenset(name for name in gone if not name.startswith("/memfd:libffi"))


def files_below(folders: Iterable[Path]) -> frozenset[str]:
    """Every file below some folders."""
    return frozenset(str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir())


def forget_references(pid: int) -> bool:
    """Has the kernel forget which pages of a process tree were touched; whether it could."""
    try:
        for member in processes.tree(pid):
            (PROC / str(member) / "clear_refs").write_text("1")
    except OSError:
        return False
    return True


def executed(pid: int, folders: Iterable[Path]) -> dict[str, int]:
    """Code files below some folders that are mapped into a process tree -> bytes of their code that were touched since
    `forget_references`. A page of code is touched by running it."""
    found: dict[str, int] = {}
    roots = tuple(f"{folder.resolve()}/" for folder in folders)
    for member in processes.tree(pid):
        file, lines = "", list[str]()
        with contextlib.suppress(*HIDDEN):
            lines = (PROC / str(member) / "smaps").read_text().splitlines()
        for line in lines:
            name, *rest = line.split(maxsplit=5)
            if not name.endswith(":"):
                file = rest[4] if len(rest) == 5 and "x" in rest[0] and rest[4].startswith(roots) else ""
            elif file and name == "Referenced:":
                found[file] = found.get(file, 0) + 1024 * int(rest[0])
    return found


@dataclass(frozen=True)
class Built:
    """What of a child's code and files was there at one moment."""

    code: frozenset[str]
    files: frozenset[str]
    frames: int
    """Functions that torch.compile was given so far, by the child's own counters."""
    started: int
    """Programs that were started so far, as its watch counts them."""

    @classmethod
    def of(cls, child: Child, deadline_s: float) -> "Built":
        """Raises ChildFailure."""
        told = child.call("compiled", deadline_s)
        pid, folders = child.sandbox.pid, child.writable
        counts = {name: told.value(name, int) for name in ("frames", "started")}
        return cls(code=code_files(pid), files=files_below(folders), **counts)

    def since(self, before: "Built") -> str:
        """What is new, in words; empty for nothing."""
        new = [
            *(f"the code of {name}" for name in sorted(self.code - before.code)),
            *(f"the file {name}" for name in sorted(self.files - before.files)),
        ]
        if self.frames > before.frames:
            new.append(f"{self.frames - before.frames} function(s) for torch.compile")
        if self.started > before.started:
            new.append(f"{self.started - before.started} started program(s)")
        return ", ".join(new[:3])
