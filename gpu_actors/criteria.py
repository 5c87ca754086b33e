"""Runs the executable criteria of an issue (ckb.criteria) as gates on a candidate.

Those of the benchmark are decided where it is decided whether its candidate is kept (swarm.merge_queue): a verdict is
made before anything is timed.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckb.criteria import BENCHMARK, PROFILE, TREE, Criterion
from ckb.hashing import tree_files
from gpu_actors.blocked import Blocked
from gpu_actors.gates.base import Finding, Subject, failed, passed
from gpu_actors.jobs import Shortage
from gpu_actors.profiler import profile
from gpu_actors.user import run_user_benchmark

COMMAND_S = 60.0
"""What a command line must be given at least."""


def in_verdict(criteria: Sequence[Criterion]) -> dict[str, list[Criterion]]:
    """Command -> its criteria, without those that need a benchmark, in the order in which they were stated."""
    found: dict[str, list[Criterion]] = {}
    for criterion in criteria:
        if criterion.command != BENCHMARK:
            found.setdefault(criterion.command, []).append(criterion)
    return found


def findings(subject: Subject, command: str, criteria: Sequence[Criterion], cache_dir: Path) -> list[Finding]:
    """One finding for each criterion of one command, which is run once. Raises ChildFailure, and Blocked when less
    time is left than a command line must be given."""
    metrics, trouble = told(subject, command, cache_dir)
    return [judged(criterion, metrics, trouble) for criterion in criteria]


def judged(criterion: Criterion, metrics: Mapping[str, float], trouble: str = "") -> Finding:
    """Whether a criterion lets its candidate go on. A metric that nobody told speaks against it."""
    stated = f"{criterion.part}: {criterion}"
    data = {"criterion": criterion.model_dump(mode="json"), "metrics": dict(metrics)}
    if (found := metrics.get(criterion.metric)) is None:
        told_ = ", ".join(sorted(metrics)) or "nothing"
        return failed(f"{stated}: {trouble or f'{criterion.command!r} told {told_}'}", **data)
    summary = f"{stated}: found {found:g}"
    return passed(summary, **data) if criterion.speaks_for(found) else failed(summary, **data)


def told(subject: Subject, command: str, cache_dir: Path) -> tuple[dict[str, float], str]:
    """What a command tells, by metric; and why it told nothing."""
    if command == TREE:
        return changed(subject.tree_dir, Path(subject.job.base_dir)), ""
    if command == PROFILE:
        found = profile(subject.job.engine, cache_dir)
        if found.failure:
            return {}, found.failure
        return {"step_ms": found.step_ms, **{f"share.{part}": share for part, share in found.shares.items()}}, ""
    if (left := subject.seconds_left) < COMMAND_S:
        raise Blocked(f"{command!r}", Shortage(asked=COMMAND_S, available=max(0.0, left), unit="seconds"))
    run = run_user_benchmark(command, (subject.tree_dir.parent,), subject.job.engine, cache_dir, left)
    return run.metrics, "" if run.status == "PASS" else f"{run.status}: {run.summary}"


def changed(tree_dir: Path, base_dir: Path) -> dict[str, float]:
    """Lines of a tree, and the lines (added or taken away) and files in which it differs from another."""
    mine, base = texts(tree_dir), texts(base_dir)
    counts = {name: changed_lines(base.get(name, []), mine.get(name, [])) for name in mine.keys() | base.keys()}
    return {
        "lines": sum(map(len, mine.values())),
        "changed_lines": sum(counts.values()),
        "changed_files": sum(count > 0 for count in counts.values()),
    }


def texts(folder: Path) -> dict[str, list[str]]:
    return {p.relative_to(folder).as_posix(): p.read_text("utf-8").splitlines() for p in tree_files(folder)}


def changed_lines(before: list[str], after: list[str]) -> int:
    return sum(line[0] in "+-" for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- "))
