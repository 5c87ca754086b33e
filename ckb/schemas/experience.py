"""Table `experience`: what was learned: optimisations with measured effects, failure modes, debugging."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Claim, Layer, Row


class Evidence(Frozen):
    """What one run found of a claim."""

    target: str
    """What it was found on: model, machine and precision (ckb.evidence.target_of)."""
    run: str
    """Id of the run."""
    effect: float | None = None
    """Relative change of the claim's metric there, positive is better; None: a failing test was fixed."""
    interval: tuple[float, float] | None = None
    """95% interval of the paired effect, low and high."""
    fixed: str = ""
    """The failing test that it fixed there, as `issue/gate`."""
    text: str = ""
    """What that run said of it."""


class Experience(Claim, Row):
    """One thing learned. `applies_to` is the class of targets for which it should hold."""

    layer: Layer = "experience"
    meaning: str = ""
    """Key of what is claimed. Rows that share it confirm or contradict each other; empty: the row's id."""
    scope: Literal["rule", "fact"] = "rule"
    """rule: said of a class of targets, and of a run's rules only those that two targets support are verified;
    fact: said of the very model, machine and precision that it was found on."""
    evidence: tuple[Evidence, ...] = ()
    """What it rests on, one entry a run; `effect` and `interval` are those of the entry that claims least."""

    @property
    def usable(self) -> bool:
        """Whether generation may see the row: a claim that is only tentative is kept, and never used."""
        return super().usable and self.signal != "tentative"
