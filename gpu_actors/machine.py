"""What the machine can do at best, and who else was using it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckb.facts import Facts, PlatformFacts
from gpu_actors import processes
from gpu_actors.benchmark_jobs import Row
from gpu_actors.child import DRIVERS, Child, ChildFailure
from gpu_actors.gpus import grant
from gpu_actors.sandbox import Confinement
from gpu_actors.server_process import Process

DRIVER = DRIVERS / "ceiling.py"
FLOOR_MARGIN = 1.15
FOREIGN_LIMIT = 0.05
"""Largest share of the machine that foreign processes may use while a clock runs."""
CEILING_BYTES = 512 * 1024**2
DEVICE_CEILING_BYTES = 1024**3
"""Much more than the caches of a device hold, and little of its memory."""
CEILING_SECONDS = 1.0
CEILING_DEADLINE_S = 120.0
TICKS_LEFT_OUT = 3


@dataclass(frozen=True)
class Reads:
    """What the memory that is timed can do at best."""

    gb_s: float
    """Streaming read; of several devices together."""
    cache_bytes: int
    """Of the last-level cache, of several devices together; what fits there twice may be read faster than memory."""


def no_floor(prompt_tokens: int, new_tokens: int, facts: Facts, reads: Reads) -> str:
    """Why memory says nothing about how long a step takes at least; empty if it does."""
    moved = step_bytes(prompt_tokens, new_tokens, facts)
    if new_tokens < 2:
        return f"{new_tokens} new token(s) have no time between them"
    if moved < 2 * reads.cache_bytes:
        return f"{moved:,} bytes a step are less than twice the last-level cache of {reads.cache_bytes:,} bytes"
    return ""


def step_bytes(prompt_tokens: int, new_tokens: int, facts: Facts) -> int:
    """What the middle step of a generation must read."""
    return facts.model.decode_bytes(prompt_tokens + new_tokens // 2, facts.workload.dtype)


def under_floor(
    step_ms: float, prompt_tokens: int, new_tokens: int, facts: Facts, reads: Reads, margin: float = FLOOR_MARGIN
) -> str:
    """Why a step can't have taken so short a time: weights and cache would have been read faster than memory delivers
    them. Empty if it can, and where there is no floor."""
    moved = step_bytes(prompt_tokens, new_tokens, facts)
    floor = moved / (margin * reads.gb_s) / 1e6
    if step_ms >= floor or no_floor(prompt_tokens, new_tokens, facts, reads):
        return ""
    return f"{step_ms:.2f} ms a token is under the floor of {floor:.2f} ms ({moved:,} bytes at {reads.gb_s:.1f} GB/s)"


def too_fast(row: Row, facts: Facts, reads: Reads) -> str:
    """Why a row can't be true, or empty."""
    return under_floor(row.tpot_ms, row.prompt_tokens, row.new_tokens, facts, reads)


def last_level_cache_bytes() -> int:
    """Size of the CPU's largest cache, 0 if the kernel does not say."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    texts = [path.read_text().strip() for path in sizes]
    return max((int(text[:-1]) * units[text[-1]] for text in texts), default=0)


class CeilingFailure(Exception):
    """The ceiling could not be measured: an error of ours or of the machine, and no candidate's."""


class Ceiling:
    """Best streaming read of the memory that a platform's engines read, measured there in a process of its own, which
    stays until the end: of main memory by all threads, or of each of its devices. A context manager."""

    def __init__(self, platform: PlatformFacts):
        given = grant(platform.accelerator)
        self._platform = platform
        self._child = Child(DRIVER, Confinement(devices=given.devices, environment=given.environment))
        self._best = Reads(gb_s=0.0, cache_bytes=0)

    def __enter__(self) -> "Ceiling":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    @property
    def pid(self) -> int:
        """Of its process, which has the device open while others are timed, and rests."""
        return self._child.sandbox.pid

    @property
    def reads(self) -> Reads:
        """The best of all measurements so far."""
        return self._best

    def measure(self) -> None:
        """Raises CeilingFailure."""
        try:
            reply = self._child.call("ceiling", CEILING_DEADLINE_S, **question(self._platform))
            gb_s, cache = reply.value("gb_s", float), reply.value("cache_bytes", int)
        except ChildFailure as failure:
            here = f"{self._platform.count} {self._platform.accelerator} device(s) ({self._platform.name})"
            raise CeilingFailure(f"the read bandwidth of {here} can't be measured: {failure}") from failure
        cache = last_level_cache_bytes() if self._platform.accelerator == "cpu" else cache
        self._best = Reads(gb_s=max(self._best.gb_s, gb_s), cache_bytes=cache)


def question(platform: PlatformFacts) -> dict[str, Any]:
    """What the driver is asked: to read the memory of the devices that are timed, and no other."""
    size = CEILING_BYTES if platform.accelerator == "cpu" else DEVICE_CEILING_BYTES
    where = {"device": platform.accelerator, "count": platform.count, "threads": platform.cores}
    return {**where, "bytes_": size, "seconds": CEILING_SECONDS}


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
