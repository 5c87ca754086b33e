"""Times several engines in turn, in one run, on the same fresh prompts, with the clock in this process.

All arms are loaded first, each in a process of its own; while one is timed the others are stopped. A group is
one repeat of one scenario: every arm once, on prompts that nobody has seen before, in an order that rotates from group
to group. The first groups warm up and are not recorded. End tokens are ignored, so that lengths are exact.

A row is void, and says why, when foreign processes used more than 5% of the machine while its clock ran, when it is
faster than memory allows, or when its tokens are wrong; the latter two make the arm wrong altogether. A group that
foreign load spoiled is measured again when the machine is quiet, or when it has not been for a while.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import prompts
from gpu_actors import processes
from gpu_actors.answers import Answers
from gpu_actors.arms import runner_of
from gpu_actors.benchmark_jobs import Arm, Benchmark, BenchmarkJob, Row, Scenario, UserRow
from gpu_actors.child import Child, ChildFailure, Event
from gpu_actors.conduct import Conduct
from gpu_actors.entrants import Entrant
from gpu_actors.machine import FOREIGN_LIMIT, Ceiling, ForeignLoad, Reads, no_floor, too_fast
from gpu_actors.telemetry import Conditions, Telemetry
from gpu_actors.user_rows import UserRounds

WATCH_S = 0.5
"""Between samples of memory while a clock runs: sampling costs processor time too."""
QUIET_S = 1.0
"""How long the machine must be quiet before a spoiled group is measured again."""
PATIENCE_S = 20.0
"""How long one benchmark waits for that in all."""


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
        self._start_s = time.monotonic()
        self._telemetry = Telemetry(job.facts.platform.accelerator)
        self._conditions: list[Conditions] = []
        self._ours: list[int] = []
        """Processes of ours beside the arms' that may have the device open."""

    def run(self) -> Benchmark:
        with self._telemetry, Ceiling(self.job.facts.platform) as ceiling:
            self._ours.append(ceiling.pid)
            try:
                self._note_conditions()
                self._enter(ceiling)
                for scenario in self.job.scenarios:
                    self._measure(scenario)
                    self._note_conditions()
                longest = max(scenario.prompt_tokens + scenario.new_tokens for scenario in self.job.scenarios)
                for entrant in self._entrants:
                    entrant.look_at_its_conduct(self.job.facts, longest)
                Answers(self.job, self._deadline).check(self._entrants)
                for entrant in self._entrants:
                    entrant.look_at_the_watch()
            finally:
                for entrant in self._entrants:
                    entrant.runner.child.close()
            ceiling.measure()
        rows = self._judged(ceiling.reads)
        user_rows = self._run_user_benchmark()
        return Benchmark(
            rows=rows,
            arms=tuple(entrant.result() for entrant in self._entrants),
            user_rows=user_rows,
            read_gb_s=ceiling.reads.gb_s,
            no_floor=self._without_floor(ceiling.reads),
            repeats=self.job.repeats,
            warmup=self.job.warmup,
            prompts=f"{prompts.DESCRIPTION}; end tokens ignored",
            device=self.job.facts.platform.name,
            seconds=time.monotonic() - self._start_s,
            shown=self.job.shown,
            conditions=tuple(self._conditions),
        )

    def _note_conditions(self) -> None:
        self._conditions.append(self._telemetry.conditions(time.monotonic() - self._start_s))

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
        torch keeps one core busy for seconds. A processor's ceiling waits until they have; a device's comes before
        they take its memory."""
        if self.job.startup:
            ceiling.measure()
            for arm in self.job.arms:
                self._load(self._start(arm), timed=True)
            return
        entrants = [self._start(arm) for arm in self.job.arms]
        on_device = self.job.facts.platform.accelerator != "cpu"
        if on_device:
            ceiling.measure()
        for entrant in entrants:
            self._load(entrant, timed=False)
        if not on_device:
            ceiling.measure()

    def _start(self, arm: Arm) -> Entrant:
        runner, engine = runner_of(arm, self.job, self._cache_dir), arm.engine is not None
        judged = runner.child if engine and isinstance(runner.child, Child) else None
        conduct = Conduct(runner.child, self._telemetry, judged, self._start_s)
        self._entrants.append(Entrant(arm.name, runner, engine, conduct))
        return self._entrants[-1]

    def _load(self, entrant: Entrant, *, timed: bool) -> None:
        child, ready_ns = entrant.runner.child, 0
        try:
            entrant.conduct.loads()
            ready_ns = entrant.runner.load(self._left)
            child.sandbox.sample_s = WATCH_S
            entrant.conduct.has_loaded()
        except ChildFailure as failure:
            entrant.drop(failure)
        if timed and "startup_s" not in entrant.runner.setting.not_given:
            entrant.load_s = ((ready_ns or time.perf_counter_ns()) - child.started_ns) / 1e9

    def _measure(self, scenario: Scenario) -> None:
        """Warm-ups, then the repeats whose figures authors may see, then those that decide."""
        for _ in range(self.job.warmup):
            self._group(scenario, repeat=None)
        self._each(lambda entrant: entrant.conduct.warmed_up())
        wanted = self.job.shown + self.job.repeats
        spare, repeat = wanted, 0
        while repeat < wanted and self._active and self._left > 0:
            rows = self._group(scenario, repeat)
            self._rows += rows
            spoiled = any(row.busy for row in rows)
            if spoiled and spare > 0:
                spare -= 1  # again, on other prompts; the spoiled group stays in the record
                self._await_quiet()
            else:
                repeat += 1
        self._each(lambda entrant: entrant.conduct.shape_done())

    def _each(self, do: Callable[[Entrant], None]) -> None:
        """Something with every active arm; one whose process fails is out."""
        for entrant in self._active:
            try:
                do(entrant)
            except ChildFailure as failure:
                entrant.drop(failure)

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
        """One request on the clock of this process. Raises ChildFailure."""
        self._timed += 1
        others = self._strangers()
        entrant.conduct.begins()
        load = ForeignLoad(entrant.runner.child)
        start = time.perf_counter_ns()
        events = list(entrant.runner.stream(prompt, scenario.new_tokens, self._left))
        foreign = load.share()
        entrant.conduct.ends()
        others = others or self._strangers()
        tokens = [event.value for event in events]
        busy = foreign > FOREIGN_LIMIT or bool(others)
        void = others or (f"foreign processes used {foreign:.0%} of the machine" if busy else None)
        told = entrant.runner.tells_tokens
        if len(tokens) != scenario.new_tokens or (told and not all(self._is_token(token) for token in tokens)):
            busy, void = False, f"asked for {scenario.new_tokens} tokens, found {len(tokens)}: {str(tokens[:4])[:60]}"
            entrant.status, entrant.detail = "WRONG", void
        elif told:
            entrant.said.append((group, prompt, tokens))
        return Row(
            arm=entrant.name,
            prompt_tokens=scenario.prompt_tokens,
            new_tokens=scenario.new_tokens,
            repeat=repeat,
            shown=repeat < self.job.shown,
            group=group,
            order=self._timed,
            foreign_cpu=foreign,
            void=void,
            busy=busy,
            **times_of(events, start),
        )

    def _strangers(self) -> str:
        arms = [e.runner.child.sandbox.pid for e in self._entrants if e.runner.child.alive]
        return self._telemetry.strangers([*arms, *self._ours])

    def _is_token(self, token: Any) -> bool:
        return isinstance(token, int) and 0 <= token < self.job.facts.model.vocab

    def _without_floor(self, reads: Reads) -> tuple[str, ...]:
        """What `_judged` holds to no floor, and why."""
        scenarios = [(s.prompt_tokens, s.new_tokens) for s in self.job.scenarios]
        why = {f"{p} + {n} tokens": no_floor(p, n, self.job.facts, reads) for p, n in scenarios}
        elsewhere = [entrant.name for entrant in self._entrants if not entrant.runner.local]
        return (
            *(f"{what}: {reason}" for what, reason in why.items() if reason),
            *(f"{name}: it computes on another machine" for name in elsewhere),
        )

    def _judged(self, reads: Reads) -> tuple[Row, ...]:
        """The rows, void where their arm turned out wrong; one that is faster than memory allows makes it so."""
        for row in self._rows:
            entrant = next(e for e in self._entrants if e.name == row.arm)
            asked = entrant.status == "OK" and entrant.runner.local
            if asked and (reason := too_fast(row, self.job.facts, reads)):
                entrant.status, entrant.detail = "WRONG", reason
        wrong = {entrant.name: entrant.detail for entrant in self._entrants if entrant.status == "WRONG"}
        return tuple(
            row.model_copy(update={"void": wrong[row.arm], "busy": False}) if row.arm in wrong else row
            for row in self._rows
        )


def times_of(events: list[Event], start_ns: int) -> dict[str, float]:
    """The times of a row, in ms from the request on."""
    times = [(event.at_ns - start_ns) / 1e6 for event in events] or [0.0]
    first, last = times[0], times[-1]
    tpot = (last - first) / max(1, len(times) - times.count(first))  # a server may send several tokens at once
    decode = 1000 / tpot if tpot else 0.0
    return {"ttft_ms": first, "tpot_ms": tpot, "latency_ms": last, "decode_tok_s": decode}
