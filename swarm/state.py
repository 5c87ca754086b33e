"""The state of a run: a fold over its journal. Nothing else is remembered, so any driver knows what the last one knew."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckb.records import Choice
from gpu_actors.jobs import Profile, Verdict
from roles.briefs import Finding
from swarm import events as e


@dataclass
class Candidate:
    """One candidate, as far as the journal knows it."""

    submitted: e.CandidateSubmitted
    findings: tuple[Finding, ...] | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By purpose, of the latest attempt."""
    decided: e.CandidateDecided | None = None
    merged: e.Merged | None = None
    attempts: int = 1

    @property
    def id(self) -> str:
        return self.submitted.candidate


@dataclass
class IssueState:
    issue: e.Issue
    candidates: dict[str, Candidate] = field(default_factory=dict)
    analysis: e.FailureAnalysed | None = None
    closed: e.IssueClosed | None = None


@dataclass
class RunState:
    """What happened so far."""

    started: e.RunStarted | None = None
    plan: e.PlanFrozen | None = None
    issues: dict[str, IssueState] = field(default_factory=dict)
    benchmarks: list[e.BenchmarkMade] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    """By tree."""
    rounds: list[e.RoundClosed] = field(default_factory=list)
    merges: list[e.Merged] = field(default_factory=list)
    roles: list[e.RoleCalled] = field(default_factory=list)
    devices: list[e.DeviceUsed] = field(default_factory=list)
    released: e.EngineReleased | None = None
    consolidated: e.Consolidated | None = None
    finished: e.RunFinished | None = None
    spans_of_time: list[tuple[float, float]] = field(default_factory=list)
    """First and last event of each epoch: the time that the run was worked on."""

    @property
    def candidates(self) -> dict[str, Candidate]:
        return {c.id: c for issue in self.issues.values() for c in issue.candidates.values()}

    @property
    def memory(self) -> str:
        return self.rounds[-1].memory if self.rounds else ""

    @property
    def incumbent(self) -> Candidate | None:
        """The candidate whose tree is at the tip of main."""
        return self.candidates[self.merges[-1].candidate] if self.merges else None

    @property
    def tried(self) -> list[dict[str, Choice]]:
        """Assignments of every candidate so far."""
        return [c.submitted.choices for c in self.candidates.values()]

    @property
    def active_seconds(self) -> float:
        return sum(last - first for first, last in self.spans_of_time)

    @property
    def usd(self) -> float:
        return sum(call.usage.usd for call in self.roles)

    @property
    def tokens(self) -> int:
        return sum(call.usage.prompt_tokens + call.usage.completion_tokens for call in self.roles)

    @property
    def device_seconds(self) -> float:
        return sum(use.seconds for use in self.devices)

    def apply(self, event: e.AnyEvent) -> None:
        """Takes one event in. Events come in journal order."""
        self._note_time(event)
        match event:
            case e.RunStarted():
                self.started = self.started or event
            case e.PlanFrozen():
                self.plan = event
            case e.IssueOpened(issue=issue):
                self.issues.setdefault(issue.id, IssueState(issue))
            case e.CandidateSubmitted():
                self._submit(event)
            case e.CandidateReviewed(candidate=name, findings=findings):
                self.candidates[name].findings = findings
            case e.VerdictMade(candidate=name, purpose=purpose, verdict=verdict):
                self.candidates[name].verdicts[purpose] = verdict
            case e.CandidateDecided(candidate=name):
                self.candidates[name].decided = event
            case e.Merged(candidate=name):
                self.candidates[name].merged = event
                self.merges.append(event)
            case e.FailureAnalysed(issue=issue_id):
                self.issues[issue_id].analysis = event
            case e.IssueClosed(issue=issue_id):
                self.issues[issue_id].closed = event
            case e.ProfileMade(tree=tree, profile=profile):
                self.profiles[tree] = profile
            case e.EngineReleased():
                self.released = event
            case e.Consolidated():
                self.consolidated = event
            case e.RunFinished():
                self.finished = event
            case e.BenchmarkMade():
                self.benchmarks.append(event)
            case e.RoundClosed():
                self.rounds.append(event)
            case e.RoleCalled():
                self.roles.append(event)
            case e.DeviceUsed():
                self.devices.append(event)

    def _submit(self, event: e.CandidateSubmitted) -> None:
        candidates = self.issues[event.issue].candidates
        candidates[event.candidate] = Candidate(event, attempts=event.attempt)

    def _note_time(self, event: e.AnyEvent) -> None:
        while len(self.spans_of_time) < event.epoch:
            self.spans_of_time.append((event.at, event.at))
        first, _ = self.spans_of_time[event.epoch - 1]
        self.spans_of_time[event.epoch - 1] = (first, max(event.at, first))


def fold(events: Iterable[e.AnyEvent]) -> RunState:
    state = RunState()
    for event in events:
        state.apply(event)
    return state
