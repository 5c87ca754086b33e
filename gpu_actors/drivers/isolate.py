"""Keeps forbidden packages out of this interpreter. The sandbox also makes their files unreadable where it can."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class Blocker:
    """A finder that comes first and answers for forbidden packages only."""

    def __init__(self, names: Sequence[str]):
        self.names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name!r} can't be imported in an engine's process", name=name)
        return None


def block(names: Sequence[str]) -> None:
    sys.meta_path.insert(0, Blocker(names))
