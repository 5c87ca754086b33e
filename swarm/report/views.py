"""What the page shows of the run's state: the branch tree, the gates, time and cost, the bill of materials."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckb.records import Choice
from gpu_actors.jobs import Verdict
from gpu_actors.readability import Readability
from roles.briefs import Span
from swarm.ablation import Ablation, results
from swarm.plan import Plan
from swarm.report.chart import Fate, Shot
from swarm.report.words import number
from swarm.state import Candidate, IssueState, RunState


@dataclass(frozen=True)
class Change:
    """One decision or parameter in which a candidate differs from what it started from."""

    name: str
    old: Choice | None
    """None: the incumbent had not decided it yet."""
    new: Choice


@dataclass(frozen=True)
class CandidateView:
    candidate: Candidate
    changes: tuple[Change, ...]

    @property
    def fate(self) -> Fate:
        return fate(self.candidate)


@dataclass(frozen=True)
class IssueView:
    issue: IssueState
    candidates: tuple[CandidateView, ...]


@dataclass(frozen=True)
class VerdictView:
    candidate: str
    purpose: str
    verdict: Verdict

    @property
    def seconds(self) -> float:
        return sum(gate.seconds for gate in self.verdict.gates)

    @property
    def passed(self) -> int:
        return sum(gate.status == "PASS" for gate in self.verdict.gates)


@dataclass(frozen=True)
class RoleCost:
    role: str
    authors: str
    calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    """What is known of it; None where nothing is."""
    unpriced: int
    """Answers whose author didn't tell what they cost."""
    outside: tuple[str, ...]
    """Paths that it wrote or wanted to write and may not."""
    isolation: str
    """How the commands that answered for it were confined; empty where none did."""


@dataclass(frozen=True)
class DeviceCost:
    what: str
    uses: int
    seconds: float


@dataclass(frozen=True)
class Material:
    """Lines of the engine that came from one fragment."""

    contract: str
    fragment: str
    files: str
    lines: int


def ablations(state: RunState, plan: Plan) -> tuple[Ablation, ...]:
    """What each kept mechanism is worth in the released tree; empty before the release."""
    merged = next((m for m in state.merges if state.released and m.commit == state.released.commit), None)
    return results(state, plan, merged) if merged else ()


def readability(state: RunState) -> Readability | None:
    """How the tree on main reads, from the latest verdict that saw all of it run."""
    seen = [v.readability for v in state.passed(state.merges[-1].tree) if v.readability] if state.merges else []
    return seen[-1] if seen else None


def fate(candidate: Candidate) -> Fate:
    return candidate.decided.decision if candidate.decided else "open"


def branch_tree(state: RunState) -> tuple[IssueView, ...]:
    """Issues in the order in which they were opened, each with its candidates."""
    return tuple(
        IssueView(issue, tuple(CandidateView(c, changes(state, issue, c)) for c in issue.candidates.values()))
        for issue in state.issues.values()
    )


def changes(state: RunState, issue: IssueState, candidate: Candidate) -> tuple[Change, ...]:
    """Where the candidate differs from the tree it started from.

    A decision that this tree had not taken yet is listed only if the issue's candidates took it differently: what all
    of them chose tells nothing about this one.
    """
    base: dict[str, Choice] = {}
    for merge in state.merges:
        if merge.commit == issue.issue.base:
            base = merge.choices
    siblings = [c.submitted.choices for c in issue.candidates.values()]
    found = []
    for name, new in sorted(candidate.submitted.choices.items()):
        old = base.get(name)
        contested = name not in base and any(other.get(name) != new for other in siblings)
        if contested or (name in base and old != new):
            found.append(Change(name, old, new))
    return tuple(found)


def verdicts(state: RunState) -> tuple[VerdictView, ...]:
    """The latest verdict of each candidate and purpose, in the order of the candidates."""
    return tuple(
        VerdictView(candidate.id, purpose, verdict)
        for candidate in state.candidates.values()
        for purpose, verdict in (candidate.verdicts | candidate.blocked).items()
    )


def shots(state: RunState, values: Mapping[str, float], unit: str) -> tuple[Shot, ...]:
    """The candidates of the trajectory: the stages, then each round, by time of decision in each.

    `values` holds the objective of candidates whose row has none.
    """
    found = []
    for issue in state.issues.values():
        group = f"round {issue.issue.round}" if issue.issue.round else "stages"
        for candidate in issue.candidates.values():
            decided = candidate.decided
            value = decided.objective if decided and decided.objective is not None else values.get(candidate.id)
            measured = f"{number(value)} {unit}, " if value is not None else ""
            note = f"{measured}{decided.decision}: {decided.reason}" if decided else "not decided"
            shot = Shot(candidate.id, group, value, fate(candidate), candidate.merged is not None, note)
            found.append((issue.issue.round, decided.at if decided else float("inf"), shot))
    return tuple(shot for _, _, shot in sorted(found, key=lambda entry: entry[:2]))


def role_costs(state: RunState) -> tuple[RoleCost, ...]:
    """Calls by role, the most expensive in time first."""
    calls = defaultdict(list)
    for call in state.roles:
        calls[call.role].append(call.usage)
    rows = [
        RoleCost(
            role=role,
            authors=", ".join(sorted({f"{u.author} {u.model}".strip() for u in usages})),
            calls=sum(u.calls for u in usages),
            seconds=sum(u.seconds for u in usages),
            prompt_tokens=sum(u.prompt_tokens or 0 for u in usages),
            completion_tokens=sum(u.completion_tokens or 0 for u in usages),
            usd=total([u.usd for u in usages if u.usd is not None]),
            unpriced=sum(u.usd is None for u in usages),
            outside=tuple(dict.fromkeys(path for u in usages for path in u.outside)),
            isolation="; or ".join(sorted({u.isolation for u in usages if u.isolation})),
        )
        for role, usages in calls.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def total(known: Sequence[float]) -> float | None:
    """None of no figures: an unknown cost is none of zero."""
    return sum(known) if known else None


def device_costs(state: RunState) -> tuple[DeviceCost, ...]:
    """Device time by what it was used for, the largest first."""
    seconds = defaultdict(list)
    for use in state.devices:
        seconds[use.what].append(use.seconds)
    rows = [DeviceCost(what, len(values), sum(values)) for what, values in seconds.items()]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def bill_of_materials(spans: tuple[Span, ...]) -> tuple[Material, ...]:
    """Lines by contract and fragment, the largest first."""
    lines: defaultdict[tuple[str, str], int] = defaultdict(int)
    files: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for span in spans:
        key = span.contract, span.fragment
        lines[key] += span.last - span.first + 1
        files[key].add(span.file)
    rows = [Material(*key, ", ".join(sorted(files[key])), total) for key, total in lines.items()]
    return tuple(sorted(rows, key=lambda row: (-row.lines, row.contract)))
