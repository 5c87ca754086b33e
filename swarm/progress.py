"""What a user sees while a run is at work: lines as things happen, and on a terminal a live view below them."""

import threading
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_actors.benchmark_jobs import Benchmark
from gpu_actors.jobs import Verdict
from swarm import events as e
from swarm.limits import Limits
from swarm.state import Candidate, RunState
from swarm.target import Budget

ROWS = 12
"""Most candidates in the live view: it must fit into a small terminal."""


ISSUES = 4
"""Most open issues in the live view."""


class Progress:
    """Fed with the events of a run. A context manager; thread-safe.

    Where stdout is no terminal each event is one plain line, so that a log of it can be read and searched.
    """

    def __init__(self, limits: Limits, console: Console | None = None, clock: Callable[[], float] = time.time):
        self._limits = limits
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._lock = threading.RLock()
        self._state = RunState()
        self._last_event = clock()
        self._note = ""
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self.render, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def on_event(self, event: e.AnyEvent, state: RunState) -> None:
        """Takes one event, and the state with the event in it."""
        with self._lock:
            self._state = state
            self._last_event = self._clock()
        if line := describe(event):
            self._print(line)

    def note(self, text: str) -> None:
        """What is being done at this moment."""
        with self._lock:
            new, self._note = text != self._note, text
        if text and new and not self._live:
            self._print(text)

    def _print(self, line: str) -> None:
        """Never called with the lock held: the console has one of its own, which the thread that draws the live view
        holds when it asks for ours."""
        stamp = f"[{clock_text(self.elapsed())}] "
        if self._live:
            self._console.print(Text(stamp + line), overflow="ellipsis", no_wrap=True)
        else:
            self._console.print(Text(stamp + line), soft_wrap=True)

    def elapsed(self) -> float:
        """Seconds of work on the run, those of earlier drivers included."""
        since = 0.0 if self._state.time.paused_from is not None else self._clock() - self._last_event
        return self._state.time.seconds + since

    def render(self) -> RenderableType:
        """The live view: the latest candidates, the open issues, what is being done, and the budget."""
        with self._lock:
            parts: list[RenderableType] = []
            if self._state.issues:
                parts.append(candidate_table(latest_candidates(self._state)))
            parts += [Text(line, overflow="ellipsis", no_wrap=True) for line in issue_lines(self._state)]
            parts.append(Text(f"now: {self._note or 'starting'}", overflow="ellipsis", no_wrap=True))
            parts.append(
                Text(budget_line(self._state, self._limits.now, self.elapsed()), overflow="ellipsis", no_wrap=True)
            )
            return Group(*parts)


