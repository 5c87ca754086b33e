"""Times several engines in turn, in one run, on the same fresh prompts, with the clock in this process.

All arms are loaded first, each in a process of its own; while one is timed the others are stopped. A group is
one repeat of one scenario: every arm once, on prompts that nobody has seen before, in an order that rotates from group
to group. The first groups warm up and are not recorded. End tokens are ignored, so that lengths are exact.

A row is void, and says why, when foreign processes used more than 5% of the machine while its clock ran, when it is
faster than memory allows, or when its tokens are wrong; the latter two make the arm wrong altogether. A group that
foreign load spoiled is measured again when the machine is quiet, or when it has not been for a while.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks import prompts
from ckb.violations import Violation
from gpu_actors import processes
from gpu_actors.arms import CHECKED_POSITIONS, Runner, fault, runner_of
from gpu_actors.child import ChildFailure
from gpu_actors.gates.model import BOUND
from gpu_actors.jobs import Arm, ArmResult, Benchmark, BenchmarkJob, Row, Scenario, UserRow
from gpu_actors.machine import FOREIGN_LIMIT, Ceiling, ForeignLoad, too_fast
from gpu_actors.user_rows import UserRounds

WATCH_S = 0.5
"""Between samples of memory while a clock runs: sampling costs processor time too."""
QUIET_S = 1.0
"""How long the machine must be quiet before a spoiled group is measured again."""
PATIENCE_S = 20.0
"""How long one benchmark waits for that in all."""

Status = Literal["OK", "CRASHED", "TIMEOUT", "WRONG"]


@dataclass
class Entrant:
    """One arm while the run goes on."""

    name: str
    runner: Runner
    engine: bool
    status: Status = "OK"
    detail: str = ""
    load_s: float = 0.0
    said: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """Group, prompt and tokens of each generation of the right length."""
    violations: tuple[Violation, ...] = ()

    def look_at_the_watch(self) -> None:
        """An engine that behaved in its gates may try while it is timed what it must not."""
        told = self.runner.child.told
        told.read()
        self.violations = told.rows(self.name, "benchmark")
        if self.violations:
            self.status, self.detail = "WRONG", f"violation: {self.violations[0].what}"

    def drop(self, failure: ChildFailure) -> None:
        self.status = "TIMEOUT" if failure.kind == "TIMEOUT" else "CRASHED"
        self.detail = f"{failure.kind}: {failure}"[:500]

    def result(self) -> ArmResult:
        return ArmResult(
            arm=self.name,
            status=self.status,
            detail=self.detail,
            load_s=self.load_s,
            peak_rss_bytes=self.runner.child.sandbox.peak_rss_bytes,
            violations=self.violations,
            setting=self.runner.setting,
        )


class Benchmarker:
    """Runs one paired benchmark. The caller holds the device's lease."""

    def __init__(self, job: BenchmarkJob, cache_dir: Path):
        self.job = job
        self._cache_dir = cache_dir
        self._deadline = time.monotonic() + job.deadline_s
        self._entrants: list[Entrant] = []
        self._rows: list[Row] = []
        self._groups = 0
        self._timed = 0
        self._patience_s = PATIENCE_S

    def run(self) -> Benchmark:
        start = time.monotonic()
        with Ceiling(self.job.facts.platform.cores) as ceiling:
            try:
                self._enter(ceiling)
                for scenario in self.job.scenarios:
                    self._measure(scenario)
                self._check_outputs()
                for entrant in self._entrants:
                    entrant.look_at_the_watch()
            finally:
                for entrant in self._entrants:
                    entrant.runner.child.close()
            ceiling.measure()
        rows = self._judged(ceiling.gb_s)
        user_rows = self._run_user_benchmark()
        return Benchmark(
            rows=rows,
            arms=tuple(entrant.result() for entrant in self._entrants),
            user_rows=user_rows,
            read_gb_s=ceiling.gb_s,
            repeats=self.job.repeats,
            warmup=self.job.warmup,
            prompts=f"{prompts.DESCRIPTION}; end tokens ignored",
            device=self.job.facts.platform.name,
            seconds=time.monotonic() - start,
        )

    def _run_user_benchmark(self) -> tuple[UserRow, ...]:
        """The user's benchmark on the engines that are right, whose own processes have ended by now."""
        if not self.job.user_benchmark:
            return ()
        right = {entrant.name for entrant in self._active}
        arms = [arm for arm in self.job.arms if arm.name in right]
        return UserRounds(self.job, arms, self._cache_dir).run(self._deadline)

    @property
    def _left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def _active(self) -> list[Entrant]:
        return [entrant for entrant in self._entrants if entrant.status == "OK"]

    def _enter(self, ceiling: Ceiling) -> None:
        """Starts every arm and loads it. Where the time of that is not asked for they all start at once: importing
        torch keeps one core busy for seconds. The ceiling waits until they have."""
        if self.job.startup:
            ceiling.measure()
            for arm in self.job.arms:
                self._load(self._start(arm), timed=True)
            return
        for entrant in [self._start(arm) for arm in self.job.arms]:
            self._load(entrant, timed=False)
        ceiling.measure()

    def _start(self, arm: Arm) -> Entrant:
        runner = runner_of(arm, self.job, self._cache_dir)
        self._entrants.append(Entrant(arm.name, runner, engine=arm.engine is not None))
        return self._entrants[-1]

    def _load(self, entrant: Entrant, *, timed: bool) -> None:
        child, ready_ns = entrant.runner.child, 0
        try:
            ready_ns = entrant.runner.load(self._left)
            child.sandbox.sample_s = WATCH_S
        except ChildFailure as failure:
            entrant.drop(failure)
        if timed and "startup_s" not in entrant.runner.setting.not_given:
            entrant.load_s = ((ready_ns or time.perf_counter_ns()) - child.started_ns) / 1e9

    def _measure(self, scenario: Scenario) -> None:
        for _ in range(self.job.warmup):
            self._group(scenario, repeat=None)
        spare = self.job.repeats
        repeat = 0
        while repeat < self.job.repeats and self._active and self._left > 0:
            rows = self._group(scenario, repeat)
            self._rows += rows
            spoiled = any(row.busy for row in rows)
            if spoiled and spare > 0:
                spare -= 1  # again, on other prompts; the spoiled group stays in the record
                self._await_quiet()
            else:
                repeat += 1

    def _await_quiet(self) -> None:
        """Returns when nobody else uses the machine for a second, or when the patience of this run is spent."""
        while self._patience_s > 0 and self._left > 0:
            load = ForeignLoad()
            time.sleep(QUIET_S)
            self._patience_s -= QUIET_S
            if load.share() <= FOREIGN_LIMIT:
                return

    def _group(self, scenario: Scenario, repeat: int | None) -> list[Row]:
        """Every active arm once on the same fresh prompt. `repeat` None: a warm-up, not recorded."""
        seed = self.job.seed * 100_003 + self._groups
        text = any(entrant.runner.takes_text for entrant in self._active)
        (prompt,) = prompts.cut(Path(self.job.checkpoint), [scenario.prompt_tokens], seed, through_text=text)
        active = self._active
        group = self._groups
        turn = group % len(active) if active else 0
        self._groups += 1
        rows = []
        for entrant in active[turn:] + active[:turn]:
            try:
                with self._alone(entrant):
                    row = self._time(entrant, scenario, prompt, repeat or 0, group)
                if repeat is not None:
                    rows.append(row)
            except ChildFailure as failure:
                entrant.drop(failure)
        return rows

    @contextmanager
    def _alone(self, entrant: Entrant) -> Iterator[None]:
        """Stops the processes of all other arms meanwhile: one that should wait for a request could get in the way."""
        others = [e.runner.child.sandbox.pid for e in self._entrants if e is not entrant and e.runner.child.alive]
        for pid in others:
            processes.stop(pid)
        try:
            yield
        finally:
            for pid in others:
                processes.resume(pid)

    def _time(self, entrant: Entrant, scenario: Scenario, prompt: list[int], repeat: int, group: int) -> Row:
        self._timed += 1
        load = ForeignLoad(entrant.runner.child)
        start = time.perf_counter_ns()
        events = list(entrant.runner.stream(prompt, scenario.new_tokens, self._left))
        foreign = load.share()
        tokens = [event.value for event in events]
        busy = foreign > FOREIGN_LIMIT
        void = f"foreign processes used {foreign:.0%} of the machine" if busy else None
        told = entrant.runner.tells_tokens
        if len(tokens) != scenario.new_tokens or (told and not all(self._is_token(token) for token in tokens)):
            busy, void = False, f"asked for {scenario.new_tokens} tokens, found {len(tokens)}: {str(tokens[:4])[:60]}"
            entrant.status, entrant.detail = "WRONG", void
        elif told:
            entrant.said.append((group, prompt, tokens))
        times = [(event.at_ns - start) / 1e6 for event in events] or [0.0]
        first, last = times[0], times[-1]
        tpot = (last - first) / max(1, len(times) - times.count(first))
        return Row(
            arm=entrant.name,
            prompt_tokens=scenario.prompt_tokens,
            new_tokens=scenario.new_tokens,
            repeat=repeat,
            group=group,
            order=self._timed,
            ttft_ms=first,
            tpot_ms=tpot,
            latency_ms=last,
            decode_tok_s=1000 / tpot if tpot else 0.0,
            foreign_cpu=foreign,
            void=void,
            busy=busy,
        )

    def _is_token(self, token: Any) -> bool:
        return isinstance(token, int) and 0 <= token < self.job.facts.model.vocab

    def _check_outputs(self) -> None:
        """What was said while the clock ran must be what somebody else holds to be most likely: Hugging Face where it
        takes part, else the first arm, which is the incumbent and has passed its acceptance. A process that judged its
        own words could forge both. The judge itself, if it is an engine, is held against its own logits.

        Only some positions of each generation are looked at, drawn now: rounding sets the band, and exact equality is
        the matter of the acceptance.
        """
        able = [entrant for entrant in self._active if entrant.runner.judges]
        judges = [*(e for e in able if not e.engine), *able]
        if not judges:
            return
        judge = judges[0]
        for entrant in self._active:
            if judge.status != "OK":  # then nobody is left who could say
                return
            if entrant is judge and not judge.engine:
                continue
            try:
                self._check(entrant, judge)
            except ChildFailure as failure:
                judge.drop(failure)

    def _check(self, entrant: Entrant, judge: Entrant) -> None:
        """Raises ChildFailure when the judge can't say. Who said the judge's own words on the same prompt is right
        without a further question: the judge has been held against its own logits before anybody else."""
        own = {} if entrant is judge else {group: tokens for group, _, tokens in judge.said}
        band = (2 if entrant is judge else 8) * BOUND[self.job.facts.workload.dtype]
        for group, prompt, tokens in entrant.said:
            if tokens == own.get(group):
                continue
            predicting = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
            draw = random.Random(f"{self.job.seed} {group} checked positions")
            positions = sorted(draw.sample(predicting, min(CHECKED_POSITIONS, len(predicting))))
            rows = judge.runner.logits(prompt + tokens, positions, max(60.0, self._left))
            if found := fault(prompt + tokens, positions, rows, band):
                entrant.status, entrant.detail = "WRONG", f"by the logits of {judge.name}: {found}"
                return

    def _judged(self, ceiling_gb_s: float) -> tuple[Row, ...]:
        """The rows, void where their arm turned out wrong; one that is faster than memory allows makes it so."""
        for row in self._rows:
            entrant = next(e for e in self._entrants if e.name == row.arm)
            if (
                entrant.status == "OK"
                and entrant.runner.local
                and (reason := too_fast(row, self.job.facts, ceiling_gb_s))
            ):
                entrant.status, entrant.detail = "WRONG", reason
        wrong = {entrant.name: entrant.detail for entrant in self._entrants if entrant.status == "WRONG"}
        return tuple(
            row.model_copy(update={"void": wrong[row.arm], "busy": False}) if row.arm in wrong else row
            for row in self._rows
        )
