"""Criteria of an issue that a machine can decide: a command, one of its metrics, and what that is compared with.

An issue says what must be seen before its change is kept (acceptance), that the change is at work at all (activation),
and what would prove its idea wrong (falsification). What can't be said so stays prose, and is for the judge.
"""

import operator
from typing import Literal

from pydantic import Field, model_validator

from ckb.facts import Frozen

Part = Literal["acceptance", "activation", "falsification"]
Comparison = Literal["<", "<=", "==", "!=", ">=", ">"]
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
TREE, PROFILE, BENCHMARK = "tree", "profile", "benchmark"
METRICS: dict[str, tuple[str, ...]] = {
    TREE: ("lines", "changed_lines", "changed_files"),
    PROFILE: ("step_ms",),
    BENCHMARK: ("effect", "effect_low", "effect_high", "objective"),
}
"""Commands that the harness has itself, and what they tell.

tree       the candidate's text: its lines, and how many lines and files differ from the tree that it started from
profile    a decode step of the candidate, in milliseconds by the harness's clock. No share of its parts: those are
           times by the candidate's own
benchmark  the round's paired benchmark: relative gain of the objective over the incumbent with its 95% interval
           (+0.1 is 10% better), and the candidate's objective in its own unit
"""


class Criterion(Frozen):
    """One executable criterion."""

    part: Part
    command: str = Field(min_length=1)
    """`tree`, `profile`, `benchmark`, or a command line. That is run in the candidate's sandbox with the engine folder
    and the checkpoint as its last arguments, and prints lines {"metric": NAME, "value": NUMBER}."""
    metric: str = Field(min_length=1)
    comparison: Comparison
    value: float

    @model_validator(mode="after")
    def can_be_decided(self) -> "Criterion":
        known = METRICS.get(self.command)
        if known and self.metric not in known:
            raise ValueError(f"{self.command} tells {', '.join(known)}; it does not tell {self.metric!r}")
        return self

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.value:g} ({self.command})"

    def holds(self, found: float) -> bool:
        return bool(COMPARISONS[self.comparison](found, self.value))

    def speaks_for(self, found: float) -> bool:
        """Whether what was found lets the candidate go on: a criterion of falsification must not hold."""
        return self.holds(found) != (self.part == "falsification")
