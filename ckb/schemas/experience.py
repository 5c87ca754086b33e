"""Table `experience`: what was learned: optimisations with measured effects, failure modes, debugging."""

from ckb.records import Claim, Layer, Row
from ckb.schemas.arrow import schema_of


class Experience(Claim, Row):
    """One thing learned. `applies_to` is the class of targets for which it should hold."""

    layer: Layer = "experience"
    meaning: str = ""
    """Key of what is claimed. Rows that share it confirm or contradict each other; empty: the row's id."""


SCHEMA = schema_of(Experience)
