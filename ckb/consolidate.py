"""Turns what a finished run learned into one commit: version n+1, once however often it is asked.

A row whose content is there already is left out; a row that says something else under a known id is stored as a row of
its own; one that says the opposite is reported as a contradiction besides, and nothing that was said is lost.
Experience that says the same as a stored row becomes further evidence of that row (ckb.evidence).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pyarrow.compute as pc

from ckb.compaction import tidy
from ckb.errors import UserError
from ckb.evidence import TARGETS_OF_A_RULE, merged, opposed, same_claim, standing, targets
from ckb.facts import Frozen
from ckb.hashing import sha256_json
from ckb.history import blame
from ckb.records import Row
from ckb.schemas import Definition, Experience, Run, Solution, Trace, Workload
from ckb.storage import Place
from ckb.store import Conflict, Store

R = TypeVar("R", bound=Row)
NOT_CONTENT = {"id", "meaning", "status", "provenance", "created", "evidence"}
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
    """`table/id` of rows that were there already, word for word."""
    merged: tuple[str, ...] = ()
    """Ids of experience rows that were there already and have this run's evidence now."""
    lowered: tuple[str, ...] = ()
    """Ids of experience rows that are drafts, each with the reason."""
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
    """Commit a run's lessons. When others commit meanwhile, they are compared anew with what is there then.

    Raises UserError for evidence of another run.
    """
    if foreign := {item.run for row in lessons.experience for item in row.evidence} - {lessons.run.id}:
        raise UserError(f"run {lessons.run.id} hands in evidence of {', '.join(sorted(foreign))}")
    while True:
        base = store.latest
        if store.rows(Run, base, where=pc.field("id") == lessons.run.id):
            version = blame(store, "runs", lessons.run.id, base).version
            return Consolidation(version=version, rows={}, repeated=True)
        outcome = _compare(store, base, lessons)
        said = [f"{len(rows)} {table}" for table, rows in outcome.new.items() if rows]
        said += [f"{len(outcome.changed)} experience changed"] if outcome.changed else []
        message = f"run {lessons.run.id}: {', '.join(said)}"
        try:
            version = _commit(store, base, outcome, message)
        except Conflict:
            continue
        return Consolidation(
            version=version,
            rows={table: len(rows) for table, rows in outcome.new.items() if rows},
            duplicates=tuple(outcome.duplicates),
            merged=tuple(outcome.merged),
            lowered=tuple(outcome.lowered),
            contradictions=tuple(outcome.contradictions),
        )


def _commit(store: Store, base: int, outcome: "_Outcome", message: str) -> int:
    if not outcome.changed:
        return store.append(outcome.new, parent=base, message=message, by="consolidator")
    rows = {**outcome.new, "experience": [*outcome.new.get("experience", ()), *outcome.changed]}
    return store.overwrite(rows, parent=base, message=message, by="consolidator")


def content_hash(row: Row) -> str:
    """Hash of what a row says, whoever says it and when."""
    return sha256_json(row.model_dump(mode="json", exclude=NOT_CONTENT))


class _Outcome:
    """The rows to write, and what was noticed on the way."""

    def __init__(self, run: Run):
        self.new: dict[str, Sequence[Row]] = {"runs": [_signed(run, run.id)]}
        self.changed: Sequence[Experience] = ()
        """Stored rows of experience as they are to be now."""
        self.duplicates: list[str] = []
        self.merged: list[str] = []
        self.lowered: list[str] = []
        self.contradictions: list[Contradiction] = []


def _compare(store: Store, base: int, lessons: Lessons) -> _Outcome:
    outcome = _Outcome(lessons.run)
    for table in TELLING:
        rows = getattr(lessons, table)
        known = _similar(store, table, base, rows)
        if table == "experience":
            _compare_experience(outcome, lessons, {row.id: row for row in known if isinstance(row, Experience)})
        else:
            outcome.new[table] = list(_compare_records(outcome, table, rows, known, lessons.run.id))
    return outcome


def _compare_records(outcome: _Outcome, table: str, rows: Sequence[Row], known: list[Row], run: str) -> Iterator[Row]:
    """The rows that the table does not hold."""
    for row in rows:
        if duplicate := next((old for old in known if content_hash(old) == content_hash(row)), None):
            outcome.duplicates.append(f"{table}/{duplicate.id}")
            continue
        rivals = [old for old in known if old.id == row.id]
        kept = _signed(_own(row, bool(rivals)), run)
        detail = "the same id, and another content"
        outcome.contradictions += [
            Contradiction(table=table, existing=old.id, new=kept.id, detail=detail) for old in rivals
        ]
        known.append(kept)
        yield kept


