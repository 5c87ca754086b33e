"""The files of a brief, in memory: read by those who judge them, written by who answers with them."""

from collections.abc import Mapping, Sequence

from pydantic import Field

from ckb.facts import Frozen
from roles.render import numbered
from roles.replies import FormatError
from roles.tools.offer import Offer, Offers, OutOfScope


class ListFiles(Frozen):
    pass


class ReadFile(Frozen):
    path: str
    first: int = Field(1, ge=1)
    """First line to read, counted from 1."""
    last: int | None = Field(None, ge=1)
    """Last line to read; left out: to the end."""
    numbers: bool = False
    """Whether each line begins with its number."""


class WriteFile(Frozen):
    path: str
    """One of the engine's files."""
    text: str
    """The whole new content."""


class EditFile(Frozen):
    path: str
    """One of the engine's files that exist already."""
    old: str = Field(min_length=1)
    """Text that occurs exactly once in the file."""
    new: str
    """What stands there afterwards."""


class Files:
    """A tree, and which of its files may be written."""

    def __init__(self, files: Mapping[str, str], writes: Sequence[str] = ()):
        self.texts = dict(files)
        self._writes = writes
        reading: Offers = (
            Offer("list_files", "Names the files of the tree, with their lines.", ListFiles, self._list),
            Offer("read_file", "Shows a file of the tree as it is now, or some lines of it.", ReadFile, self._read),
        )
        writing: Offers = (
            Offer("write_file", "Creates or replaces one file of the engine.", WriteFile, self._write),
            Offer("edit_file", "Replaces one passage of a file.", EditFile, self._edit),
        )
        self.offers: Offers = (*reading, *(writing if writes else ()))

    def replace(self, files: Mapping[str, str]) -> None:
        """Takes whole files over. Raises OutOfScope before any of them is taken."""
        for path in files:
            self._in_scope(path)
        self.texts |= files

    def _list(self, _: ListFiles) -> str:
        lines = [f"{path}: {len(text.splitlines())} lines" for path, text in sorted(self.texts.items())]
        return "\n".join(lines) or "the tree has no file yet"

    def _read(self, asked: ReadFile) -> str:
        lines = self._text(asked.path).splitlines()
        if asked.first > max(1, len(lines)) or (asked.last is not None and asked.last < asked.first):
            raise FormatError(
                f"{asked.path} has {len(lines)} lines: there is none from {asked.first} to {asked.last or 'its end'}"
            )
        part = lines[asked.first - 1 : asked.last]
        return numbered("\n".join(part), asked.first) if asked.numbers else "\n".join(part)

    def _write(self, arguments: WriteFile) -> str:
        self._in_scope(arguments.path)
        self.texts[arguments.path] = arguments.text
        return f"wrote {arguments.path}, {len(arguments.text.splitlines())} lines"

    def _edit(self, arguments: EditFile) -> str:
        self._in_scope(arguments.path)
        text = self._text(arguments.path)
        if (count := text.count(arguments.old)) != 1:
            raise FormatError(f"`old` occurs {count} times in {arguments.path}: it must occur exactly once")
        self.texts[arguments.path] = text.replace(arguments.old, arguments.new)
        return f"edited {arguments.path}"

    def _in_scope(self, path: str) -> None:
        """Names are compared as they are: no spelling of a path leads anywhere else."""
        if path not in self._writes:
            raise OutOfScope(path, self._writes)

    def _text(self, path: str) -> str:
        if path not in self.texts:
            raise FormatError(f"the tree has no {path!r}; it has {', '.join(self.texts) or 'no file yet'}")
        return self.texts[path]
