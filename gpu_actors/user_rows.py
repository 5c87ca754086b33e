"""The user's benchmark in a paired run: every engine in turn, after the timed groups, when no arm is loaded."""

import time
from collections.abc import Sequence
from pathlib import Path

from gpu_actors.benchmark_jobs import Arm, BenchmarkJob, UserRow
from gpu_actors.jobs import EngineJob
from gpu_actors.machine import FOREIGN_LIMIT, ForeignLoad
from gpu_actors.user import UserRun, changed_since, run_user_benchmark

RUN_S = 300.0
"""Most time of one run: what the trial before the plan had."""


class UserRounds:
    """Runs the user's benchmark `job.repeats` times on each engine.

    A repeat that foreign load spoiled is made again, as often as there are repeats; the void rows stay in the record.
    An arm on which it failed is not tried again: a benchmark that hangs would spend its deadline each time.
    """

    def __init__(self, job: BenchmarkJob, arms: Sequence[Arm], cache_dir: Path):
        self._job = job
        self._cache_dir = cache_dir
        self._engines = {arm.name: arm.engine for arm in arms if arm.engine}
        self._rows: list[UserRow] = []

    def run(self, deadline: float) -> tuple[UserRow, ...]:
        """No repeat begins after `deadline` (monotonic seconds)."""
        wanted = self._job.shown + self._job.repeats
        repeat, groups, spare = 0, 0, wanted
        while repeat < wanted and self._engines and time.monotonic() < deadline:
            spoiled = self._group(repeat, groups)
            groups += 1
            if spoiled and spare > 0:
                spare -= 1
            else:
                repeat += 1
        return tuple(self._rows)

    def _group(self, repeat: int, turn: int) -> bool:
        """Every engine once, in an order that rotates. Returns whether foreign load spoiled any of them."""
        names = list(self._engines)
        first = turn % len(names)
        spoiled = [self._time(name, self._engines[name], repeat, turn) for name in names[first:] + names[:first]]
        return any(spoiled)

    def _time(self, name: str, engine: EngineJob, repeat: int, group: int) -> bool:
        load = ForeignLoad()
        run, failure = self._measure(engine)
        foreign = load.share()
        loud = foreign > FOREIGN_LIMIT
        void = failure or (f"foreign processes used {foreign:.0%} of the machine" if loud else None)
        shown = repeat < self._job.shown
        place = {"repeat": repeat, "group": group, "order": len(self._rows) + 1}
        busy = loud and not failure
        rows = tuple(row.model_copy(update={"candidate": name, "gate": "benchmark"}) for row in run.violations)
        said = {"metrics": run.metrics, "violations": rows, "void": void, "busy": busy}
        self._rows.append(UserRow(arm=name, **place, shown=shown, **said))
        if failure:
            del self._engines[name]
        return busy

    def _measure(self, engine: EngineJob) -> tuple[UserRun, str]:
        """How the benchmark ended, and why it does not count."""
        if changed := changed_since(self._job.user_files):
            return UserRun("CHANGED", changed, 0.0), changed
        # a package is found only where its parent folder can be listed
        files = (*map(Path, self._job.user_files), Path(engine.tree_dir).parent)
        run = run_user_benchmark(self._job.user_benchmark, files, engine, self._cache_dir, RUN_S)
        return run, "" if run.status == "PASS" else f"the user's benchmark: {run.status}: {run.summary}"
