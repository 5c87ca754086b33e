"""What counts as a gain, whichever policy asked for the candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

from ckb.records import Choice

MINIMUM_EFFECT = 0.01
"""A smaller gain is not worth a changed engine, even where the interval is clear of zero."""


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
