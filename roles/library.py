"""The knowledge base at a role's desk: one more tool, `query_knowledge`, beside those that its answer is made with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ckb.facts import Frozen
from ckb.records import Choice, Layer, Row
from ckb.search import Hit, Query, QueryError, Table
from roles.author import AnyBrief
from roles.briefs import ImplementerBrief
from roles.completion import CompletionReply, Message, Tool, ToolCall
from roles.render import render_knowledge
from roles.replies import Desk, FormatError, Turn, parse, tool

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


QUERY = tool(
    "query_knowledge",
    f"Looks into the verified knowledge (at most {ROWS} rows, the best first). Changes nothing; ask before you answer.",
    QueryKnowledge,
)


@dataclass
class LibraryDesk:
    """A desk whose role may look things up while it works."""

    desk: Desk
    brief: AnyBrief
    library: Library
    tools: tuple[Tool, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.tools = (*self.desk.tools, QUERY)

    def take(self, reply: CompletionReply) -> Turn:
        """Answers the queries of a reply, and hands the rest of it to the desk below."""
        calls = reply.message.tool_calls
        asked = [call for call in calls if call.name == QUERY.name]
        if not asked:
            return self.desk.take(reply)
        found: list[Message] = []
        wrong: list[str] = []
        for call in asked:
            try:
                text = self._look_up(call)
            except (FormatError, QueryError) as error:
                text = f"{QUERY.name} was refused:\n{error}"
                wrong.append(text)
            found.append(Message(role="tool", tool_call_id=call.id, content=text))
        rest = tuple(call for call in calls if call.name != QUERY.name)
        if not rest:
            return Turn(tuple(found), fault="\n".join(wrong))
        message = reply.message.model_copy(update={"tool_calls": rest})
        turn = self.desk.take(reply.model_copy(update={"message": message}))
        faults = [*wrong, turn.fault] if turn.fault else wrong
        return Turn((*found, *turn.messages), turn.answer, "\n".join(faults))

    def _look_up(self, call: ToolCall) -> str:
        asked = parse(QueryKnowledge, call.arguments)
        query = Query(
            words=asked.words,
            contract=asked.contract,
            layer=asked.layer,
            table=asked.table,
            facts=None if asked.elsewhere else self.brief.facts,
            choices=taken(self.brief),
            limit=ROWS,
        )
        return render_knowledge(self.library.version, self.library.find(query))
