"""What a device actor is asked to time or profile, and what it returns: rows, and where a step's time goes."""

from typing import Literal

from pydantic import Field

from benchmarks.baselines.records import Baseline, Setting
from ckb.facts import Facts, Frozen
from ckb.violations import Violation
from gpu_actors.jobs import EngineJob
from gpu_actors.telemetry import Conditions
from gpu_actors.usage import Usage


class Scenario(Frozen):
    """One cell of a benchmark: prompt length and new tokens, both exact (EOS is ignored, and said so)."""

    prompt_tokens: int
    new_tokens: int


class Arm(Frozen):
    """One of the engines that take turns in a benchmark."""

    name: str
    """Candidate id, `incumbent`, `huggingface`, or the name of a server."""
    engine: EngineJob | None = None
    baseline: Baseline | None = None
    """A server. Neither: Hugging Face `generate` on the same checkpoint, dtype, threads and prompts."""


class BenchmarkJob(Frozen):
    """Several arms in turn in one run, on the same fresh prompts."""

    arms: tuple[Arm, ...]
    scenarios: tuple[Scenario, ...]
    repeats: int = 3
    """Of each scenario, on inputs whose figures no author sees: they decide."""
    shown: int = 0
    """Further repeats, on other inputs, whose figures authors may see: they decide nothing."""
    warmup: int = 1
    seed: int = 0
    checkpoint: str
    facts: Facts
    deadline_s: float = 900.0
    startup: bool = False
    """Start the arms one after another, so that the time each takes is its own; otherwise together, untimed."""
    user_benchmark: str = ""
    """The user's own benchmark, a command with absolute paths; it is run on each engine after the timed groups."""
    user_files: dict[str, str] = Field(default_factory=dict)
    """File of the user's that the benchmark needs -> sha256 when the plan was frozen."""


class Row(Frozen):
    """One timed generation."""

    arm: str
    prompt_tokens: int
    new_tokens: int
    repeat: int
    shown: bool = False
    """Of the part of the inputs whose figures authors may see."""
    group: int = 0
    """Which group of the run, warm-ups counted: what was timed beside each other, on one prompt."""
    order: int
    """Position in the whole run: shows that the arms took turns."""
    ttft_ms: float
    """From the request to the first new token, on the harness's clock."""
    tpot_ms: float
    """(last token - first token) / number of tokens that came after the first one (and what came with it)."""
    latency_ms: float
    decode_tok_s: float
    """1000 / tpot_ms."""
    foreign_cpu: float
    """Share of the machine's CPU time used by processes that are not ours while the clock ran."""
    void: str | None = None
    """Why the row does not count (foreign load, faster than the floor, wrong tokens), or None."""
    busy: bool = False
    """It is void because foreign processes used the machine: nothing is said against the arm."""


class UserRow(Frozen):
    """One run of the user's benchmark on one arm. Hugging Face has none: it is no engine's folder."""

    arm: str
    repeat: int
    shown: bool = False
    """Of the part whose figures authors may see."""
    group: int = 0
    """Which group of the user's benchmark: what was run beside each other."""
    order: int
    """Position among the runs of the user's benchmark: shows that the arms took turns."""
    metrics: dict[str, float]
    """What it printed, by the user's own names; empty when it failed."""
    void: str | None = None
    """Why the row does not count (it failed, its files changed, foreign load), or None."""
    busy: bool = False
    """It is void because foreign processes used the machine: nothing is said against the arm."""
    violations: tuple[Violation, ...] = ()
    """What the arm tried in the benchmark's process that no engine may. With any, the row is void."""


class ArmResult(Frozen):
    """What is said of one arm beside its rows."""

    arm: str
    status: Literal["OK", "CRASHED", "TIMEOUT", "WRONG"]
    detail: str = ""
    load_s: float = 0.0
    """Start of the process to ready, kernel build included; 0 where that was not measured (BenchmarkJob.startup)."""
    peak_rss_bytes: int = 0
    """Largest sum of the process tree's resident sets, load included."""
    violations: tuple[Violation, ...] = ()
    """What the arm's process tried that no engine may."""
    not_judged: tuple[str, ...] = ()
    """What too little was seen of to hold it against the arm or for it, in words."""
    setting: Setting | None = None
    """Version, flags, dtype, parallelism and graph state, and what this arm can't give; None in records of before."""
    usage: Usage = Usage()
    """Memory and utilisation by device, request by request."""


class Benchmark(Frozen):
    """A paired run."""

    rows: tuple[Row, ...]
    arms: tuple[ArmResult, ...]
    user_rows: tuple[UserRow, ...] = ()
    """Empty when the user brought no benchmark along."""
    read_gb_s: float
    """Best streaming read measured in this run, of the memory that is timed: main memory with all threads, or that of
    the devices together."""
    no_floor: tuple[str, ...] = ()
    """Scenarios and arms that were held to no floor of memory, and why; in records of before nobody said."""
    repeats: int
    """That decide."""
    shown: int = 0
    """Further ones, whose figures authors may see."""
    warmup: int
    conditions: tuple[Conditions, ...] = ()
    """The machine before the run and after each scenario."""
    prompts: str
    """What the prompts were, in words."""
    device: str
    seconds: float
    device_seconds: float = 0.0
    """Time for which the device was held, of what several held at once an equal part; waiting for it is not in it."""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Of the arms, wherever they showed."""
        tried = [*(arm.violations for arm in self.arms), *(row.violations for row in self.user_rows)]
        return tuple(row for rows in tried for row in rows)

    @property
    def counted(self) -> tuple[Row, ...]:
        """The valid rows of each repeat's last group. What a group that was spoiled and measured again left behind has
        no partner on its own prompt, so it counts for no arm."""
        last: dict[tuple[int, int, int], int] = {}
        for row in self.rows:
            key = (row.prompt_tokens, row.new_tokens, row.repeat)
            last[key] = max(last.get(key, 0), row.group)
        return tuple(
            row
            for row in self.rows
            if row.void is None and row.group == last[row.prompt_tokens, row.new_tokens, row.repeat]
        )

    @property
    def counted_user_rows(self) -> tuple[UserRow, ...]:
        """The valid runs of the user's benchmark of each repeat's last group."""
        last: dict[int, int] = {}
        for row in self.user_rows:
            last[row.repeat] = max(last.get(row.repeat, 0), row.group)
        return tuple(row for row in self.user_rows if row.void is None and row.group == last[row.repeat])


class Profile(Frozen):
    """Where a decode step's time goes."""

    shares: dict[str, float]
    """Part of a step -> share of its time by the engine's own clock; empty when it failed under the profiler."""
    step_ms: float
    """By the harness's clock."""
    failure: str = ""
    """How the engine failed under the profiler, or empty."""
    read_gb_s: float = 0.0
    """Best streaming read of the memory that is timed, measured after it; 0 where there was nothing to compare."""
    no_floor: str = ""
    """Why the step was held to no floor of memory, or empty."""
    violations: tuple[Violation, ...] = ()
    """What it tried meanwhile that no engine may. With any, it failed."""
    device_seconds: float = 0.0
    """Time for which the device was held, of what several held at once an equal part; waiting for it is not in it."""
