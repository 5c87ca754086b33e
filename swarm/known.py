"""What a policy is shown before a round, from the journal: every tree that was tried, with what became of it.

The figures are those of the part of the inputs that authors may see: who is chosen as a parent is told to them.
"""

import math
from collections.abc import Iterator, Mapping

from ckb.records import Choice
from gpu_actors.benchmark_jobs import Benchmark
from roles.briefs import Hypothesis
from swarm import shown
from swarm.context import Context
from swarm.policies.base import Known, Standing, Tree
from swarm.state import Candidate

MEMORY_STEP = 0.05
"""Relative; a smaller difference of two trees in memory is none: it would make every tree the best one at something."""
STANDINGS: dict[str, Standing] = {
    "gain": "gain",
    "no gain": "no gain",
    "failed implementation": "failed",
    "not found out": "not measured",
}


def known(context: Context, number: int) -> Known:
    """What is known before round `number`. A whole engine is on main."""
    search, state = context.target.search, context.state
    trees = tuple(trees_of(context))
    tip = state.merges[-1]
    return Known(
        round=number,
        width=search.parallel,
        seed=search.seed,
        metric=context.plan.metric,
        space=context.plan.space,
        incumbent=next(tree for tree in trees if tree.commit == tip.commit),
        trees=trees,
        asked=tuple(state.tried),
        memory=state.memory,
        backlog=tuple(idea for idea in state.backlog if can_be_tried(idea, tip.choices, context)),
    )


def can_be_tried(idea: Hypothesis, start: Mapping[str, Choice], context: Context) -> bool:
    """Whether a change is one of the open space, from what is on main now, and new there. Code written freely always
    is."""
    space = context.plan.space
    fits = all(value in space.get(name, ()) and start.get(name) != value for name, value in idea.change.items())
    return fits and (not idea.change or {**start, **idea.change} not in context.state.tried)


def trees_of(context: Context) -> Iterator[Tree]:
    """The engine that the stages made, then every candidate of the rounds that has its row, in order of the issues."""
    state = context.state
    start = state.main_before(1)
    level = (0.0, 0.0)
    yield Tree(start.candidate, start.commit, start.choices, "gain", objectives=level)
    for number in sorted(state.opened):
        issues = [i for i in state.issues.values() if i.issue.round == number]
        candidates = [c for issue in issues for c in issue.candidates.values() if c.decided]
        yield from (tree_of(context, candidate, level) for candidate in candidates)
        for merged in (c for c in candidates if c.merged):
            gain = gains_of(context, merged) or (0.0, 0.0)
            level = (level[0] + gain[0], level[1] + gain[1])


def tree_of(context: Context, candidate: Candidate, level: tuple[float, ...]) -> Tree:
    """`level`: the objectives of the incumbent that it was measured against."""
    state, issue = context.state, context.state.issues[candidate.submitted.issue].issue
    at = candidate.merged or candidate.submitted  # on top of another one it became another tree
    gains = gains_of(context, candidate)
    broken = any(violated.row.candidate == candidate.id for violated in state.violations)
    return Tree(
        candidate=candidate.id,
        commit=at.commit,
        choices=at.choices,
        standing=STANDINGS[shown.meaning(context, candidate)],
        round=issue.round,
        island=issue.island,
        parents=issue.parents,
        objectives=tuple(a + b for a, b in zip(level, gains, strict=True)) if gains and not broken else (),
    )


def gains_of(context: Context, candidate: Candidate) -> tuple[float, float] | None:
    """The log ratios of a candidate to the incumbent of its round, larger is better: of the Target's objective, and of
    the memory that its process held at most. None for one that was not measured."""
    effect = shown.effect(context, candidate)
    benchmark = context.state.benchmark("round", context.state.round_of(candidate.id))
    if effect is None or benchmark is None:
        return None
    held, theirs = peak(benchmark, candidate.id), peak(benchmark, "incumbent")
    memory = math.log(theirs / held) if held and theirs else 0.0
    return math.log1p(max(effect.effect, -0.999)), round(memory / MEMORY_STEP) * MEMORY_STEP


def peak(benchmark: Benchmark, arm: str) -> int:
    """Most bytes that an arm held: of its devices together at the end of a request, or of main memory."""
    result = next(result for result in benchmark.arms if result.arm == arm)
    devices = [sum(use.bytes for use in sample.devices) for sample in result.usage.samples]
    return max(devices, default=0) or result.peak_rss_bytes
