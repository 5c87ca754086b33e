"""Rows of tried operators, kept in files that are named by all that a row depends on."""

import time
from pathlib import Path

from pydantic import ValidationError

from ckb.facts import Frozen
from ckb.hashing import sha256_json
from ckb.schemas.platforms import TriedOperator
from ckb.whole_files import replace_text

PASSING_S = 3600.0
"""How long a failure is believed that the machine's load or a full device may have caused."""


class Kept(Frozen):
    row: TriedOperator
    until: float | None
    """Unix time from which it is to be tried again; None: never."""


class Cache:
    def __init__(self, folder: Path):
        self._folder = folder

    def get(self, key: object) -> TriedOperator | None:
        """The row, if it was tried with exactly this key and still counts."""
        try:
            kept = Kept.model_validate_json(self._path(key).read_bytes())
        except (FileNotFoundError, ValidationError):  # an older release wrote other fields: try it again
            return None
        return kept.row if kept.until is None or time.time() < kept.until else None

    def put(self, key: object, row: TriedOperator, *, lasting: bool) -> None:
        """Whole or not at all. `lasting`: the row holds until the key changes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = Kept(row=row, until=None if lasting else time.time() + PASSING_S)
        replace_text(self._path(key), kept.model_dump_json(indent=1))

    def _path(self, key: object) -> Path:
        return self._folder / f"{sha256_json(key)[:32]}.json"
