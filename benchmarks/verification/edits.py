"""Small edits of an engine's tree, by the text that they replace: what wrong engines and right variants are made of."""

from collections.abc import Mapping
from dataclasses import dataclass

Files = dict[str, str]


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


def edited(files: Files, edits: tuple[Edit, ...]) -> Files:
    """The files with all edits, one after the other. Raises DoesNotApply, also when nothing has changed."""
    made = files
    for edit in edits:
        made = edit.applied(made)
    if edits and made == files:
        raise DoesNotApply("the edits change nothing")
    return made
