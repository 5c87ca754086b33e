"""What becomes an issue: a stage of the construction, or a hypothesis about the whole engine."""

from collections.abc import Sequence

from ckb.records import STAGES, Contract, Stage
from roles.briefs import Hypothesis
from swarm.events import Issue

STAGE_TITLES: dict[Stage, str] = {
    "execution": "Numerical primitives, compiled kernels and the key-value cache",
    "model": "Weights, decoder layers and the output head",
    "integration": "Sampler, scheduler, engine and server",
    "acceptance": "The whole engine against the reference",
}


def stage_issue(stage: Stage, contracts: Sequence[Contract], base: str) -> Issue:
    """The issue of one construction stage: its contracts are the acceptance criteria."""
    return Issue(
        id=f"s{STAGES.index(stage) + 1}",
        stage=stage,
        title=STAGE_TITLES[stage],
        acceptance=tuple(f"{c.id}: {c.title} (test {c.test})" for c in contracts),
        base=base,
    )


def performance_issue(
    number: int,
    place: int,
    hypothesis: Hypothesis,
    base: str,
    *,
    island: int | None = None,
    parents: tuple[str, ...] = (),
    seed: int = 0,
) -> Issue:
    """One hypothesis of a round, about the tree at the commit `base`. `place` counts the issues of the round from 1."""
    return Issue(
        id=f"r{number}-{place}",
        stage="performance",
        title=hypothesis.title,
        acceptance=(hypothesis.acceptance, f"falsified if: {hypothesis.falsification}"),
        criteria=hypothesis.criteria,
        hypothesis=hypothesis,
        base=base,
        round=number,
        island=island,
        parents=parents,
        seed=seed,
    )
