"""Which of several authors answers next: weights, and what came of their earlier answers for the money.

A pure function of weights, recorded history, seed and name of the work, so that a run that is resumed chooses the same.
Thompson sampling: of each member's chance that an answer is kept, one draw from what its record allows; the largest
draw per expected dollar wins. Members with a short record have wide draws, and so are tried again now and then.
"""

import random
from collections.abc import Mapping, Sequence

from ckb.facts import Frozen
from ckb.hashing import sha256_json

CHEAPEST = 0.1
"""Least share of the average cost that a member counts with: one that costs nothing, or of which nobody knows what it
costs, must still show something for its turns."""


class Outcome(Frozen):
    """What came of one piece of work of a member."""

    member: str
    kept: bool
    usd: float | None
    """None: not known."""


def choose(weights: Mapping[str, float], history: Sequence[Outcome], seed: int, work: str, *, learn: bool) -> str:
    """The member for a piece of work. A weight of 0 is never chosen; without `learn` the weights alone decide."""
    names = [name for name, weight in weights.items() if weight > 0]
    draw = random.Random(sha256_json([seed, work]))
    if not learn:
        return draw.choices(names, [weights[name] for name in names])[0]
    price = prices(names, history)
    worth = {name: weights[name] * chance(name, history, draw) / price[name] for name in names}
    return max(names, key=lambda name: worth[name])


def chance(name: str, history: Sequence[Outcome], draw: random.Random) -> float:
    """One draw of the chance that an answer of a member is kept; uniform before anything is known."""
    kept = sum(outcome.kept for outcome in history if outcome.member == name)
    lost = sum(not outcome.kept for outcome in history if outcome.member == name)
    return draw.betavariate(1 + kept, 1 + lost)


def prices(names: Sequence[str], history: Sequence[Outcome]) -> dict[str, float]:
    """Expected cost of a piece of work by member, relative to the average of the members. One of unknown cost counts as
    average, and so does everyone as long as nothing was paid."""
    paid = {name: [o.usd for o in history if o.member == name and o.usd is not None] for name in names}
    means = [sum(costs) / len(costs) for costs in paid.values() if costs]
    average = sum(means) / len(means) if means else 0.0
    if average == 0:
        return dict.fromkeys(names, 1.0)
    # the average counts once for each member, as if it had been paid: one dear answer says little of the next
    expected = {name: (average + sum(costs)) / (1 + len(costs)) for name, costs in paid.items()}
    return {name: max(CHEAPEST, cost / average) for name, cost in expected.items()}
