"""What a mutant and a correct variant are: a composed tree and a few small edits, with what should be said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ckb.records import Choice

Files = dict[str, str]
Family = Literal["arithmetic", "state", "scheduling", "loading", "serving", "cheat"]
FAMILIES: tuple[Family, ...] = ("arithmetic", "state", "scheduling", "loading", "serving", "cheat")
KNOWN_ENDS = "KNOWN_ENDS"
"""In an edit's new text: stands for the last two tokens of each prompt that the acceptance never changes."""


class DoesNotApply(Exception):
    """An edit whose old text is not in the tree exactly once: the fragments have changed."""


@dataclass(frozen=True)
class Edit:
    """A replacement of text in one file. An empty `old` puts the new text at the end; an absent file is made."""

    file: str
    old: str
    new: str

    def applied(self, files: Mapping[str, str]) -> Files:
        """The files with this edit. Raises DoesNotApply."""
        text = files.get(self.file, "")
        if not self.old:
            return {**files, self.file: text + self.new}
        if (count := text.count(self.old)) != 1:
            raise DoesNotApply(f"{self.file} has {self.old!r} {count} times")
        return {**files, self.file: text.replace(self.old, self.new)}


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


def edited(files: Files, edits: tuple[Edit, ...]) -> Files:
    """The files with all edits, one after the other. Raises DoesNotApply, also when nothing has changed."""
    made = files
    for edit in edits:
        made = edit.applied(made)
    if edits and made == files:
        raise DoesNotApply("the edits change nothing")
    return made
