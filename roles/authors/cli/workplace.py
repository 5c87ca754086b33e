"""The folder that a command works in: the brief as files, the tree beside it, and what became of both.

Only regular files in the write scope are taken over. Whatever else was made, changed or removed is put back as it was
and named: a link in the place of a file would be read with the rights of whoever reads it.
"""

import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from roles.replies import FormatError

LARGEST_BYTES = 1_000_000
"""Of one file that is taken over; an engine has at most 1,200 lines."""
MOST_ENTRIES = 10_000


class Workplace:
    """A folder with some given files, of which some may be written."""

    def __init__(self, folder: Path, given: Mapping[str, str], writes: Iterable[str]):
        """`given`: path below the folder -> text. `writes`: the paths that may be written, whether or not they are
        there."""
        self.folder = folder
        self._writes = frozenset(writes)
        self._given = dict(given)
        for path, text in given.items():
            self._put(path, text)
        for path in self._writes:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)

    def add(self, path: str, text: str) -> None:
        """One more file that is given."""
        self._given[path] = text
        self._put(path, text)

    def put_back(self) -> tuple[str, ...]:
        """Undoes what was done outside of the write scope; the paths where something was, sorted. Raises FormatError
        for more than can be looked through: nothing in the folder may be touched or read then."""
        found = dict(self._entries())
        kept = {path for path, kind in found.items() if path in self._writes and stat.S_ISREG(kind)}
        fixed = {path: text for path, text in self._given.items() if path not in self._writes}
        wrong = [path for path, kind in found.items() if path not in kept and not self._is_given(path, kind, fixed)]
        wrong += [path for path in fixed if path not in found]
        for path in wrong:
            self._remove(self.folder / path)
        for path, text in fixed.items():
            if path in wrong:
                self._put(path, text)
        return tuple(sorted(wrong))

    def taken(self, path: str) -> str | None:
        """The text of a file in the write scope, after `put_back`; None where there is none. Raises FormatError."""
        place = self.folder / path
        if not place.is_file():
            return None
        place.chmod(0o600)
        if (size := place.stat().st_size) > LARGEST_BYTES:
            raise FormatError(f"{path} has {size:,} bytes, at most {LARGEST_BYTES:,} are taken")
        try:
            return place.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{path} is no UTF-8: {error.reason} at byte {error.start}") from error

    def _is_given(self, path: str, kind: int, fixed: Mapping[str, str]) -> bool:
        """Whether an entry is what was put there: a file with its text, or a folder above a place for files."""
        if stat.S_ISDIR(kind):
            return any(PurePosixPath(path) in PurePosixPath(known).parents for known in (*fixed, *self._writes))
        if path not in fixed or not stat.S_ISREG(kind):
            return False
        place, text = self.folder / path, fixed[path].encode()
        place.chmod(0o600)
        return place.stat().st_size == len(text) and place.read_bytes() == text

    def _put(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def _entries(self) -> Iterator[tuple[str, int]]:
        """Path below the folder and mode of everything in it, links not followed."""
        waiting, seen = [self.folder], 0
        while waiting:
            folder = waiting.pop()
            folder.chmod(0o700)  # whoever worked here may have taken the right to look
            for place in folder.iterdir():
                seen += 1
                if seen > MOST_ENTRIES:
                    raise FormatError(f"the folder holds more than {MOST_ENTRIES:,} files: it can't be looked through")
                mode = place.lstat().st_mode
                yield place.relative_to(self.folder).as_posix(), mode
                if stat.S_ISDIR(mode):
                    waiting.append(place)

    @staticmethod
    def _remove(place: Path) -> None:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
