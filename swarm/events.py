"""Everything that happens in a run, as typed events. The journal is their sequence, and the state is folded from it."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ckb.criteria import Criterion
from ckb.facts import Frozen
from ckb.records import Choice, Stage
from gpu_actors.benchmark_jobs import Benchmark, Profile
from gpu_actors.jobs import Verdict
from roles.author import Usage
from roles.briefs import AnalystAnswer, Finding, Hypothesis, RoleName, Span
from swarm.orders import Order

Purpose = Literal["stage", "gates", "screen", "merge", "release"]
"""Why a verdict was made: stage: its stage's gates; gates: L0 to L2 of a performance candidate, before it is timed;
screen: the L3 acceptance of one that showed a gain; merge: after a merge; release: the last one, of the engine."""


BenchmarkPurpose = Literal["baseline", "round", "again", "merge", "release", "ablation"]
"""Why engines were timed: baseline: Hugging Face alone; round: candidates against the incumbent; again: one that won,
against the incumbent once more; merge: after a merge onto another; release: the engine, against Hugging Face and itself
without each mechanism; ablation: what of the latter one run can't hold."""
Decision = Literal["kept", "discarded"]
IssueOutcome = Literal["merged", "nothing_kept", "failed", "exhausted"]
"""exhausted: of a returned pair nothing new came."""
Outcome = Literal["accepted", "no_engine", "budget", "blocked"]
"""blocked: a gate needs more memory or time than there is here; the run can be resumed where there is more."""


class Event(Frozen):
    at: float = 0.0
    """Seconds since the epoch; the journal sets it."""
    epoch: int = 0
    """Journal file that holds the event; the journal sets it."""


class RunStarted(Event):
    kind: Literal["run_started"] = "run_started"
    run: str
    """The run's own id, whatever its folder is called."""
    target: str
    """Name of the Target (its file without .yaml)."""
    host: str
    version: str
    """Enginesmith's own version."""


class PlanFrozen(Event):
    kind: Literal["plan_frozen"] = "plan_frozen"
    plan: str
    """Hash of RUN/plan.json."""
    ckb_version: int


class Issue(Frozen):
    """One unit of work for implementers."""

    id: str
    stage: Stage | Literal["performance"]
    title: str
    acceptance: tuple[str, ...] = ()
    """In prose: what no gate of the issue's own decides is for the judge."""
    criteria: tuple[Criterion, ...] = ()
    """What of it is executable; it runs as gates of this issue."""
    hypothesis: Hypothesis | None = None
    """For the performance loop: expected effect, activation and falsification."""
    base: str
    """Commit that the work starts from."""
    round: int = 0
    """Round of the performance loop; 0 for the stages."""
    island: int | None = None
    """Where a policy keeps several populations: the one that it belongs to."""
    parents: tuple[str, ...] = ()
    """Candidates whose choices went into the hypothesis, that of the base first; none: it is about what was on main."""
    combines: tuple[str, ...] = ()
    """A pair that came back from the merge queue: the candidate that was merged, and the one that was lost on it."""
    seed: int = 0
    """Added to the seeds of its implementers, where the same issue is given out again and again."""


class IssueOpened(Event):
    kind: Literal["issue_opened"] = "issue_opened"
    issue: Issue
    ckb_version: int | None = None
    """Version of the knowledge base that the issue's roles read and query; None in journals from before this field: the
    plan's, as for all issues of one run so far."""


class CandidateSubmitted(Event):
    kind: Literal["candidate_submitted"] = "candidate_submitted"
    candidate: str
    issue: str
    attempt: int
    branch: str
    commit: str
    tree: str
    """ckb.hashing.tree_sha256 of the engine tree."""
    author: str
    choices: dict[str, Choice]
    spans: tuple[Span, ...] = ()
    summary: str
    lines: int


class CandidateReviewed(Event):
    kind: Literal["candidate_reviewed"] = "candidate_reviewed"
    candidate: str
    attempt: int
    findings: tuple[Finding, ...]


class VerdictMade(Event):
    kind: Literal["verdict_made"] = "verdict_made"
    candidate: str
    attempt: int
    purpose: Purpose
    verdict: Verdict


class BenchmarkMade(Event):
    kind: Literal["benchmark_made"] = "benchmark_made"
    purpose: BenchmarkPurpose
    round: int = 0
    candidate: str | None = None
    """The candidate of an `again`, `merge` or `release` benchmark."""
    benchmark: Benchmark


class ProfileMade(Event):
    kind: Literal["profile_made"] = "profile_made"
    tree: str
    profile: Profile


class CandidateJudged(Event):
    """What the judge holds against a candidate that the gates let through."""

    kind: Literal["candidate_judged"] = "candidate_judged"
    candidate: str
    objections: tuple[str, ...]


