"""Table `experience`: what was learned: optimisations with measured effects, failure modes, debugging."""

from typing import Literal

from pydantic import Field

from ckb.records import Choice, Layer, Row
from ckb.schemas.arrow import schema_of


class Experience(Row):
    """One thing learned. `applies_to` is the class of targets for which it should hold."""

    layer: Layer = "experience"
    title: str
    """The claim, in a few words."""
    kind: Literal["optimisation", "failure_mode", "debugging"]
    """optimisation: a measured effect; failure_mode: what goes wrong; debugging: how it was found."""
    meaning: str = ""
    """Key of what is claimed. Rows that share it confirm or contradict each other; empty: the row's id."""
    change: dict[str, Choice] = Field(default_factory=dict)
    """Decisions and parameters that were changed."""
    metric: str = ""
    """What the effect is an effect on; empty: on any measure of speed."""
    effect: float | None = None
    """Relative change of the metric, positive is better; None when nothing was measured."""
    interval: tuple[float, float] | None = None
    """Interval of the effect, low and high."""
    signal: Literal["confirmed", "probable", "tentative"]
    """Tentative rows are stored as drafts and never used in generation."""
    text: str
    """The claim in full, with its evidence."""


SCHEMA = schema_of(Experience)
