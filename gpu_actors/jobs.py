"""What a device actor is asked to do and what it returns: gate results, verdicts and benchmark rows."""

from typing import Literal

from pydantic import Field, model_validator

from benchmarks.baselines.records import Baseline, Setting
from ckb.criteria import Criterion
from ckb.facts import Facts, Frozen
from ckb.records import Choice, Contract, Stage
from ckb.violations import Violation
from gpu_actors.readability import Readability
from gpu_actors.telemetry import Conditions
from gpu_actors.usage import Usage

Level = Literal["L0", "L1", "L2", "L3"]
Acceptance = Literal["screen", "full", "fresh"]
"""What level L3 asks. `screen`: fixed prompts, sequences of at most SCREEN_CONTEXT tokens, what is dear by a draw.
`full`: fixed prompts and as many that nobody has seen before, up to the Target's whole context, with nothing drawn.
`fresh`: a full one without its fixed prompts, for a tree that passed these very ones before (docs/design/012)."""
SCREEN_CONTEXT = 1024
DEADLINE_S: dict[Acceptance, float] = {"screen": 300.0, "full": 1200.0, "fresh": 1200.0}
GateStatus = Literal["PASS", "FAIL", "BLOCKED_BY_HARDWARE"]


class Scenario(Frozen):
    """One cell of a benchmark: prompt length and new tokens, both exact (EOS is ignored, and said so)."""

    prompt_tokens: int
    new_tokens: int


class EngineJob(Frozen):
    """What a child process must know to load and drive one engine tree."""

    tree: str
    """ckb.hashing.tree_sha256 of the tree; checked again where it runs."""
    tree_dir: str
    """Folder that holds the engine's modules."""
    checkpoint: str
    """Hugging Face directory, read-only."""
    facts: Facts
    operators: tuple[str, ...] = ("torch", "triton")
    sandbox: Literal["auto", "none"] = "auto"
    max_memory_bytes: int = 0
    """Limit of the child's process group; 0 is the machine's memory."""
    max_disk_bytes: int = 0
    """Limit of what it writes; 0 is the sandbox's own."""


class VerifyJob(Frozen):
    """Gates on one candidate."""

    candidate: str
    engine: EngineJob
    stages: tuple[Stage, ...]
    """The stages whose contracts the tree must fulfil: the last is L1, the earlier ones are the L2 regression."""
    levels: tuple[Level, ...] = ("L0", "L1", "L2")
    contracts: tuple[str, ...]
    """Contract ids of the plan: a test contract runs if its contract is among them."""
    rows: tuple[Contract, ...] = ()
    """The contracts in force for the candidate's choices, as the run's version of the knowledge base has them: the
    gates that execute contracts read their columns. Without any, those gates fall away."""
    ckb_version: int = 0
    """The version that the rows are of."""
    choices: dict[str, Choice] = Field(default_factory=dict)
    """What the candidate says that it decided: each mechanism that this claims is looked for while it runs."""
    acceptance: Acceptance = "screen"
    """Size of the L3 acceptance."""
    criteria: tuple[Criterion, ...] = ()
    """The issue's executable criteria; those of the benchmark are decided after it."""
    base_dir: str = ""
    """Folder of the tree that the issue's work started from, for criteria on what changed; empty for none."""
    seed: int = 0
    """Of this verdict's draws. Authors never see it."""
    deadline_s: float = DEADLINE_S["screen"]
    checker: str = ""
    """The user's own checker, a command with absolute paths; it gates beside L3."""
    checker_files: dict[str, str] = Field(default_factory=dict)
    """File of the user's that the checker needs -> sha256 when the plan was frozen."""
    evidence_dir: str = ""
    """Where evidence files are written, named by their hash."""

    @model_validator(mode="after")
    def what_is_asked_for_can_be_judged(self) -> "VerifyJob":
        if "L3" in self.levels and "acceptance" not in self.stages:
            raise ValueError(f"L3 is the acceptance, which is not among the stages {', '.join(self.stages)}")
        return self


class EvidenceFile(Frozen):
    """One piece of evidence: a JSON file whose name is its hash."""

    sha256: str
    what: str

    @property
    def file(self) -> str:
        """Its name in a run's folder of evidence."""
        return f"{self.sha256}.json"


class Shortage(Frozen):
    """What a gate asks for and there is too little of."""

    asked: float
    available: float
    unit: Literal["bytes", "seconds"]


class GateResult(Frozen):
    """The outcome of one gate on one tree."""

    gate: str
    level: Level
    contract: str
    status: GateStatus
    summary: str
    """Expected and found, with the numbers."""
    seconds: float
    evidence: tuple[EvidenceFile, ...] = Field(min_length=1)
    blocked: Shortage | None = None
    """What there is too little of, where the status is BLOCKED_BY_HARDWARE."""
    violations: tuple[Violation, ...] = ()
    """Rows of the zero-reference rule. One that passed has none."""

    @model_validator(mode="after")
    def what_is_blocked_says_by_what(self) -> "GateResult":
        if (self.status == "BLOCKED_BY_HARDWARE") != (self.blocked is not None):
            raise ValueError(f"{self.gate} is {self.status} with {self.blocked}: only what is blocked says by what")
        return self

    @model_validator(mode="after")
    def a_violation_is_a_failure(self) -> "GateResult":
        if self.violations and self.status == "PASS":
            raise ValueError(
                f"{self.gate} passed with {len(self.violations)} violation(s), the first: {self.violations[0].what}"
            )
        return self


class Verdict(Frozen):
    """The outcome of the gates on a candidate. Only gpu_actors.verifier constructs one."""

    candidate: str
    tree: str
    stages: tuple[Stage, ...] = ()
    """Whose contracts were asked for."""
    levels: tuple[Level, ...]
    """Those that were asked for, if it passed; else those that were reached."""
    acceptance: Literal["none"] | Acceptance
    gates: tuple[GateResult, ...] = Field(min_length=1)
    sandbox: str
    """The isolation that was in force, in words."""
    device_seconds: float = 0.0
    """Time for which the device was held, of what several held at once an equal part; waiting for it is not in it."""
    readability: Readability | None = None
    """How the tree reads; None where the tests of all stages were not run, so that nobody saw which lines run."""

    @model_validator(mode="after")
    def levels_are_covered(self) -> "Verdict":
        if self.passed and not set(self.levels) <= {g.level for g in self.gates}:
            raise ValueError(f"a passed verdict needs a gate of each of the levels {', '.join(self.levels)}")
        return self

    @property
    def passed(self) -> bool:
        return all(g.status == "PASS" for g in self.gates)

    @property
    def undecided(self) -> bool:
        """Whether nothing is held against the candidate but that not everything could be asked: it was neither passed
        nor failed."""
        return bool(self.blocked) and not self.failures

    @property
    def failures(self) -> tuple[GateResult, ...]:
        """What is held against the candidate."""
        return tuple(g for g in self.gates if g.status == "FAIL")

    @property
    def blocked(self) -> tuple[GateResult, ...]:
        """What could not be decided here: it needs more memory or time than there is."""
        return tuple(g for g in self.gates if g.status == "BLOCKED_BY_HARDWARE")

    @property
    def why(self) -> str:
        """The first gate that did not let the candidate through, in words; empty if all did."""
        if self.failures:
            return f"{self.failures[0].gate} failed: {self.failures[0].summary}"
        return f"{self.blocked[0].gate} is blocked by hardware: {self.blocked[0].summary}" if self.blocked else ""

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for gate in self.gates for violation in gate.violations)


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
