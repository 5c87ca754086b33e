"""Evaluator: headroom times parameter space. A rule of thumb for where to look next, not a prediction to rely on."""

from collections.abc import Iterator

from ckb.records import Choice
from roles.briefs import EvaluatorAnswer, EvaluatorBrief, Hypothesis

REACH = {"decision": 0.5, "parameter": 0.15}
"""Which share of the time of the parts that it affects a change may save: designs differ more than their tuning."""


def evaluate(brief: EvaluatorBrief) -> EvaluatorAnswer:
    """The most promising single changes of the incumbent that were not tried on it, best first."""
    room = headroom(brief.current, brief.bound)
    ranked = sorted(
        open_changes(brief), key=lambda change: (-expected(brief, room, *change), change[0], str(change[1]))
    )
    return EvaluatorAnswer(
        hypotheses=tuple(hypothesis(brief, room, *change) for change in spread(ranked, brief.wanted))
    )


def headroom(current: float | None, bound: float | None) -> float:
    """Which share of the metric separates it from its bound: 0 at the roofline, 1 where either is not known."""
    if current is None or bound is None:
        return 1.0
    return 1 - min(current, bound) / max(current, bound) if current > 0 and bound > 0 else 0.0


def open_changes(brief: EvaluatorBrief) -> Iterator[tuple[str, Choice]]:
    """Each value of the incumbent's decisions and parameters that would be new and was not tried."""
    for name, values in brief.space.items():
        if name in brief.choices:  # a parameter of a fragment that the incumbent does not use changes nothing
            for value in values:
                if value != brief.choices[name] and {**brief.choices, name: value} not in brief.tried:
                    yield name, value


def expected(brief: EvaluatorBrief, room: float, name: str, value: Choice) -> float:
    """Headroom times the share of the affected parts times how far such a change reaches.

    A part that the profile does not show is fused into another, so its time is in `rest`.
    """
    parts = {part if part in brief.shares else "rest" for part in brief.affects.get(name, ())}
    share = min(1.0, sum(brief.shares.get(part, 0.0) for part in parts))
    if "." not in name:
        return room * share * REACH["decision"]
    values = brief.space[name]  # neighbours first: a value far from the incumbent's is a larger step into the dark
    distance = abs(values.index(value) - values.index(brief.choices[name])) if brief.choices[name] in values else 1
    return room * share * REACH["parameter"] / distance


def spread(ranked: list[tuple[str, Choice]], wanted: int) -> list[tuple[str, Choice]]:
    """The best value of each dimension first, then the second best of each: one round tries different things."""
    rounds: dict[str, int] = {}
    keyed = []
    for place, change in enumerate(ranked):
        rounds[change[0]] = rounds.get(change[0], 0) + 1
        keyed.append((rounds[change[0]], place, change))
    return [change for _, _, change in sorted(keyed, key=lambda item: item[:2])[:wanted]]


def hypothesis(brief: EvaluatorBrief, room: float, name: str, value: Choice) -> Hypothesis:
    effect = expected(brief, room, name, value)
    parts = ", ".join(brief.affects.get(name, ())) or "nothing that was measured"
    return Hypothesis(
        title=f"{name} = {value} instead of {brief.choices[name]}",
        change={name: value},
        expected_effect=round(effect, 4),
        acceptance=f"{brief.metric} improves in a paired benchmark, its interval clear of zero; affects {parts}",
        falsification="the interval of the paired effect includes zero or lies below it, or a gate fails",
    )
