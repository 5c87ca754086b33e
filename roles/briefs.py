"""What goes into a role and what comes out: one typed Brief and one typed Answer each. No role sees anything else."""

from typing import Literal

from pydantic import Field

from ckb.criteria import Criterion
from ckb.facts import Facts, Frozen
from ckb.records import Choice, Claim, Contract, Fragment, Stage

RoleName = Literal["orchestrator", "implementer", "reviewer", "judge", "evaluator", "analyst", "consolidator"]


PolicyTool = Literal["file_issue"]


class Evidence(Frozen):
    """One failed check, as a role may see it: never the draws of a verdict, only what went wrong."""

    gate: str
    contract: str
    summary: str
    """What was expected and what was found, with the numbers."""


class Hypothesis(Frozen):
    """One falsifiable idea for the performance loop."""

    title: str
    change: dict[str, Choice]
    """Decisions and parameters to change in the incumbent; empty when the author will write code freely."""
    expected_effect: float
    """Predicted relative change of the objective, positive is better."""
    acceptance: str
    falsification: str
    criteria: tuple[Criterion, ...] = ()
    """What of acceptance, activation and falsification can be executed; it runs as gates. The rest is for the judge."""


class Brief(Frozen):
    """What every role is told."""

    run: str
    facts: Facts
    choices: dict[str, Choice] = Field(default_factory=dict)
    """Assignment of decisions and parameters of the tree that the work starts from."""
    tools: tuple[PolicyTool, ...] = ()
    """Tools that the outer loop's policy gives this role."""
    notes: tuple[str, ...] = ()
    """What a person who watches the run says to this role, since it was last asked."""


class MayFile(Frozen):
    """An answer of a role that may notice, during its own work, what another round should try."""

    filed: tuple[Hypothesis, ...] = ()
    """Ideas for later rounds, beside the work itself. Only where the brief's `tools` hold `file_issue`."""


class Side(Frozen):
    """One of two candidates that gained alone and not together."""

    candidate: str
    title: str
    diff: str
    """Against the tree that it started from, unified."""
    choices: dict[str, Choice]


class Combination(Frozen):
    """What the merge queue gave back: neither side alone is wanted, since main has the one and lacks the other."""

    merged: Side
    """It is in the tree that the work starts from."""
    lost: Side
    """It isn't, and showed a gain of its own."""
    why: str
    """What happened when the two were put together."""
    measured: dict[str, Choice] | None = None
    """Assignment of the plain merge, which was measured and is not wanted; None where they could not be merged."""


class ImplementerBrief(Brief):
    """One Issue, for one implementer."""

    role: Literal["implementer"] = "implementer"
    issue: str
    stage: Stage
    objective: str
    acceptance: tuple[str, ...] = ()
    contracts: tuple[Contract, ...]
    """The contracts to fulfil, those of earlier stages included when the tree may be changed there."""
    fragments: tuple[Fragment, ...]
    """Examples filed under these contracts whose platform, model and workload conditions hold."""
    change: dict[str, Choice] = Field(default_factory=dict)
    """A performance hypothesis: the decisions or parameters to change; empty for a stage, and where `free`."""
    free: bool = False
    """What to change in the whole engine is the implementer's own affair."""
    combination: Combination | None = None
    """Two candidates to be made to work together; `change` is then that of the lost one."""
    files: dict[str, str] = Field(default_factory=dict)
    """The tree so far: path -> text."""
    failures: tuple[Evidence, ...] = ()
    """Evidence against the previous attempt at this issue."""
    instructions: str = ""
    """What the user asked for in plain words."""
    seed: int = 0
    """Different seeds ask for different valid designs; seed 0 takes every default."""
    operators: tuple[str, ...] = ("torch", "triton")
    """Low-level operator libraries that the engine may import."""
    deliverable: str = ""
    """The shape that the user wants of the result (`user.deliverable`)."""
    shares: dict[str, float] = Field(default_factory=dict)
    """Measured share of a decode step by part, of the tree that an issue starts from; empty: not profiled."""
    step_ms: float | None = None
    """Of that step, by the harness's clock."""


class Span(Frozen):
    """Lines of a file that came from one fragment."""

    file: str
    first: int
    last: int
    contract: str
    fragment: str


class ImplementerAnswer(MayFile):
    """A tree. It says what was done, never that it works."""

    files: dict[str, str]
    """The whole tree after the change: path -> text."""
    choices: dict[str, Choice] = Field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    """Bill of materials, where the author knows it."""
    summary: str
    """One line: the design that was chosen, or why the work is blocked."""
    missing_contract: str | None = None
    """A contract that can't be fulfilled from the knowledge given: a gap."""


