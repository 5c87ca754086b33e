"""What lint finds, and the rows that it looks at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ckb.records import Row

R = TypeVar("R", bound=Row)

Rows = Mapping[str, Sequence[Row]]
"""Table -> its rows."""


@dataclass(frozen=True)
class Problem:
    """One thing to mend."""

    table: str
    id: str
    what: str


def of(rows: Rows, table: str, kind: type[R]) -> list[R]:
    """The rows of one table; none for a table that isn't there."""
    return [row for row in rows.get(table, ()) if isinstance(row, kind)]
