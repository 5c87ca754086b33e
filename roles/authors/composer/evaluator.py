"""Evaluator: what earlier runs found to help, then headroom times parameter space, without what they found to hurt.

A rule of thumb for where to look next, not a prediction to rely on.
"""

import itertools
from collections.abc import Iterator

from ckb.criteria import BENCHMARK, TREE, Criterion
from ckb.records import Choice
from roles.briefs import EvaluatorAnswer, EvaluatorBrief, Hypothesis, Lesson

FALSIFIED = "the interval of the paired effect includes zero or lies below it, or a gate fails"
CRITERIA = (
    Criterion(part="activation", command=TREE, metric="changed_lines", comparison=">", value=0),
    Criterion(part="acceptance", command=BENCHMARK, metric="effect_low", comparison=">", value=0),
    Criterion(part="falsification", command=BENCHMARK, metric="effect", comparison="<=", value=0),
)
"""Of every hypothesis of ours: its change is in the tree, and what it gains is clear of zero."""
REACH = {"decision": 0.5, "parameter": 0.15}
"""Which share of the time of the parts that it affects a change may save: designs differ more than their tuning."""


def evaluate(brief: EvaluatorBrief) -> EvaluatorAnswer:
    """The most promising changes of the incumbent that were not tried on it, best first."""
    room = headroom(brief.current, brief.bound)
    learned = list(from_experience(brief, room))
    single = [change for change in open_changes(brief) if not hurts(brief, *change)]
    ranked = sorted(single, key=lambda change: (-expected(brief, room, *change), change[0], str(change[1])))
    covered = [h.change for h in learned]
    others = (hypothesis(brief, room, *c) for c in spread(ranked, len(ranked)) if {c[0]: c[1]} not in covered)
    return EvaluatorAnswer(hypotheses=tuple(itertools.islice(itertools.chain(learned, others), brief.wanted)))


def from_experience(brief: EvaluatorBrief, room: float) -> Iterator[Hypothesis]:
    """What helped elsewhere and is open here, the largest effect first; one that nobody measured comes last."""
    helped = [row for row in brief.known if row.kind == "optimisation" and row.change and good(row)]
    held = [row for row in helped if row.change.items() <= brief.choices.items()]
    seen: list[dict[str, Choice]] = []
    for row in sorted(helped, key=lambda row: (-(row.effect or 0.0), row.id)):
        if any(row.change.keys() & old.change.keys() and (old.effect or 0.0) >= (row.effect or 0.0) for old in held):
            continue  # the incumbent has what helped more
        fits = all(value in brief.space.get(name, ()) and name in brief.choices for name, value in row.change.items())
        asked = {**brief.choices, **row.change}
        if fits and asked != brief.choices and asked not in (*brief.tried, *seen):
            seen.append(asked)
            guess = max(expected(brief, room, name, value) for name, value in row.change.items())
            effect = guess if row.effect is None else row.effect
            words = ", ".join(f"{name} = {value}" for name, value in row.change.items())
            yield Hypothesis(
                title=f"{words} instead of {', '.join(str(brief.choices[name]) for name in row.change)}",
                change=row.change,
                expected_effect=round(effect, 4),
                acceptance=f"{brief.metric} improves in a paired benchmark as {row.id} has it ({row.signal})",
                falsification=FALSIFIED,
                criteria=CRITERIA,
            )


def good(row: Lesson) -> bool:
    """Whether a change was found to help, beyond noise; one that nobody measured must be more than tentative."""
    if row.effect is None:
        return row.signal != "tentative"
    return row.effect > 0 and (row.interval is None or row.interval[0] > 0)


def bad(row: Lesson) -> bool:
    """Whether a change was found to make things worse, beyond noise."""
    return row.effect is not None and row.effect < 0 and (row.interval is None or row.interval[1] < 0)


def hurts(brief: EvaluatorBrief, name: str, value: Choice) -> bool:
    return any(row.change == {name: value} and bad(row) for row in brief.known)


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
    """Headroom times the share of the affected parts times how far such a change reaches; no more than what was
    measured of the same change at best.

    A part that the profile does not show is fused into another, so its time is in `rest`.
    """
    parts = {part if part in brief.shares else "rest" for part in brief.affects.get(name, ())}
    share = min(1.0, sum(brief.shares.get(part, 0.0) for part in parts)) if brief.shares else 1.0  # no profile: open
    measured = [row.interval[1] for row in brief.known if row.change == {name: value} and row.interval]
    return max(0.0, min([room * share * reach(brief, name, value), *measured]))


def reach(brief: EvaluatorBrief, name: str, value: Choice) -> float:
    if "." not in name:
        return REACH["decision"]
    values = brief.space[name]  # neighbours first: a value far from the incumbent's is a larger step into the dark
    distance = abs(values.index(value) - values.index(brief.choices[name])) if brief.choices[name] in values else 1
    return REACH["parameter"] / max(1, distance)


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
        falsification=FALSIFIED,
        criteria=CRITERIA,
    )
