"""A store of many rows in many versions: how long a filtered read, the log, a blame take, and how much memory.

The store is filled as runs fill it: small commits by two processes, each of which merges small files when there are
many, as the consolidator does after its commit.
"""

import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks.ckb.bars import Measure
from benchmarks.ckb.rows import RARE, row
from ckb.compaction import tidy
from ckb.history import blame
from ckb.schemas import Experience
from ckb.store import Store

WRITERS = 2
READ_S, LOG_S, MEMORY_MB = 1, 1, 1000
RARE_ROWS = (pc.field("kind") == "failure_mode") & (pc.field("effect") < 1)
"""A few rows of each commit."""


@dataclass(frozen=True)
class Reader:
    """What the reading process saw."""

    seconds: dict[str, float]
    counts: dict[str, int]
    """What the same calls returned, to be compared with what was written."""
    memory_mb: float
    """Its largest resident set, MB."""


@dataclass
class _Clock:
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def time(self, what: str, call: Callable[[], Any], count: Callable[[Any], int]) -> None:
        start = time.perf_counter()
        found = call()
        self.seconds[what] = time.perf_counter() - start
        self.counts[what] = count(found)


def _fill(root: Path, number: int, commits: int, rows: int) -> float:
    """Appends commits of `rows` rows. Returns the process's largest resident set, MB."""
    store = Store(root)
    for n in range(commits):
        first = (number * commits + n) * rows
        new = [row(f"run-{number}-{n:06d}-{i:04d}", first + i, f"run-{number}-{n:06d}") for i in range(rows)]
        store.append({"experience": new}, message=f"run {n}", by=f"writer {number}")
        tidy(store, by=f"writer {number}")
    return _peak_mb()


def _read(root: Path, id: str, seed: int) -> Reader:
    clock = _Clock()
    clock.time("open", lambda: Store(root), lambda store: 1)
    store = Store(root)
    clock.time("log", store.log, len)
    newest = store.latest
    some = random.Random(seed).sample(range(newest // 2, newest), min(3, newest - newest // 2))
    clock.time("one id, newest", lambda: store.rows(Experience, where=pc.field("id") == id), len)
    clock.time("scattered, newest", lambda: store.rows(Experience, where=RARE_ROWS), len)
    for version in some:
        what = f"scattered, version {version}"
        clock.time(what, lambda version=version: store.rows(Experience, version, RARE_ROWS), len)  # type: ignore[misc]
    clock.time("blame", lambda: blame(store, "experience", id), lambda manifest: 1)
    return Reader(clock.seconds, clock.counts, _peak_mb())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(root: Path, versions: int, rows: int, seed: int) -> list[Measure]:
    """`versions` appends of `rows` rows each to a new store at `root`, then reads in a fresh process."""
    Store.create(root)
    context = multiprocessing.get_context("spawn")
    each = versions // WRITERS
    with ProcessPoolExecutor(WRITERS, context) as pool:
        start = time.perf_counter()
        writing = list(pool.map(_fill, [root] * WRITERS, range(WRITERS), [each] * WRITERS, [rows] * WRITERS))
        filled = time.perf_counter() - start
    with ProcessPoolExecutor(1, context) as pool:
        reader = pool.submit(_read, root, f"run-1-{each // 2:06d}-0000", seed).result()
    store = Store(root)
    total = each * WRITERS * rows
    files = store.table_state("experience").files
    appends = sum(manifest.operation == "append" for manifest in store.log())
    return [
        Measure("versions that append", appends, "versions", exactly=each * WRITERS),
        Measure("versions in all, with those that merge files", store.latest, "versions"),
        Measure("rows", sum(file.rows for file in files), "rows", exactly=total),
        Measure("files", len(files), "files"),
        Measure("bytes in them", sum(file.bytes for file in files) / 1e6, "MB"),
        Measure("filling", filled, "s"),
        Measure("log: versions found", reader.counts["log"], "versions", exactly=store.latest + 1),
        Measure("one id: rows found", reader.counts["one id, newest"], "rows", exactly=1),
        Measure("scattered: rows found", reader.counts["scattered, newest"], "rows", exactly=-(-total // RARE)),
        *(Measure(what, seconds, "s", most=_bar(what)) for what, seconds in reader.seconds.items()),
        Measure("memory, reading", reader.memory_mb, "MB", most=MEMORY_MB),
        Measure("memory, writing and merging", max(writing), "MB", most=MEMORY_MB),
    ]


def _bar(what: str) -> float | None:
    """Seconds that a reading step may take."""
    return LOG_S if what == "log" else None if what in ("open", "blame") else READ_S
