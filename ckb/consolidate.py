"""Turns what a finished run learned into one commit: version n+1, once however often it is asked.

Nothing stored is changed. A row whose content is there already is left out; a row that says something else under a
known id is stored as a row of its own; one that says the opposite is reported as a contradiction besides.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow.compute as pc

from ckb.compaction import tidy
from ckb.facts import Frozen
from ckb.hashing import sha256_json
from ckb.history import blame
from ckb.records import Row
from ckb.schemas import Definition, Experience, Run, Solution, Trace, Workload
from ckb.storage import Place
from ckb.store import Conflict, Store

NOT_CONTENT = {"id", "meaning", "status", "provenance", "created"}
"""What two rows of the same content may differ in."""
TELLING = {
    "experience": "text",
    "traces": "timestamp",
    "definitions": "reference",
    "workloads": "definition",
    "solutions": "definition",
}
"""Table -> a column in which rows of the same content agree: only these rows are read to find duplicates."""


class Lessons(Frozen):
    """What a finished run hands over."""

    run: Run
    """Its id makes the commit idempotent."""
    experience: tuple[Experience, ...] = ()
    """The id of each is the key of what it claims."""
    traces: tuple[Trace, ...] = ()
    definitions: tuple[Definition, ...] = ()
    workloads: tuple[Workload, ...] = ()
    solutions: tuple[Solution, ...] = ()


class Contradiction(Frozen):
    """Two rows that can't both hold."""

    table: str
    existing: str
    new: str
    detail: str


class Consolidation(Frozen):
    """What became of a run's lessons."""

    version: int
    """The version that holds them."""
    rows: dict[str, int]
    """Rows added by table."""
    duplicates: tuple[str, ...] = ()
    """`table/id` of rows that were there already."""
    contradictions: tuple[Contradiction, ...] = ()
    repeated: bool = False
    """The run had been consolidated before: nothing was done."""


class Consolidator:
    """The plain class that an actor wraps. It also keeps the store quick to read."""

    def __init__(self, root: Place):
        self._root = root

    def consolidate(self, lessons: Lessons) -> Consolidation:
        store = Store(self._root)
        done = consolidate(store, lessons)
        tidy(store, by="consolidator")
        return done


def consolidate(store: Store, lessons: Lessons) -> Consolidation:
    """Commit a run's lessons. When others commit meanwhile, they are compared anew with what is there then."""
    while True:
        base = store.latest
        if store.rows(Run, base, where=pc.field("id") == lessons.run.id):
            version = blame(store, "runs", lessons.run.id, base).version
            return Consolidation(version=version, rows={}, repeated=True)
        outcome = _compare(store, base, lessons)
        message = f"run {lessons.run.id}: {', '.join(f'{len(r)} {t}' for t, r in outcome.new.items() if r)}"
        try:
            version = store.append(outcome.new, parent=base, message=message, by="consolidator")
        except Conflict:
            continue
        return Consolidation(
            version=version,
            rows={table: len(rows) for table, rows in outcome.new.items() if rows},
            duplicates=tuple(outcome.duplicates),
            contradictions=tuple(outcome.contradictions),
        )


def content_hash(row: Row) -> str:
    """Hash of what a row says, whoever says it and when."""
    return sha256_json(row.model_dump(mode="json", exclude=NOT_CONTENT))


class _Outcome:
    """The rows to add, and what was noticed on the way."""

    def __init__(self, run: Run):
        self.new: dict[str, Sequence[Row]] = {"runs": [_signed(run, run.id)]}
        self.duplicates: list[str] = []
        self.contradictions: list[Contradiction] = []


def _compare(store: Store, base: int, lessons: Lessons) -> _Outcome:
    outcome = _Outcome(lessons.run)
    incoming: Mapping[str, Sequence[Row]] = {table: getattr(lessons, table) for table in TELLING}
    for table, rows in incoming.items():
        known = _similar(store, table, base, rows)
        added = []
        for row in rows:
            if duplicate := next((old for old in known if content_hash(old) == content_hash(row)), None):
                outcome.duplicates.append(f"{table}/{duplicate.id}")
                continue
            rivals = [old for old in known if _meaning(old) == row.id]
            kept = _signed(_own(row, bool(rivals)), lessons.run.id)
            outcome.contradictions += [
                Contradiction(table=table, existing=old.id, new=kept.id, detail=detail)
                for old in rivals
                if (detail := _conflict(old, row))
            ]
            known.append(kept)
            added.append(kept)
        outcome.new[table] = added
    return outcome


def _similar(store: Store, table: str, version: int, rows: Sequence[Row]) -> list[Row]:
    """The stored rows that could say the same as any of `rows`, or speak of the same thing."""
    if not rows or not store.state(version).tables.get(table):
        return []
    ids, telling = [row.id for row in rows], [getattr(row, TELLING[table]) for row in rows]
    where = pc.field("id").isin(ids) | pc.field(TELLING[table]).isin(telling)
    if table == "experience":
        where |= pc.field("meaning").isin(ids)
    return store.rows(table, version, where=where)


def _meaning(row: Row) -> str:
    return (row.meaning if isinstance(row, Experience) else "") or row.id


def _own(row: Row, taken: bool) -> Row:
    """The row under an id of its own; what it claims stays its meaning."""
    meaning = {"meaning": row.id} if isinstance(row, Experience) else {}
    return row.model_copy(update={"id": f"{row.id}.{content_hash(row)[:8]}" if taken else row.id, **meaning})


def _conflict(old: Row, new: Row) -> str:
    """Why two rows of the same meaning can't both hold, or nothing."""
    if not isinstance(old, Experience) or not isinstance(new, Experience):
        return "the same id, and another content"
    if old.effect and new.effect and (old.effect > 0) != (new.effect > 0):
        return f"effect {old.effect:+.3f} there, {new.effect:+.3f} now"
    return ""


def _signed(row: Row, run: str) -> Row:
    """The row with its run, its date, and the status that its signal allows."""
    update: dict[str, object] = {"created": row.created or datetime.now(UTC).date().isoformat()}
    if row.provenance.run is None:
        update["provenance"] = row.provenance.model_copy(update={"source": "run", "run": run})
    if isinstance(row, Experience) and row.signal == "tentative":
        update["status"] = "draft"
    return row.model_copy(update=update)
