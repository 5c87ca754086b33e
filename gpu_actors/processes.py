"""What the kernel says of a process tree: members, resident memory, CPU time. Reads /proc directly.

A full scan of all processes costs milliseconds, which a timed run on two cores would notice; following the children
files of one tree costs tens of microseconds.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
GONE = (FileNotFoundError, ProcessLookupError)


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return int(psutil.virtual_memory().total)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(*GONE):
        for task in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(*GONE):
                found += map(int, (task / "children").read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """`pid` and all its living descendants."""
    members = [pid]
    for member in members:  # grows while it is walked
        members += children(member)
    return members


def stop(pid: int) -> None:
    """Stops `pid` and all its living descendants; they go on with `resume`. What they start meanwhile is stopped too:
    whoever is still running is asked again, until nobody is."""
    stopped: set[int] = set()
    while fresh := [member for member in tree(pid) if member not in stopped]:
        for member in fresh:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGSTOP)
        stopped.update(fresh)


def end(members: Callable[[], Iterable[int]], patience_s: float = 5.0) -> None:
    """Ends the processes whose ids `members` tells, and those that they start meanwhile. They are stopped first: of a
    group that forks all the time, each that was killed would make room for another, and one that is stopped keeps its
    place. After `patience_s` it kills what it knows of, whoever is still being started."""
    deadline = time.monotonic() + patience_s
    stopped: set[int] = set()
    while (fresh := set(members()) - stopped) and time.monotonic() < deadline:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in {*stopped, *members()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def resume(pid: int) -> None:
    """Lets `pid` and all its living descendants go on. The parents wake last: they may look for their children."""
    for member in reversed(tree(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGCONT)


def rss_bytes(pid: int) -> int:
    """Resident memory of one process, 0 when it is gone."""
    with contextlib.suppress(*GONE):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE
    return 0


def peak_rss_bytes(pid: int) -> int:
    """The kernel's own high-water mark of one process, 0 when it is gone."""
    with contextlib.suppress(*GONE):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def written_bytes(pid: int) -> int:
    """What a process and its children that have ended caused to be written to a disk, 0 where that can't be seen."""
    with contextlib.suppress(*GONE, PermissionError):
        for line in (PROC / str(pid) / "io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0


def _stat(pid: int) -> list[str]:
    # the command's name stands in parentheses and may hold spaces
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def start_time(pid: int) -> float:
    """When a process started, ticks since boot: with the pid it names a process for ever. 0 when it is gone."""
    with contextlib.suppress(*GONE):
        return float(_stat(pid)[19])
    return 0.0


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes and of their children that have ended."""
    total = 0
    for pid in pids:
        with contextlib.suppress(*GONE):
            total += sum(map(int, _stat(pid)[11:15]))
    return total * TICK_S


def reaped_seconds(pid: int) -> float:
    """User and system time of the children of a process that have ended and that it waited for."""
    with contextlib.suppress(*GONE):
        return sum(map(int, _stat(pid)[13:15])) * TICK_S
    return 0.0


def machine_cpu_seconds() -> float:
    """Busy time of all processors since boot, interrupts and waiting left out."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
