"""The issue tracker (VibeServe, section 3.2): a backlog of falsifiable hypotheses, several dispatched at once.

Pure: it is given what is known and returns what to do next; the orchestrator does it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ckb.records import STAGES, Choice, Contract, Stage
from roles.briefs import Hypothesis
from swarm.events import Issue

MINIMUM_EFFECT = 0.01
"""A smaller gain is not worth a changed engine, even where the interval is clear of zero."""

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


def round_issues(number: int, hypotheses: Sequence[Hypothesis], dispatch: Sequence[int], base: str) -> list[Issue]:
    """The issues of one round: the dispatched hypotheses, each once, in the orchestrator's order."""
    order = [i for i in dict.fromkeys(dispatch) if 0 <= i < len(hypotheses)]
    return [
        Issue(
            id=f"r{number}-{place}",
            stage="performance",
            title=hypotheses[i].title,
            acceptance=(hypotheses[i].acceptance, f"falsified if: {hypotheses[i].falsification}"),
            criteria=hypotheses[i].criteria,
            hypothesis=hypotheses[i],
            base=base,
            round=number,
        )
        for place, i in enumerate(order, 1)
    ]


@dataclass(frozen=True)
class Measured:
    """A candidate's effect in a paired benchmark: relative change of the objective, positive is better."""

    candidate: str
    effect: float
    low: float
    high: float
    objective: float
    moved: str = ""
    """Why the gain is none for whoever waits: where the time went that it seems to save."""


def gains(measured: Sequence[Measured]) -> list[Measured]:
    """The measurements that show a gain beyond noise, largest first: the whole interval lies above the minimum."""
    clear = [m for m in measured if m.low >= MINIMUM_EFFECT and not m.moved]
    return sorted(clear, key=lambda m: (-m.effect, m.candidate))


def why_no_gain(measured: Measured) -> str:
    """The reason for the row of a candidate that `gains` leaves out."""
    interval = f"[{measured.low:+.1%}, {measured.high:+.1%}]"
    if measured.moved:
        return f"gain of {measured.effect:+.1%} {interval}, but {measured.moved}"
    if measured.high < 0:
        return f"slower: {measured.effect:+.1%} {interval}"
    if measured.low <= 0:
        return f"no effect beyond noise: {measured.effect:+.1%} {interval}"
    below = "is" if measured.effect < MINIMUM_EFFECT else "may be"
    return f"gain of {measured.effect:+.1%} {interval} {below} below the stated minimum of {MINIMUM_EFFECT:.0%}"


def told_of_no_gain(measured: Measured) -> str:
    """The same without a figure, for authors: what decides is not for them to fit."""
    if measured.moved:
        return "a gain that only moves time to the first token"
    if measured.high < 0:
        return "slower"
    return "no effect beyond noise" if measured.low <= 0 else f"no sure gain of {MINIMUM_EFFECT:.0%}"


def independent(change: dict[str, Choice], merged: Sequence[dict[str, Choice]]) -> bool:
    """Whether a change touches no decision or parameter that a merge of this round has touched."""
    return not any(change.keys() & other.keys() for other in merged)
