"""What a device actor is asked to do and what it returns: gate results, verdicts and benchmark rows."""

from typing import Literal

from pydantic import Field, model_validator

from ckb.criteria import Criterion
from ckb.facts import Facts, Frozen
from ckb.records import Choice, Contract, Stage
from ckb.violations import Violation
from gpu_actors.readability import Readability

Level = Literal["L0", "L1", "L2", "L3"]
Acceptance = Literal["screen", "full", "fresh"]
"""What level L3 asks. `screen`: fixed prompts, sequences of at most SCREEN_CONTEXT tokens, what is dear by a draw.
`full`: fixed prompts and as many that nobody has seen before, up to the Target's whole context, with nothing drawn.
`fresh`: a full one without its fixed prompts, for a tree that passed these very ones before (docs/design/012)."""
SCREEN_CONTEXT = 1024
DEADLINE_S: dict[Acceptance, float] = {"screen": 300.0, "full": 1200.0, "fresh": 1200.0}
GateStatus = Literal["PASS", "FAIL", "BLOCKED_BY_HARDWARE"]


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
