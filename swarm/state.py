"""The state of a run: a fold over its journal. Nothing else is remembered."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckb.records import Choice
from ckb.violations import LASTING, Violation
from gpu_actors.benchmark_jobs import Benchmark, Profile
from gpu_actors.jobs import Verdict
from roles.briefs import Evidence, Finding, Hypothesis, RoleName
from swarm import events as e
from swarm.orders import Pause, Steer, Unpause
from swarm.working_time import WorkingTime


@dataclass
class Candidate:
    """One candidate, as far as the journal knows it."""

    submitted: e.CandidateSubmitted
    findings: tuple[Finding, ...] | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By purpose, of the latest attempt."""
    blocked: dict[str, Verdict] = field(default_factory=dict)
    """The same for those that could not be decided where they were asked for. They are asked for again."""
    objections: tuple[str, ...] | None = None
    decided: e.CandidateDecided | None = None
    merged: e.Merged | None = None
    attempts: int = 1
    before: "Candidate | None" = None
    """The attempt before this one."""

    @property
    def id(self) -> str:
        return self.submitted.candidate

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the reviewer and the gates hold against the latest attempt."""
        findings = [
            Evidence(
                gate="review", contract=f.contract, summary=f"{f.file}:{f.line}: expected {f.expected}, found {f.found}"
            )
            for f in self.findings or ()
        ]
        failures = [
            Evidence(gate=gate.gate, contract=gate.contract, summary=gate.summary)
            for verdict in self.verdicts.values()
            for gate in verdict.failures
        ]
        return (*findings, *failures)


@dataclass(frozen=True)
class Violated:
    """One violation of the zero-reference rule, and on which tree it was found."""

    row: Violation
    attempt: int
    purpose: str
    """What the verdict was made for, or `benchmark`."""
    tree: str


@dataclass
class IssueState:
    issue: e.Issue
    ckb_version: int | None = None
    """As its event says."""
    opened_at: float = 0.0
    decided_before: int = 0
    """How many decisions of other issues' candidates the journal held when it was opened."""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    analysis: e.FailureAnalysed | None = None
    closed: e.IssueClosed | None = None