def clock_text(seconds: float) -> str:
    """75 -> 1:15."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def budget_line(state: RunState, limits: Budget, elapsed: float) -> str:
    """`limits`: as they are now."""
    left = max(0.0, limits.minutes * 60 - elapsed)
    parts = [f"elapsed {clock_text(elapsed)}, {clock_text(left)} left"]
    parts.append(f"device {state.device_seconds:.0f} of {limits.device_seconds:.0f} s")
    if limits.usd:
        parts.append(f"{state.usd:.2f} of {limits.usd:.2f} USD")
    if limits.tokens:
        parts.append(f"{state.tokens} of {limits.tokens:.0f} tokens")
    return " · ".join(parts)


def issue_lines(state: RunState) -> list[str]:
    """The open issues, and how far the branches have come."""
    opened = [issue.issue for issue in state.issues.values() if issue.closed is None]
    lines = [f"issue {issue.id}: {issue.title}" for issue in opened[-ISSUES:]]
    counts = f"{len(state.candidates)} branches, {len(state.merges)} merged"
    return [*lines, counts] if state.issues else lines


def latest_candidates(state: RunState) -> list[Candidate]:
    """The candidates of the open issues, then the latest of the closed ones, at most ROWS, oldest first."""
    issues = sorted(state.issues.values(), key=lambda i: i.closed is None)
    return [candidate for issue in issues for candidate in issue.candidates.values()][-ROWS:]


def candidate_table(candidates: list[Candidate]) -> Table:
    """One row a candidate, cut to the width of the terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("candidate", no_wrap=True, style="cyan")
    table.add_column("state", no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for candidate in candidates:
        word, style = candidate_state(candidate)
        reason = candidate.decided.reason if candidate.decided else candidate.submitted.summary
        table.add_row(candidate.id, Text(word, style=style), Text(reason))
    return table


def candidate_state(candidate: Candidate) -> tuple[str, str]:
    """Where a candidate stands, in one or two words, and their style (colours that dark and light terminals show)."""
    if candidate.merged:
        return "merged", "bold green"
    if candidate.decided:
        return candidate.decided.decision, "green" if candidate.decided.decision == "kept" else "red"
    if candidate.verdicts:
        passed = all(verdict.passed for verdict in candidate.verdicts.values())
        return ("gates pass", "green") if passed else ("gates fail", "red")
    if candidate.blocked:
        return "blocked by hardware", "yellow"
    if candidate.findings is not None:
        return ("review finds", "red") if candidate.findings else ("reviewed", "blue")
    return "written", "blue"


GATES_OF: dict[e.Purpose, str] = {
    "stage": "gates of its stage",
    "gates": "gates",
    "screen": "acceptance",
    "merge": "gates after the merge",
    "release": "acceptance of the release",
}


def describe(event: e.AnyEvent) -> str | None:
    """One line about an event, or None for one that a user need not see."""
    match event:
        case e.RunStarted():
            return f"run of {event.target} on {event.host}, Enginesmith {event.version}"
        case e.PlanFrozen():
            return f"plan {event.plan[:12]} frozen, knowledge base version {event.ckb_version}"
        case e.IssueOpened(issue=issue):
            return f"issue {issue.id} opened: {issue.title}"
        case e.CandidateSubmitted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"{event.candidate} written on {event.branch} by {event.author}{again}: {event.summary}"
        case e.CandidateReviewed(findings=()):
            return f"{event.candidate} reviewed: no findings"
        case e.CandidateReviewed(findings=findings):
            first = findings[0]
            return (
                f"{event.candidate} reviewed: {len(findings)} finding(s), first {first.file}:{first.line} {first.found}"
            )
        case e.VerdictMade(verdict=verdict):
            level = f" ({verdict.acceptance})" if verdict.acceptance != "none" else ""
            return f"{event.candidate} {GATES_OF[event.purpose]}{level}: {verdict_line(verdict)}"
        case e.BenchmarkMade(benchmark=benchmark):
            return f"benchmark ({event.purpose}): {benchmark_line(benchmark)}"
        case e.CandidateDecided():
            return f"{event.candidate} {event.decision}: {event.reason}"
        case e.Merged():
            return f"{event.candidate} merged as {event.commit[:10]}"
        case e.PairReturned():
            return f"{event.merged} and {event.lost} go back as one issue: {event.reason}"
        case e.FailureAnalysed(answer=answer):
            return f"issue {event.issue}: {answer.cause} in {answer.contract}: {answer.explanation}"
        case _:
            return describe_end(event)


def describe_end(event: e.AnyEvent) -> str | None:
    match event:
        case e.IssueClosed():
            return f"issue {event.issue} closed: {event.outcome.replace('_', ' ')}"
        case e.ProfileMade(profile=profile):
            if profile.failure:
                return f"profile: {profile.failure}"
            shares = ", ".join(f"{part} {share:.0%}" for part, share in profile.shares.items() if part != "rest")
            return f"profile: a decode step takes {profile.step_ms:.1f} ms ({shares or 'one compiled program'})"
        case e.RoundClosed():
            return f"round {event.round} closed" + (f": {event.reason}" if event.reason else "")
        case e.EngineReleased():
            return f"engine written to {event.path}"
        case e.Consolidated():
            noticed = ((event.merged, "confirmed"), (event.lowered, "drafts"), (event.contradictions, "contradictions"))
            also = "".join(f", {len(lines)} {what}" for lines, what in noticed if lines)
            return f"knowledge base version {event.version}: {sum(event.rows.values())} rows added{also}"
        case e.IssueFiled():
            return f"the {event.role} filed an idea: {event.hypothesis.title}"
        case e.OrderTaken():
            what = event.order.do if event.order else event.name
            return f"order {what} refused: {event.refused}" if event.refused else f"order taken up: {what}"
        case e.BudgetChanged():
            return (
                f"limits are now {event.minutes:g} min, {event.device_seconds:g} device s, {event.usd:g} USD, "
                f"{event.tokens:,.0f} tokens"
            )
        case e.RunFinished():
            return f"finished: {event.outcome.replace('_', ' ')}" + (f" ({event.reason})" if event.reason else "")
    return None


def verdict_line(verdict: Verdict) -> str:
    if verdict.passed:
        return f"all {len(verdict.gates)} pass"
    if verdict.undecided:
        return verdict.why
    worst = verdict.failures[0]
    return (
        f"{len(verdict.failures)} of {len(verdict.gates)} fail, first {worst.gate} ({worst.contract}): {worst.summary}"
    )


def benchmark_line(benchmark: Benchmark) -> str:
    """Median time per token of each arm."""
    parts = []
    for arm in benchmark.arms:
        times = [row.tpot_ms for row in benchmark.rows if row.arm == arm.arm and row.void is None]
        parts.append(f"{arm.arm} {median(times):.1f} ms/token" if times else f"{arm.arm} {arm.status}")
    return ", ".join(parts)
