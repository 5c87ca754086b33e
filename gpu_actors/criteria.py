"""Runs the executable criteria of an issue (ckb.criteria) as gates on a candidate.

Those of the benchmark are decided where it is decided whether its candidate is kept (swarm.merge_queue): a verdict is
made before anything is timed.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckb.criteria import BENCHMARK, PROFILE, TREE, Criterion
from ckb.errors import UserError
from ckb.hashing import tree_files
from ckb.violations import Violation
from gpu_actors.blocked import Blocked
from gpu_actors.gates.base import Finding, Subject, failed, passed
from gpu_actors.jobs import Shortage
from gpu_actors.profiler import profile
from gpu_actors.user import UserRun, resolve, run_user_benchmark

COMMAND_S = 60.0
"""What a verdict with a command line among its criteria must be given at least. What its gates leave of that is the
candidate's own affair."""


@dataclass(frozen=True)
class Telling:
    """What one command told of a candidate."""

    metrics: dict[str, float] = field(default_factory=dict)
    trouble: str = ""
    """Why it told nothing."""
    violations: tuple[Violation, ...] = ()
    """What the candidate tried meanwhile that no engine may. With any, nothing that was told counts."""


def in_verdict(criteria: Sequence[Criterion]) -> dict[str, list[Criterion]]:
    """Command -> its criteria, without those that need a benchmark, in the order in which they were stated."""
    found: dict[str, list[Criterion]] = {}
    for criterion in criteria:
        if criterion.command != BENCHMARK:
            found.setdefault(criterion.command, []).append(criterion)
    return found


def findings(subject: Subject, command: str, criteria: Sequence[Criterion], cache_dir: Path) -> list[Finding]:
    """One finding for each criterion of one command, which is run once. Its violations, each once, are the first one's.
    Raises Blocked when the verdict was given less time than a command line must be given."""
    telling = told(subject, command, cache_dir, f"{criteria[0].part}_of_issue")
    found = [judged(criterion, telling.metrics, telling.trouble) for criterion in criteria]
    return [replace(found[0], violations=telling.violations), *found[1:]]


def judged(criterion: Criterion, metrics: Mapping[str, float], trouble: str = "") -> Finding:
    """Whether a criterion lets its candidate go on. A metric that nobody told speaks against it."""
    stated = f"{criterion.part}: {criterion}"
    data = {"criterion": criterion.model_dump(mode="json"), "metrics": dict(metrics)}
    if (found := metrics.get(criterion.metric)) is None:
        told_ = ", ".join(sorted(metrics)) or "nothing"
        return failed(f"{stated}: {trouble or f'{criterion.command!r} told {told_}'}", **data)
    summary = f"{stated}: found {found:g}"
    return passed(summary, **data) if criterion.speaks_for(found) else failed(summary, **data)


def told(subject: Subject, command: str, cache_dir: Path, gate: str) -> Telling:
    """Runs one command. `gate`: of its violations."""
    if command == TREE:
        return Telling(changed(subject.tree_dir, Path(subject.job.base_dir)))
    if command == PROFILE:
        found = profile(subject.job.engine, cache_dir, subject.job.candidate, gate, subject.seconds_left)
        return Telling({} if found.failure else {"step_ms": found.step_ms}, found.failure, found.violations)
    try:
        resolve(command)
    except UserError as error:  # an author stated it: it speaks against the candidate, and ends no run
        return Telling(trouble=str(error))
    if (given := subject.job.deadline_s) < COMMAND_S:
        raise Blocked(f"{command!r}", Shortage(asked=COMMAND_S, available=given, unit="seconds"))
    if (left := subject.seconds_left) <= 0:
        return Telling(trouble=f"its gates left nothing of the {given:.0f} s of its verdict to run {command!r}")
    return ran(
        run_user_benchmark(command, (subject.tree_dir.parent,), subject.job.engine, cache_dir, left), subject, gate
    )


def ran(run: UserRun, subject: Subject, gate: str) -> Telling:
    """What a command line told."""
    rows = tuple(row.model_copy(update={"candidate": subject.job.candidate, "gate": gate}) for row in run.violations)
    return Telling(run.metrics, "" if run.status == "PASS" else f"{run.status}: {run.summary}", rows)


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
    """Lines taken away and added. Not by ndiff, which looks for likeness within lines: on a thousand lines of a
    candidate's choice it takes minutes."""
    edits = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(i2 - i1 + j2 - j1 for kind, i1, i2, j1, j2 in edits if kind != "equal")
