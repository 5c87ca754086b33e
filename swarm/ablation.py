"""What each kept mechanism is worth in the final engine: the engine against itself with only that one undone.

A gain that was measured when it came may have been overtaken by what came after it. A merge is undone in git, whoever
wrote it; where a later one changed the same lines or replaced them it can't be, and that is said.
"""

from collections.abc import Sequence

from ckb.facts import Frozen
from ckb.records import Choice
from gpu_actors.benchmark_jobs import Arm, Benchmark
from swarm import events as e
from swarm.context import Context
from swarm.measure import compare
from swarm.plan import Plan
from swarm.state import RunState
from swarm.workspace import MergeConflict

ENGINE = "engine"
"""The arm of what is to be released."""


class Ablation(Frozen):
    """One kept mechanism, at release."""

    candidate: str
    title: str
    change: dict[str, Choice]
    effect: float | None
    """Of having it, on the objective; None where it was not measured."""
    interval: tuple[float, float] | None
    why: str = ""
    """Why there is no effect."""


def name_of(candidate: str) -> str:
    """The arm without a candidate's change."""
    return f"without {candidate}"


def kept(state: RunState, merged: e.Merged) -> list[e.Merged]:
    """The merges of performance candidates that a tree on main consists of, in order."""
    below = state.merges[: state.merges.index(merged) + 1]
    return [merge for merge in below if state.round_of(merge.candidate) > 0]


def arms(context: Context, merged: e.Merged) -> list[Arm]:
    """The engine without each of its mechanisms; those that can't be undone alone, and those of which
    nothing is left, are left out."""
    found = []
    for merge in kept(context.state, merged):
        branch = f"without/{merge.candidate}"
        try:
            undone = context.workspace.without(merge.commit, merged.commit, branch)
        except MergeConflict:
            continue
        if undone.tree == merged.tree:
            continue
        found.append(Arm(name=name_of(merge.candidate), engine=context.engine_job(undone.commit, undone.tree)))
    return found


def results(state: RunState, plan: Plan, merged: e.Merged) -> tuple[Ablation, ...]:
    """What the benchmarks at the release of this tree say of each mechanism."""
    made = [b.benchmark for b in state.benchmarks if b.purpose in ("release", "ablation")]
    mine = [b for b in made if {arm.arm for arm in b.arms} & {name_of(m.candidate) for m in kept(state, merged)}]
    return tuple(_result(state, plan, merge, mine) for merge in kept(state, merged))


def _result(state: RunState, plan: Plan, merge: e.Merged, made: Sequence[Benchmark]) -> Ablation:
    candidate = state.candidates[merge.candidate]
    title = state.issues[candidate.submitted.issue].issue.title
    told = {"candidate": merge.candidate, "title": title, "change": state.change_of(candidate)}
    arm = name_of(merge.candidate)
    timed = next((b for b in reversed(made) if any(result.arm == arm for result in b.arms)), None)
    if timed is None:
        why = "it can't be undone alone: what was merged later changed or replaced its lines"
        return Ablation(**told, effect=None, interval=None, why=why)
    if measured := compare(timed, plan, against=arm).get(ENGINE):
        return Ablation(**told, effect=measured.effect, interval=(measured.low, measured.high))
    result = next(result for result in timed.arms if result.arm == arm)
    why = f"{result.status}: {result.detail}" if result.status != "OK" else "no valid pair of rows"
    return Ablation(**told, effect=None, interval=None, why=f"without it {why}")