class ReviewerBrief(Brief):
    """A candidate's tree against its contracts."""

    role: Literal["reviewer"] = "reviewer"
    issue: str
    contracts: tuple[Contract, ...]
    files: dict[str, str]
    operators: tuple[str, ...] = ("torch", "triton")
    """Low-level operator libraries that the engine may import."""


class Finding(Frozen):
    """One deviation from a contract."""

    contract: str
    file: str
    line: int
    expected: str
    found: str


class ReviewerAnswer(Frozen):
    """Findings; none means that the tree may be gated. The reviewer runs nothing and replaces no test."""

    findings: tuple[Finding, ...] = ()


class JudgeBrief(Brief):
    """A gated candidate, for a second opinion on its honesty."""

    role: Literal["judge"] = "judge"
    issue: str
    files: dict[str, str]
    gates: tuple[str, ...]
    """Lines of the verdict."""
    criteria: tuple[str, ...] = ()
    """What the issue states in prose, which no gate can decide."""


class JudgeAnswer(MayFile):
    """A judge can fail a candidate, never pass one."""

    objections: tuple[str, ...] = ()


class Lesson(Claim):
    """One thing learned, as a role says it. Where it comes from and how it is filed are not a role's to say."""

    id: str
    applies_to: str
    """The class of targets for which it should hold."""


class EvaluatorBrief(Brief):
    """The incumbent, where its time goes, and the space that is still open."""

    role: Literal["evaluator"] = "evaluator"
    metric: str
    current: float | None
    """The incumbent's metric; None while it was not measured."""
    bound: float | None
    """Roofline bound of the metric, same unit; None for a metric of the user's own, which has none."""
    shares: dict[str, float]
    """Measured share of a decode step by part (linear, attention, head, rest); sums to 1."""
    step_ms: float | None = None
    """Of that step, by the harness's clock; None where it wasn't profiled."""
    space: dict[str, tuple[Choice, ...]]
    """Open decisions and parameters with their values."""
    affects: dict[str, tuple[str, ...]]
    """Decision or parameter -> the parts of a step that it can change."""
    tried: tuple[dict[str, Choice], ...]
    """Assignments that were measured or rejected already."""
    known: tuple[Lesson, ...] = ()
    """What earlier runs learned of changes on Targets like this one."""
    wanted: int
    """How many hypotheses to return at most."""
    memory: str = ""
    """The orchestrator's long-term memory (MEMORY.md)."""


class EvaluatorAnswer(MayFile):
    hypotheses: tuple[Hypothesis, ...] = ()


Meaning = Literal["gain", "no gain", "failed implementation", "not found out"]
"""What a candidate's end says about its idea. Only `no gain` speaks against it: it was at work and didn't help. A
failed implementation (review, gates, judge, a crash while it was timed) needs mending or a narrower scope."""


class Outcome(Frozen):
    """What became of one candidate, for the long-term memory."""

    line: str
    """Change, outcome and effect, as authors may see them."""
    meaning: Meaning


class OrchestratorBrief(Brief):
    """Proposed hypotheses, to be ordered and cut to what the round can dispatch."""

    role: Literal["orchestrator"] = "orchestrator"
    hypotheses: tuple[Hypothesis, ...]
    parallel: int
    memory: str
    last_round: tuple[Outcome, ...] = ()
    """One for each candidate of the last round."""
    minimum: float = 0.0
    """A smaller gain is not kept, so what promises less is not worth a candidate."""
    filed: tuple[int, ...] = ()
    """Indices of the hypotheses that a role filed during its work; the others are the evaluator's."""


class OrchestratorAnswer(Frozen):
    dispatch: tuple[int, ...]
    """Indices into the hypotheses, most promising first."""
    memory: str
    """The new MEMORY.md."""
    stop: bool = False
    """No direction is worth another round."""


class AnalystBrief(Brief):
    """A candidate that failed its retries."""

    role: Literal["analyst"] = "analyst"
    issue: str
    failures: tuple[Evidence, ...]
    contracts: tuple[Contract, ...]


class AnalystAnswer(Frozen):
    cause: Literal["knowledge gap", "wrong assumption", "implementation", "platform limit", "harness"]
    contract: str
    explanation: str
    next_step: str


class Mended(Frozen):
    """A gate that refused one attempt of a candidate and let a later one pass."""

    id: str
    """`issue/gate`."""
    evidence: Evidence
    """What the gate found the first time."""
    author: str
    """Who wrote both attempts."""
    notes: str
    """What its implementer says of the attempt that passed."""


class ConsolidatorBrief(Brief):
    """Everything that a verified run measured and saw fail."""

    role: Literal["consolidator"] = "consolidator"
    measured: tuple[Lesson, ...]
    """Candidates' effects as the harness measured them, one each, not yet generalised."""
    mended: tuple[Mended, ...] = ()
    """Failing tests that the run fixed."""


class ConsolidatorAnswer(Frozen):
    experience: tuple[Lesson, ...]
