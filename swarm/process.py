"""What a run took to build its engine: the process metrics of MetaInfer (section 5.1, table 1), by role.

All of it is a function of the journal, but for the lines that implementers changed, which git counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ckb.facts import Frozen
from swarm import events as e
from swarm.state import Candidate, RunState
from swarm.workspace import Workspace

EDITS = ("write_file", "edit_file")
"""Tools that change a tree."""


class RoleWork(Frozen):
    """What one role did. An agent is one conversation: each begins with a fresh context."""

    role: str
    agents: int
    messages: int
    """Replies of its author, over all conversations."""
    active_s: float
    """Seconds that its conversations took, one after the other."""
    share: float
    """Of all roles' active seconds."""
    overlap: float
    """Active seconds for each second in which any of its conversations was under way; 1 if none ran beside another."""
    tools: dict[str, int] = {}
    """Tool -> calls."""
    tokens: int
    """Prompt and completion, as far as they are told."""
    usd: float
    """As far as it is known."""
    unknown: int = 0
    """Conversations whose tokens or cost nobody told."""
    outside: int = 0
    """Paths outside of its write scope that it wanted to write."""

    @property
    def per_agent_s(self) -> float:
        return self.active_s / self.agents if self.agents else 0.0


class CodeWork(Frozen):
    """What was done by no author: verdicts and measurements."""

    what: str
    times: int
    device_s: float


class Process(Frozen):
    """A run's way to its engine."""

    run: str
    outcome: str
    """Of a run that ended; else `not finished`."""
    build_s: float
    """Seconds for which a driver was at work, over all resumes."""
    drivers: int
    """How often one took the run up."""
    roles: tuple[RoleWork, ...]
    code: tuple[CodeWork, ...]
    agents: int
    messages: int
    tools: dict[str, int]
    edits: int
    """Calls of tools that change a tree."""
    tokens: int
    usd: float
    unknown: int
    overlap: float
    """Of all roles together."""
    lines_added: int
    lines_deleted: int
    """By implementers, each attempt against the tree that it started from."""
    candidates: int
    attempts: int
    merged: int
    violations: int
    """Of the zero-reference rule (`blacklist violations` in the paper)."""
    engines: int
    """Accepted: what tokens, cost and time below are divided by."""

    def per_engine(self, value: float) -> float | None:
        """A cost per accepted engine; None for a run that has none."""
        return value / self.engines if self.engines else None


def process_of(name: str, state: RunState, run_dir: Path) -> Process:
    """`run_dir`: the run's folder, with its git repository."""
    total = sum(call.usage.seconds for call in state.roles)
    by_role = {role: [call for call in state.roles if call.role == role] for role in roles_in(state)}
    roles = tuple(work_of(role, calls, total) for role, calls in by_role.items())
    added, deleted = changed_lines(state, run_dir)
    tools: Counter[str] = Counter()
    for work in roles:
        tools.update(work.tools)
    return Process(
        run=name,
        outcome=state.finished.outcome if state.finished else "not finished",
        build_s=state.time.seconds,
        drivers=len(state.time.spans),
        roles=roles,
        code=tuple(code_of(state)),
        agents=len(state.roles),
        messages=sum(work.messages for work in roles),
        tools=dict(tools.most_common()),
        edits=sum(tools[name] for name in EDITS),
        tokens=state.tokens,
        usd=state.usd,
        unknown=sum(work.unknown for work in roles),
        overlap=overlap(state.roles),
        lines_added=added,
        lines_deleted=deleted,
        candidates=len(state.candidates),
        attempts=sum(1 for _ in attempts_of(state)),
        merged=len(state.merges),
        violations=len(state.violations),
        engines=int(state.released is not None),
    )


def roles_in(state: RunState) -> list[str]:
    """In the order in which they were first asked."""
    return list(dict.fromkeys(call.role for call in state.roles))


def work_of(role: str, calls: Sequence[e.RoleCalled], total_s: float) -> RoleWork:
    """`total_s`: active seconds of all roles."""
    usage = [call.usage for call in calls]
    active = sum(one.seconds for one in usage)
    tools: Counter[str] = Counter()
    for one in usage:
        tools.update(one.tools)
    return RoleWork(
        role=role,
        agents=len(calls),
        messages=sum(one.calls for one in usage),
        active_s=active,
        share=active / total_s if total_s else 0.0,
        overlap=overlap(calls),
        tools=dict(tools.most_common()),
        tokens=sum((one.prompt_tokens or 0) + (one.completion_tokens or 0) for one in usage),
        usd=sum(one.usd or 0.0 for one in usage),
        unknown=sum(None in (one.usd, one.prompt_tokens, one.completion_tokens) for one in usage),
        outside=sum(len(one.outside) for one in usage),
    )


def overlap(calls: Iterable[e.RoleCalled]) -> float:
    """Active seconds for each second in which any of these conversations was under way. The journal is written when one
    has ended."""
    spans = sorted((call.at - call.usage.seconds, call.at) for call in calls if call.usage.seconds > 0)
    under_way, end = 0.0, float("-inf")
    for first, last in spans:
        under_way += max(0.0, last - max(first, end))
        end = max(end, last)
    return sum(last - first for first, last in spans) / under_way if under_way else 1.0


def code_of(state: RunState) -> Iterator[CodeWork]:
    """What the devices were held for."""
    for what in dict.fromkeys(used.what for used in state.devices):
        uses = [used for used in state.devices if used.what == what]
        yield CodeWork(what=what, times=len(uses), device_s=sum(used.seconds for used in uses))


def attempts_of(state: RunState) -> Iterator[tuple[str, Candidate]]:
    """Every tree that was handed in, with the commit that its writer started from."""
    for candidate in state.candidates.values():
        attempt: Candidate | None = candidate
        while attempt:
            issue = state.issues[attempt.submitted.issue].issue
            yield (attempt.before.submitted.commit if attempt.before else issue.base), attempt
            attempt = attempt.before


def changed_lines(state: RunState, run_dir: Path) -> tuple[int, int]:
    """Lines that implementers added and deleted; none where the run's repository is gone."""
    if not (run_dir / "repo.git" / "HEAD").exists():
        return 0, 0
    workspace = Workspace(run_dir)
    try:
        found = [workspace.changed_lines(start, attempt.submitted.commit) for start, attempt in attempts_of(state)]
    finally:
        workspace.close()
    return sum(added for added, _ in found), sum(deleted for _, deleted in found)
