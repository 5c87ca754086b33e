"""What the machine can do at best, and who else was using it."""

import os
import time
from pathlib import Path

from ckb.facts import Facts
from gpu_actors import processes
from gpu_actors.child import ENGINE, Child
from gpu_actors.jobs import Row
from gpu_actors.sandbox import Confinement
from gpu_actors.server_process import Process

FLOOR_MARGIN = 1.15
FOREIGN_LIMIT = 0.05
"""Largest share of the machine that foreign processes may use while a clock runs."""
CEILING_BYTES = 512 * 1024**2
CEILING_SECONDS = 1.0
TICKS_LEFT_OUT = 3


def too_fast(row: Row, facts: Facts, ceiling_gb_s: float) -> str | None:
    """Why a row can't be true: its steps read weights and cache faster than memory delivers them."""
    moved = facts.model.decode_bytes(row.prompt_tokens + row.new_tokens // 2, facts.workload.dtype)
    if row.new_tokens < 2 or moved < 2 * last_level_cache_bytes():
        return None
    floor = moved / (FLOOR_MARGIN * ceiling_gb_s) / 1e6
    if row.tpot_ms >= floor:
        return None
    rate = f"{moved:,} bytes at {ceiling_gb_s:.1f} GB/s"
    return f"{row.tpot_ms:.2f} ms a token is under the floor of {floor:.2f} ms ({rate})"


def last_level_cache_bytes() -> int:
    """Size of the CPU's largest cache, 0 if the kernel does not say."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    texts = [path.read_text().strip() for path in sizes]
    return max((int(text[:-1]) * units[text[-1]] for text in texts), default=0)


class Ceiling:
    """Best streaming read of main memory by all threads, measured in a process of its own. A context manager."""

    def __init__(self, threads: int):
        self._threads = threads
        self._child = Child(ENGINE, Confinement())
        self.gb_s = 0.0
        """The best of all measurements so far."""

    def __enter__(self) -> "Ceiling":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def measure(self) -> None:
        arguments = {"bytes_": CEILING_BYTES, "seconds": CEILING_SECONDS, "threads": self._threads}
        self.gb_s = max(self.gb_s, self._child.call("ceiling", 120.0, **arguments).value("gb_s", float))


class ForeignLoad:
    """Processor time of everyone else from now on, as a share of the machine."""

    def __init__(self, child: Process | None = None):
        """Ours is this process with all that it starts and reaps meanwhile, and `child`, which goes on running."""
        self._child = child
        self._start = time.monotonic()
        self._before = self._foreign_seconds()

    def _foreign_seconds(self) -> float:
        ours = [*(processes.tree(self._child.sandbox.pid) if self._child else ()), os.getpid()]
        return processes.machine_cpu_seconds() - processes.cpu_seconds(ours)

    def share(self) -> float:
        """Kernel times tick in hundredths of a second, so what a few ticks could explain is left out."""
        wall = (time.monotonic() - self._start) * (os.cpu_count() or 1)
        spent = self._foreign_seconds() - self._before - TICKS_LEFT_OUT * processes.TICK_S
        return max(0.0, spent) / wall
