"""The knowledge base at a role's desk: guides that its brief names, and the tool `query_knowledge`."""

from collections.abc import Sequence
from typing import Protocol

from ckb.facts import Frozen
from ckb.records import Choice, Layer, Row
from ckb.search import Hit, Query, QueryError, Table
from roles.author import AnyBrief
from roles.briefs import ImplementerBrief
from roles.render import render_knowledge
from roles.replies import FormatError
from roles.tools.offer import Offer, Offers

GUIDES = 40
"""Most guides that a brief names: a line each."""
ROWS = 5
"""Rows of one answer: each is a whole contract or fragment, and a conversation is paid anew at every turn."""


class Library(Protocol):
    """The knowledge base at one pinned version: the same question has the same answer for the whole run."""

    version: int

    def find(self, query: Query) -> Sequence[Hit]:
        """The verified rows that answer a query, the best first. Raises QueryError."""
        ...


class QueryKnowledge(Frozen):
    words: str = ""
    """What to look for: a row may hold any of the words, and rare ones count most."""
    contract: str | None = None
    """Only this contract and the fragments filed under it."""
    layer: Layer | None = None
    table: Table | None = None
    elsewhere: bool = False
    """Also rows whose condition is not known to hold for this target and its choices."""


def guides_for(library: Library, brief: AnyBrief) -> list[Row]:
    """The guides that are written for a brief's role and hold for its target, how to work before what to know."""
    query = Query(table="guides", role=brief.role, facts=brief.facts, choices=taken(brief), limit=GUIDES)
    rows = [hit.row for hit in library.find(query)]
    return sorted(rows, key=lambda row: getattr(row, "kind", "") != "procedure")


def taken(brief: AnyBrief) -> dict[str, Choice]:
    """The choices that a brief's work starts from or makes."""
    return {**brief.choices, **(brief.change if isinstance(brief, ImplementerBrief) else {})}


class Knowledge:
    """The tool `query_knowledge`, for a role that may look things up while it works."""

    def __init__(self, brief: AnyBrief, library: Library):
        self._brief = brief
        self._library = library
        about = f"Looks into the verified knowledge (at most {ROWS} rows, the best first). Ask before you answer."
        self.offers: Offers = (Offer("query_knowledge", about, QueryKnowledge, self._look_up),)

    def _look_up(self, asked: QueryKnowledge) -> str:
        query = Query(
            words=asked.words,
            contract=asked.contract,
            layer=asked.layer,
            table=asked.table,
            facts=None if asked.elsewhere else self._brief.facts,
            choices=taken(self._brief),
            limit=ROWS,
        )
        try:
            return render_knowledge(self._library.version, self._library.find(query))
        except QueryError as error:
            raise FormatError(str(error)) from error