def _compare_experience(outcome: _Outcome, lessons: Lessons, known: dict[str, Experience]) -> None:
    """Each row merged with the stored one that says the same, or stored beside those that say something else."""
    stored = dict(known)
    for row in map(standing, lessons.experience):
        equal = _equal(row, list(known.values()))
        if equal and set(row.evidence) <= set(equal.evidence):
            outcome.duplicates.append(f"experience/{equal.id}")
        elif equal and equal.provenance.source == "run":  # the seed's rows are people's to change
            known[equal.id] = merged(equal, row)
            outcome.merged.append(equal.id)
        else:
            kept = _signed(_own(row, row.id in known), lessons.run.id)
            outcome.contradictions += [_opposition(old, kept) for old in _opponents(kept, known)]
            known[kept.id] = kept
    known = {id: _disputed(row, _opponents(row, known)) for id, row in known.items()}
    outcome.new["experience"] = [row for id, row in known.items() if id not in stored]
    outcome.changed = [row for id, row in known.items() if id in stored and row != stored[id]]
    written = [row for id, row in known.items() if row != stored.get(id)]
    outcome.lowered += [f"{row.id}: {_why_draft(row)}" for row in written if row.status == "draft"]


def _equal(row: Experience, known: Sequence[Experience]) -> Experience | None:
    """The row that says the same: of the same meaning, or in the same words."""
    same = [old for old in known if _speaks_of(old) == _speaks_of(row) and same_claim(old, row)]
    same += [old for old in known if content_hash(old) == content_hash(row)]
    return min(same, key=lambda old: old.provenance.source != "run", default=None)


def _opponents(row: Experience, known: Mapping[str, Experience]) -> list[Experience]:
    return [old for old in known.values() if old.status != "deprecated" and opposed(old, row)]


def _opposition(old: Experience, new: Experience) -> Contradiction:
    detail = f"effect {old.effect or 0.0:+.3f} there, {new.effect or 0.0:+.3f} now"
    return Contradiction(table="experience", existing=old.id, new=new.id, detail=detail)


def _disputed(row: Experience, opponents: Sequence[Experience]) -> Experience:
    """A run's rule that a measurement speaks against is no rule until somebody has looked; what was measured of one
    target stays what was measured."""
    rule = row.scope == "rule" and row.provenance.source == "run" and row.status == "verified"
    return row.model_copy(update={"status": "draft"}) if rule and opponents else row


def _why_draft(row: Experience) -> str:
    if row.signal == "tentative":
        return "no effect above noise, and no failing test that it fixed"
    support = f"{len(targets(row))} of {TARGETS_OF_A_RULE} targets support the rule"
    return support if len(targets(row)) < TARGETS_OF_A_RULE else "another measurement says the opposite"


def _similar(store: Store, table: str, version: int, rows: Sequence[Row]) -> list[Row]:
    """The stored rows that could say the same as any of `rows`, or speak of the same thing."""
    if not rows or not store.state(version).tables.get(table):
        return []
    ids, telling = [row.id for row in rows], [getattr(row, TELLING[table]) for row in rows]
    where = pc.field("id").isin(ids) | pc.field(TELLING[table]).isin(telling)
    if table == "experience":
        where |= pc.field("provenance", "source") != "run"  # people name their rows as they like
        where |= pc.field("meaning").isin([*ids, *(row.meaning for row in rows if isinstance(row, Experience))])
    return store.rows(table, version, where=where)


def _speaks_of(row: Experience) -> str:
    return row.meaning or row.id


def _own(row: R, taken: bool) -> R:
    """The row under an id of its own; what it claims stays its meaning."""
    meaning = {"meaning": _speaks_of(row)} if isinstance(row, Experience) else {}
    return row.model_copy(update={"id": f"{row.id}.{content_hash(row)[:8]}" if taken else row.id, **meaning})


def _signed(row: R, run: str) -> R:
    """The row with its run and its date."""
    provenance = row.provenance.model_copy(update={"source": "run", "run": run})
    created = row.created or datetime.now(UTC).date().isoformat()
    return row.model_copy(update={"created": created, "provenance": provenance})