class CandidateDecided(Event):
    """The row that says why a candidate was kept or discarded. Its branch stays either way."""

    kind: Literal["candidate_decided"] = "candidate_decided"
    candidate: str
    decision: Decision
    reason: str
    told: str = ""
    """The reason as authors are told it, where it has figures of the inputs that decide; empty: they may see it all."""
    effect: float | None = None
    """Relative change of the objective against the incumbent of the same run, positive is better."""
    interval: tuple[float, float] | None = None
    objective: float | None = None
    """The metric as measured for this candidate."""
    judged: bool = True
    """False: nothing was found out about it (no valid measurement), so the same tree may be tried again."""


class Merged(Event):
    kind: Literal["merged"] = "merged"
    candidate: str
    commit: str
    """Commit on main."""
    tree: str
    choices: dict[str, Choice]
    """Assignment of the merged tree."""


class PairReturned(Event):
    """Two candidates gained alone and not together: the pair goes back as an issue of the next round."""

    kind: Literal["pair_returned"] = "pair_returned"
    merged: str
    lost: str
    reason: str
    """Without the figures that decided: authors are told it."""
    measured: dict[str, Choice] | None = None
    """Assignment of the merge that was measured; None where there was no merge, for a conflict."""


class IssueClosed(Event):
    kind: Literal["issue_closed"] = "issue_closed"
    issue: str
    outcome: IssueOutcome


class FailureAnalysed(Event):
    kind: Literal["failure_analysed"] = "failure_analysed"
    issue: str
    candidate: str
    answer: AnalystAnswer


class RoundOpened(Event):
    """What the orchestrator decided for a round, in one event: a round is never half dispatched."""

    kind: Literal["round_opened"] = "round_opened"
    round: int
    issues: tuple[Issue, ...]
    memory: str
    """MEMORY.md for after the round."""
    stop: bool
    """Whether this round is the last one."""
    reason: str = ""
    """Why the search ends with it; empty while it goes on, and in journals from before this field."""


class RoundClosed(Event):
    kind: Literal["round_closed"] = "round_closed"
    round: int
    memory: str
    """The orchestrator's MEMORY.md after the round."""
    stop: bool
    reason: str = ""


class RoleCalled(Event):
    kind: Literal["role_called"] = "role_called"
    role: RoleName
    usage: Usage
    issue: str | None = None
    candidate: str | None = None
    member: str = ""
    """Which member of the role's ensemble was asked; empty where one author answers for the role."""
    heard: tuple[str, ...] = ()
    """Names of the orders whose notes its brief carried: one that came while it was at work is for the next."""


class IssueFiled(Event):
    """A role filed an idea for a later round, during its own work."""

    kind: Literal["issue_filed"] = "issue_filed"
    hypothesis: Hypothesis
    role: RoleName
    issue: str | None = None
    """What it was at work on."""
    candidate: str | None = None


class DeviceUsed(Event):
    kind: Literal["device_used"] = "device_used"
    what: Literal["verify", "benchmark", "profile", "tests"]
    """tests: an author's own runs of its stage's public tests."""
    seconds: float
    candidate: str | None = None


class OrderTaken(Event):
    """A driver took up what a person had ordered."""

    kind: Literal["order_taken"] = "order_taken"
    name: str
    """Of its file."""
    order: Order | None = None
    """None: it could not be read."""
    refused: str = ""
    """Why it was not obeyed."""


class BudgetChanged(Event):
    """A person changed the limits of the run, or a driver found them changed."""

    kind: Literal["budget_changed"] = "budget_changed"
    usd: float
    tokens: float
    minutes: float
    device_seconds: float


class EngineReleased(Event):
    kind: Literal["engine_released"] = "engine_released"
    path: str
    """Relative to ENGINESMITH_HOME."""
    tree: str
    commit: str
    candidate: str
    """The candidate whose merge made the tree."""


class Consolidated(Event):
    kind: Literal["consolidated"] = "consolidated"
    version: int
    rows: dict[str, int]
    """Rows added by table."""
    merged: tuple[str, ...] = ()
    """Ids of experience rows that this run is further evidence of."""
    lowered: tuple[str, ...] = ()
    """Rows that are drafts, each with the reason."""
    contradictions: tuple[str, ...] = ()
    """Stored rows that this run's findings speak against, one line each."""


class RunFinished(Event):
    kind: Literal["run_finished"] = "run_finished"
    outcome: Outcome
    reason: str = ""


AnyEvent = Annotated[
    RunStarted
    | PlanFrozen
    | IssueOpened
    | CandidateSubmitted
    | CandidateReviewed
    | VerdictMade
    | BenchmarkMade
    | ProfileMade
    | CandidateJudged
    | CandidateDecided
    | Merged
    | PairReturned
    | IssueClosed
    | FailureAnalysed
    | RoundOpened
    | RoundClosed
    | RoleCalled
    | IssueFiled
    | DeviceUsed
    | OrderTaken
    | BudgetChanged
    | EngineReleased
    | Consolidated
    | RunFinished,
    Field(discriminator="kind"),
]
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
