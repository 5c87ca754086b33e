"""Queries for roles: the verified knowledge of one pinned version, by contract, layer, condition and words.

    Search(store, version=12).find(Query(words="rotary embedding", facts=facts))

The words go to an FTS5 index of Python's own sqlite3, in memory. A version never changes, so its index is made once and
never brought up to date.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from ckb.errors import UserError
from ckb.facts import Facts, Frozen
from ckb.predicate import PredicateError, predicate
from ckb.records import Choice, Contract, Fragment, Layer, Reader, Row

if TYPE_CHECKING:  # roles import this module, and those that ask nothing need no Arrow
    from ckb.store import Store, Version

Table = Literal["contracts", "fragments", "guides", "models", "platforms", "experience"]
SEARCHED: tuple[Table, ...] = get_args(Table)
WEIGHTS = (8.0, 4.0, 1.0)
"""What a word counts in a row's id, in its title and anywhere else: a row about a thing stands before those that only
mention it."""
MOST_WORDS = 64
"""Different words of one query: whoever sends a page of text has not decided what to look for."""
WORD = re.compile(r"[^\W_]+")
"""What the index takes for a word: `kv_layout` and `kv-layout` are two."""
FILING = {"id", "title", "layer", "status", "created", "provenance"}
"""Fields that name or file a row: what it says of its subject stands in the others."""


class QueryError(UserError):
    """A query that can't be answered; the message says what to ask instead."""


class Query(Frozen):
    """What to look for. What is left out does not narrow anything."""

    words: str = ""
    """Any of them may stand in a row; rare ones count most."""
    table: Table | None = None
    layer: Layer | None = None
    contract: str | None = None
    """A contract's id: the contract itself and the fragments filed under it."""
    role: Reader | None = None
    """Only the guides that are written for this role."""
    facts: Facts | None = None
    """Only rows whose `applies_to` holds for these facts and `choices`; one that asks for a decision which `choices`
    does not hold does not."""
    choices: dict[str, Choice] = Field(default_factory=dict)
    limit: int = Field(10, ge=1)
    """Most rows."""


def query_of(**fields: object) -> Query:
    """A query as somebody wrote it down. Raises QueryError that names the field and what it may be."""
    try:
        return Query.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise QueryError(f"{where}: {first['msg']}, not {first['input']!r}") from error


@dataclass(frozen=True)
class Hit:
    """One row that answers a query."""

    table: Table
    row: Row
    score: float
    """BM25 of the words, higher is better, though a row that they name stands first; 0 when no words were given."""


class Search:
    """The verified rows of one version of the store. Both they and the index are read at the first query."""

    def __init__(self, store: "Store", version: "Version" = None):
        """Raises UserError for a version that the store does not have."""
        self._store = store
        self.version = store.state(version).version

    def find(self, query: Query) -> list[Hit]:
        """The rows that answer a query, the best first; without words by table and id.

        Raises QueryError for words that hold nothing to look for, or too many of them, and PredicateError for a row
        whose condition can't be asked: it is a defect that lint names, and to leave the row out would hide it from
        whoever works with this version.
        """
        ranked = self._ranked(query.words) if query.words else ((number, 0.0) for number in range(len(self._rows)))
        hits = (Hit(*self._rows[number], score) for number, score in ranked)
        return list(islice((hit for hit in hits if fits(query, hit.table, hit.row)), query.limit))

    @cached_property
    def _rows(self) -> list[tuple[Table, Row]]:
        found = {table: self._store.rows(table, self.version) for table in SEARCHED}
        return [(t, row) for t, rows in found.items() for row in sorted(rows, key=lambda r: r.id) if row.usable]

    @cached_property
    def _index(self) -> sqlite3.Connection:
        """A table `words` whose rowids are places in `_rows`. It holds the index alone, not the text."""
        index = sqlite3.connect(":memory:")
        tokens = "porter unicode61 remove_diacritics 2"
        index.execute(f"CREATE VIRTUAL TABLE words USING fts5(id, title, body, content='', tokenize='{tokens}')")
        entries = ((n, row.id, getattr(row, "title", ""), body(row)) for n, (_, row) in enumerate(self._rows))
        index.executemany("INSERT INTO words(rowid, id, title, body) VALUES (?, ?, ?, ?)", entries)
        return index

    def _ranked(self, text: str) -> Iterator[tuple[int, float]]:
        """(place in `_rows`, score) of every row with one of the words.

        First those whose whole id the words hold: who names a row wants it, however often others speak of it."""
        words = words_of(text)
        if not words:
            raise QueryError(f"{text!r} holds no word to look for: letters and digits are")
        if len(words) > MOST_WORDS:
            raise QueryError(f"{len(words)} different words, at most {MOST_WORDS} are looked for: name the subject")
        found = self._index.execute(
            f"SELECT rowid, -bm25(words, {', '.join(map(str, WEIGHTS))}) FROM words WHERE words MATCH ?",
            (" OR ".join(sorted(words)),),  # in lower case AND and NEAR are words like any other
        )
        named = (
            (not words_of(self._rows[number][1].id) <= words, -score, number) for number, score in found.fetchall()
        )
        return ((number, -score) for _, score, number in sorted(named))


def words_of(text: str) -> set[str]:
    """The different words of a text, as the index cuts it."""
    return {word.lower() for word in WORD.findall(text)}


def fits(query: Query, table: Table, row: Row) -> bool:
    """Whether a row passes a query's filters, whatever its words."""
    return (
        query.table in (None, table)
        and query.layer in (None, row.layer)
        and query.contract in (None, contract_of(row))
        and (query.role is None or query.role in readers(row))
        and (query.facts is None or _applies(table, row, query.facts, query.choices))
    )


def _applies(table: Table, row: Row, facts: Facts, choices: Mapping[str, Choice]) -> bool:
    try:
        return applies(row, facts, choices)
    except PredicateError as error:
        raise PredicateError(f"{table} {row.id!r} of the knowledge base: {error}") from error


def contract_of(row: Row) -> str | None:
    """The contract that a row is, or that it is filed under."""
    if isinstance(row, Fragment):
        return row.contract
    return row.id if isinstance(row, Contract) else None


def readers(row: Row) -> tuple[str, ...]:
    """The roles that a guide is written for; other rows are for whoever needs them. Guide's module needs Arrow."""
    roles: tuple[str, ...] = getattr(row, "roles", ())
    return roles


def applies(row: Row, facts: Facts, choices: Mapping[str, Choice]) -> bool:
    """Whether a row's condition is known to hold. Raises PredicateError for one that asks for an unknown fact."""
    condition = predicate(row.applies_to)
    return condition.choices() <= choices.keys() and condition.holds(facts, choices)


def body(row: Row) -> str:
    """Everything that a row says of its subject, and what a person can look up about it."""
    said = (texts(getattr(row, name)) for name in type(row).model_fields if name not in FILING)
    return "\n".join([*chain.from_iterable(said), *row.provenance.references])


def texts(value: object) -> Iterator[str]:
    """Every string somewhere in a value. The fields of records go without their names: each row of a table has them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from texts(getattr(value, name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(name)
            yield from texts(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from texts(item)
