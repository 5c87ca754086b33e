"""The copied-span check on whole projects: how often it takes for a copy what others wrote by hand.

for found in map(checked, paths):       # wheels, source distributions, folders
    print(found.name, len(found.spans))
"""

import warnings
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ckb.errors import UserError
from ckb.fingerprint_table import NO_CODE, members, name_and_version
from ckb.fingerprints import Span, copied_spans


@dataclass(frozen=True)
class Checked:
    """One project, without its tests."""

    name: str
    version: str
    """Empty for a folder without metadata."""
    files: int
    lines: int
    spans: tuple[Span, ...]

    @property
    def flagged_lines(self) -> int:
        return sum(span.last - span.first + 1 for span in self.spans)


def checked(path: Path) -> Checked:
    """Raises UserError for what is no archive or folder, or holds no Python file."""
    found = members(path)
    texts = {name: data.decode("utf-8", errors="replace") for name, data in found.items() if _counts(name)}
    if not texts:
        raise UserError(f"{path} holds no Python file")
    with_head = any(not name.endswith(".py") for name in found)
    name, version = name_and_version(path, found) if with_head else (path.name, "")
    with warnings.catch_warnings():  # of other people's escape sequences
        warnings.simplefilter("ignore")
        spans = copied_spans(texts)
    return Checked(name, version, len(texts), sum(text.count("\n") for text in texts.values()), tuple(spans))


def _counts(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".py" and not (NO_CODE & set(path.parts) or path.name.startswith("test_"))
