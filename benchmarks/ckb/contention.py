"""Many processes append at once, each as fast as it can: what is kept, and how long one waits for a commit."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.ckb.bars import Measure, quantile
from benchmarks.ckb.rows import row
from ckb.maintenance import verify
from ckb.store import Store

P50_MS, P99_MS, LONGEST_MS = 30, 300, 2000


@dataclass(frozen=True)
class Writer:
    """What one process saw."""

    waits: list[float]
    """Seconds from the call of append to its return, every fsync of data, manifest and folders done."""
    errors: list[str]


_start: Barrier


def _prepare(start: Barrier) -> None:
    global _start
    _start = start


def _write(root: Path, number: int, commits: int) -> Writer:
    store = Store(root)
    seen = Writer([], [])
    _start.wait()
    for n in range(commits):
        start = time.perf_counter()
        try:
            store.append({"experience": [row(f"{number}-{n}", n)]}, message=f"commit {n}", by=f"writer {number}")
        except Exception as error:  # whatever reaches a caller is what is counted
            seen.errors.append(repr(error))
        else:
            seen.waits.append(time.perf_counter() - start)
    return seen


def measure(root: Path, processes: int, commits: int) -> list[Measure]:
    """`processes` x `commits` appends of one row to a new store at `root`."""
    Store.create(root)
    context = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(processes, context, _prepare, (context.Barrier(processes),))
    with workers as pool:
        start = time.perf_counter()
        writers = list(pool.map(_write, [root] * processes, range(processes), [commits] * processes))
        took = time.perf_counter() - start
    store = Store(root)
    ids = store.read("experience", columns=["id"])["id"].to_pylist()
    expected = {f"{number}-{n}" for number in range(processes) for n in range(commits)}
    waits = [1000 * wait for writer in writers for wait in writer.waits]
    errors = [error for writer in writers for error in writer.errors]
    return [
        Measure("commits", store.latest, "versions", exactly=processes * commits),
        Measure("rows", len(ids), "rows", exactly=len(expected)),
        Measure("rows that are there exactly once", sum(ids.count(id) == 1 for id in expected), "rows",
                exactly=len(expected)),
        Measure("errors to callers", len(errors), "errors", exactly=0),
        Measure("faults that verify finds", len(verify(store)), "faults", exactly=0),
        Measure("wait for a commit, p50", quantile(waits, 0.5), "ms", most=P50_MS),
        Measure("wait for a commit, p99", quantile(waits, 0.99), "ms", most=P99_MS),
        Measure("wait for a commit, longest", max(waits, default=float("nan")), "ms", most=LONGEST_MS),
        Measure("wall time, start of the processes included", took, "s"),
    ]  # fmt: skip