@dataclass
class RunState:
    """What happened so far."""

    started: e.RunStarted | None = None
    plan: e.PlanFrozen | None = None
    issues: dict[str, IssueState] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    benchmarks: list[e.BenchmarkMade] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    """By tree."""
    opened: dict[int, e.RoundOpened] = field(default_factory=dict)
    """By round."""
    rounds: list[e.RoundClosed] = field(default_factory=list)
    merges: list[e.Merged] = field(default_factory=list)
    returned: list[e.PairReturned] = field(default_factory=list)
    decisions: list[e.CandidateDecided] = field(default_factory=list)
    violations: list[Violated] = field(default_factory=list)
    """Of every attempt of every candidate, kept or not."""
    roles: list[e.RoleCalled] = field(default_factory=list)
    filed: list[e.IssueFiled] = field(default_factory=list)
    devices: list[e.DeviceUsed] = field(default_factory=list)
    orders: list[e.OrderTaken] = field(default_factory=list)
    budget: e.BudgetChanged | None = None
    """The limits that a person set last."""
    released: e.EngineReleased | None = None
    consolidated: e.Consolidated | None = None
    finished: e.RunFinished | None = None
    time: WorkingTime = field(default_factory=WorkingTime)
    _heard: set[tuple[RoleName, str]] = field(default_factory=set)
    """Role and name of an order: the notes that a brief of that role has carried."""

    @property
    def memory(self) -> str:
        return self.rounds[-1].memory if self.rounds else ""

    @property
    def incumbent(self) -> Candidate | None:
        """The candidate whose tree is at the tip of main."""
        return self.candidates[self.merges[-1].candidate] if self.merges else None

    @property
    def tried(self) -> list[dict[str, Choice]]:
        """Assignments that need not be tried again: those of every judged candidate, and what was asked of it, which
        may differ where a change brought others with it."""
        judged = [c for c in self.candidates.values() if not c.decided or c.decided.judged]
        return [c.submitted.choices for c in judged] + [asked for c in judged if (asked := self._asked_of(c))]

    @property
    def backlog(self) -> list[Hypothesis]:
        """What roles filed and nobody has tried: each idea once, oldest first."""
        dispatched = [state.issue.hypothesis for state in self.issues.values()]
        ideas: list[Hypothesis] = []
        for one in self.filed:
            if one.hypothesis not in ideas and one.hypothesis not in dispatched:
                ideas.append(one.hypothesis)
        return ideas

    def _asked_of(self, candidate: Candidate) -> dict[str, Choice]:
        """The choices of the tree that a hypothesis was about, with its change."""
        issue = self._issue_of(candidate.id)
        return {**self.choices_at(issue.base), **issue.hypothesis.change} if issue.hypothesis else {}

    def choices_at(self, commit: str) -> dict[str, Choice]:
        """The assignment of the tree at a commit: of a merge, or of a candidate on its branch; none of the start."""
        at = [m.choices for m in self.merges if m.commit == commit]
        at += [c.submitted.choices for c in list(self.candidates.values()) if c.submitted.commit == commit]
        return dict(at[0]) if at else {}

    def main_before(self, number: int) -> e.Merged:
        """What was on main when a round was opened: its candidates are measured against that."""
        return [m for m in self.merges if self.round_of(m.candidate) < number][-1]

    def from_main(self, candidate: Candidate) -> bool:
        """Whether a candidate of a round started from what was on main then; if not, it is of another lineage."""
        issue = self._issue_of(candidate.id)
        return issue.base == self.main_before(issue.round).commit

    def difference(self, candidate: Candidate) -> dict[str, Choice]:
        """What a candidate of a round decides otherwise than the incumbent that it is measured against."""
        before = self.main_before(self.round_of(candidate.id)).choices
        return {name: value for name, value in candidate.submitted.choices.items() if before.get(name) != value}

    def change_of(self, candidate: Candidate) -> dict[str, Choice]:
        """The change that a candidate's effect is the effect of: what its hypothesis asked for, unless that was about
        another tree than the incumbent, or left it to the implementer."""
        hypothesis = self._issue_of(candidate.id).hypothesis
        asked = hypothesis.change if hypothesis and self.from_main(candidate) else {}
        return dict(asked) or self.difference(candidate)

    @property
    def whole_engines(self) -> list[e.Merged]:
        """The merges that left a whole engine on main, in order: that of the acceptance stage and all after it."""
        whole = ("acceptance", "performance")
        return [m for m in self.merges if self._issue_of(m.candidate).stage in whole]

    def passed(self, tree: str) -> list[Verdict]:
        """Every verdict that let this very tree through."""
        verdicts = [v for c in list(self.candidates.values()) for v in list(c.verdicts.values())]
        return [v for v in verdicts if v.tree == tree and v.passed]

    def lasting_violation(self, candidate: str) -> Violated | None:
        """One after which no other attempt of this candidate is worth anything (ckb.violations.LASTING)."""
        return next((v for v in self.violations if v.row.candidate == candidate and v.row.kind in LASTING), None)

    def violation_in(self, merged: e.Merged) -> Violated | None:
        """A violation of what lies in a merged tree: found on it, on a tree that was merged before it or on what these
        merges merged, or a lasting one of any attempt of their candidates. docs/design/007 says why no other counts."""
        below = self.merges[: self.merges.index(merged) + 1]
        trees = {m.tree for m in below} | {self.candidates[m.candidate].submitted.tree for m in below}
        found = (self.lasting_violation(m.candidate) for m in below)
        return next((v for v in self.violations if v.tree in trees), None) or next((v for v in found if v), None)

    def round_of(self, candidate: str) -> int:
        """The round that a candidate belongs to; 0 for the stages."""
        return self._issue_of(candidate).round

    def _issue_of(self, candidate: str) -> e.Issue:
        return self.issues[self.candidates[candidate].submitted.issue].issue

    @property
    def incumbent_objective(self) -> float | None:
        """The objective of the tree on main, as it was measured when it was kept."""
        decided = self.incumbent.decided if self.incumbent else None
        return decided.objective if decided else None

    def benchmark(self, purpose: e.BenchmarkPurpose, number: int, candidate: str | None = None) -> Benchmark | None:
        """The benchmark that was made for this purpose in this round, if it was made."""
        key = (purpose, number, candidate)
        return next((b.benchmark for b in self.benchmarks if (b.purpose, b.round, b.candidate) == key), None)

    def calls_of(self, role: RoleName) -> int:
        return sum(call.role == role for call in self.roles)

    def profile_of(self, commit: str) -> Profile | None:
        """The profile of a tree that was merged with this commit, if it was profiled."""
        tree = next((merge.tree for merge in self.merges if merge.commit == commit), "")
        return self.profiles.get(tree)

    @property
    def final_benchmark(self) -> Benchmark | None:
        """The latest benchmark of an engine that was about to be released."""
        return next((b.benchmark for b in reversed(self.benchmarks) if b.purpose == "release"), None)

    def notes_for(self, role: RoleName) -> list[e.OrderTaken]:
        """What a person has to say to a role, and no brief of it has carried, oldest first."""
        said = [taken for taken in self.orders if isinstance(taken.order, Steer) and not taken.refused]
        meant = [taken for taken in said if isinstance(taken.order, Steer) and taken.order.role in (None, role)]
        return [taken for taken in meant if (role, taken.name) not in self._heard]

    @property
    def usd(self) -> float:
        """As far as it is known."""
        return sum(call.usage.usd or 0.0 for call in self.roles)

    @property
    def tokens(self) -> int:
        """As far as they are known."""
        return sum((call.usage.prompt_tokens or 0) + (call.usage.completion_tokens or 0) for call in self.roles)

    @property
    def device_seconds(self) -> float:
        return sum(use.seconds for use in self.devices)

    def used_by(self, issue: str, now: float) -> dict[str, float]:
        """What one issue has used so far: `usd`, `tokens`, `minutes` and `device_seconds`. `now`: seconds since 1970,
        while a driver is at work."""
        found = self.issues[issue]
        usage = [call.usage for call in self.roles if call.issue == issue]
        return {
            "usd": sum(one.usd or 0.0 for one in usage),
            "tokens": float(sum((one.prompt_tokens or 0) + (one.completion_tokens or 0) for one in usage)),
            "minutes": self.time.since(found.opened_at, now) / 60,
            "device_seconds": sum(used.seconds for used in self.devices if used.candidate in found.candidates),
        }

    def apply(self, event: e.AnyEvent) -> None:
        """Takes one event in. Events come in journal order."""
        self.time.note(event.epoch, event.at)
        match event:
            case e.RunStarted():
                self.started = self.started or event
            case e.PlanFrozen():
                self.plan = event
            case e.IssueOpened(issue=issue, ckb_version=version):
                self.issues.setdefault(issue.id, IssueState(issue, version, event.at, len(self.decisions)))
            case e.CandidateSubmitted():
                self._submit(event)
            case e.CandidateReviewed(candidate=name, findings=findings):
                self.candidates[name].findings = findings
            case e.VerdictMade(candidate=name, purpose=purpose, verdict=verdict):
                self._judge(self.candidates[name], purpose, verdict)
                rows = verdict.violations
                self.violations += [Violated(row, event.attempt, purpose, verdict.tree) for row in rows]
            case e.CandidateJudged(candidate=name, objections=objections):
                self.candidates[name].objections = objections
            case e.CandidateDecided(candidate=name):
                self.candidates[name].decided = event
                self.decisions.append(event)
            case e.Merged(candidate=name):
                self.candidates[name].merged = event
                self.merges.append(event)
            case e.PairReturned():
                self.returned.append(event)
            case e.FailureAnalysed(issue=issue_id):
                self.issues[issue_id].analysis = event
            case e.IssueClosed(issue=issue_id):
                self.issues[issue_id].closed = event
            case e.ProfileMade(tree=tree, profile=profile):
                self.profiles[tree] = profile
                self.violations += [self._timed(row, None) for row in profile.violations]
            case e.BudgetChanged():
                self.budget = event
            case e.EngineReleased():
                self.released = event
            case e.Consolidated():
                self.consolidated = event
            case e.RunFinished():
                self.finished = event
            case e.BenchmarkMade():
                self.benchmarks.append(event)
                self.violations += [self._timed(row, event.candidate) for row in event.benchmark.violations]
            case e.RoundOpened(round=number):
                self.opened[number] = event
            case e.RoundClosed():
                self.rounds.append(event)
            case e.RoleCalled():
                self.roles.append(event)
                self._heard |= {(event.role, name) for name in event.heard}
            case e.OrderTaken():
                self._obey(event)
            case e.IssueFiled():
                self.filed.append(event)
            case e.DeviceUsed():
                self.devices.append(event)

    def _obey(self, event: e.OrderTaken) -> None:
        self.orders.append(event)
        if event.refused:
            return
        match event.order:
            case Pause():
                self.time.pause(event.at)
            case Unpause():
                self.time.unpause(event.at)

    def _judge(self, candidate: Candidate, purpose: e.Purpose, verdict: Verdict) -> None:
        if verdict.undecided:
            candidate.blocked[purpose] = verdict
        else:
            candidate.blocked.pop(purpose, None)
            candidate.verdicts[purpose] = verdict

    def _timed(self, row: Violation, judged: str | None) -> Violated:
        """A violation of what was timed: the incumbent, the engine to be released (of `judged`, if that is named), or a
        candidate by its name."""
        name = row.candidate
        if name not in self.candidates:
            name = judged if name == "engine" and judged else self.merges[-1].candidate
        candidate = self.candidates[name]
        tree = candidate.merged.tree if candidate.merged else candidate.submitted.tree
        return Violated(row.model_copy(update={"candidate": name}), candidate.attempts, "benchmark", tree)

    def _submit(self, event: e.CandidateSubmitted) -> None:
        before = self.candidates.get(event.candidate)
        candidate = Candidate(event, attempts=event.attempt, before=before)
        self.candidates[event.candidate] = candidate
        self.issues[event.issue].candidates[event.candidate] = candidate


def fold(events: Iterable[e.AnyEvent]) -> RunState:
    state = RunState()
    for event in events:
        state.apply(event)
    return state
