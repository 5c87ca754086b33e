"""What a mutant and a correct variant are: a composed tree and a few small edits, with what should be said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.verification.edits import Edit
from ckb.records import Choice

Family = Literal["arithmetic", "state", "scheduling", "loading", "serving", "cheat"]
FAMILIES: tuple[Family, ...] = ("arithmetic", "state", "scheduling", "loading", "serving", "cheat")
KNOWN_ENDS = "KNOWN_ENDS"
"""In an edit's new text: stands for the last two tokens of each prompt that the acceptance never changes."""


@dataclass(frozen=True)
class Mutant:
    """A wrong engine."""

    name: str
    family: Family
    base: str
    """Which composed engine it is made of (bases.py)."""
    gate: str
    """The gate that should catch it: the first whose matter it is."""
    edits: tuple[Edit, ...]
    timed: bool = False
    """It shows, if at all, only where engines are timed: a small benchmark is run on it too."""


@dataclass(frozen=True)
class Variant:
    """A right engine that is made in another way."""

    name: str
    base: str
    edits: tuple[Edit, ...] = ()
    change: Mapping[str, Choice] = field(default_factory=dict)
    """Other choices of the composer."""
