"""Consolidation: one commit a run, no duplicate, contradictions reported and kept apart."""

from pathlib import Path
from typing import Any

import pytest

from ckb.consolidate import Consolidator, Lessons, consolidate, content_hash
from ckb.records import Provenance
from ckb.schemas import Experience, Run, Trace
from ckb.storage import LocalStorage
from ckb.store import Store
from tests.unit.ckb.samples import ROWS, experience


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


def run(id: str) -> Run:
    return Run.model_validate(ROWS["runs"].model_dump() | {"id": id, "provenance": {"source": "run", "run": id}})


def trace(**fields: Any) -> Trace:
    return Trace.model_validate(ROWS["traces"].model_dump() | fields)


def lessons(id: str, *found: Experience, traces: tuple[Trace, ...] = ()) -> Lessons:
    return Lessons(run=run(id), experience=found, traces=traces)


def test_a_run_becomes_one_version(store: Store) -> None:
    outcome = consolidate(store, lessons("r1", experience("a", effect=0.2), traces=(trace(),)))
    assert (outcome.version, outcome.rows) == (1, {"runs": 1, "experience": 1, "traces": 1})
    (row,) = store.rows(Experience)
    assert (row.meaning, row.provenance, row.status) == ("a", Provenance(source="run", run="r1"), "verified")
    assert row.created
    assert store.log()[0].message == "run r1: 1 runs, 1 experience, 1 traces"


def test_the_same_run_twice_makes_one_version(store: Store, tmp_path: Path) -> None:
    first = consolidate(store, lessons("r1", experience("a")))
    consolidate(store, lessons("r2"))
    again = Consolidator(tmp_path / "store").consolidate(lessons("r1", experience("a"), experience("b")))
    assert (again.version, again.repeated, again.rows) == (first.version, True, {})
    assert (store.latest, len(store.rows(Experience))) == (2, 1)


def test_two_consolidators_of_one_run_at_once_make_one_version(store: Store, tmp_path: Path) -> None:
    class Raced(LocalStorage):
        """Another consolidator of the same run comes first, at the last moment."""

        done = False

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith("versions/") and not self.done:
                self.done = True
                consolidate(store, lessons("r1", experience("a")))
            super().put_if_absent(path, data)

    outcome = consolidate(Store(Raced(tmp_path / "store")), lessons("r1", experience("a")))
    assert (outcome.version, outcome.repeated) == (1, True)
    assert (store.latest, len(store.rows(Run)), len(store.rows(Experience))) == (1, 1, 1)


def test_the_same_content_is_stored_once_whoever_says_it(store: Store) -> None:
    consolidate(store, lessons("r1", experience("a", effect=0.2, text="x"), traces=(trace(id="t1"),)))
    same = experience("other", effect=0.2, text="x")
    outcome = consolidate(store, lessons("r2", same, same, traces=(trace(id="t2"), trace(id="t3", log="new"))))
    assert outcome.duplicates == ("experience/a", "experience/a", "traces/t1")
    assert outcome.rows == {"runs": 1, "traces": 1}
    assert len(store.rows(Experience)) == 1


def test_duplicates_within_one_run_are_found_too(store: Store) -> None:
    outcome = consolidate(store, lessons("r1", experience("a", text="x"), experience("b", text="x")))
    assert (outcome.rows["experience"], outcome.duplicates) == (1, ("experience/a",))


def test_a_contradiction_is_reported_and_stored_as_its_own_row(store: Store) -> None:
    consolidate(store, lessons("r1", experience("a", effect=0.2)))
    opposite = experience("a", effect=-0.1)
    outcome = consolidate(store, lessons("r2", opposite))
    (found,) = outcome.contradictions
    assert (found.table, found.existing, found.new) == ("experience", "a", f"a.{content_hash(opposite)[:8]}")
    assert found.detail == "effect +0.200 there, -0.100 now"
    rows = {row.id: row for row in store.rows(Experience)}
    assert {id: row.effect for id, row in rows.items()} == {"a": 0.2, found.new: -0.1}
    assert {row.meaning for row in rows.values()} == {"a"}
    third = consolidate(store, lessons("r3", experience("a", effect=0.3)))
    assert [c.existing for c in third.contradictions] == [found.new], "only the row that says the opposite"


def test_a_confirmation_is_a_row_of_its_own_and_no_contradiction(store: Store) -> None:
    consolidate(store, lessons("r1", experience("a", effect=0.2)))
    outcome = consolidate(store, lessons("r2", experience("a", effect=0.25)))
    assert (outcome.rows["experience"], outcome.contradictions) == (1, ())
    assert consolidate(store, lessons("r3", experience("a", effect=None, text="y"))).contradictions == ()


def test_a_definition_with_another_content_is_a_contradiction(store: Store) -> None:
    definition = ROWS["definitions"]
    first = Lessons.model_validate({"run": run("r1"), "definitions": (definition,)})
    changed = definition.model_copy(update={"op_type": "gemv"})
    consolidate(store, first)
    outcome = consolidate(store, Lessons.model_validate({"run": run("r2"), "definitions": (changed,)}))
    assert [(c.existing, c.detail) for c in outcome.contradictions] == [("a", "the same id, and another content")]
    assert len(store.rows("definitions")) == 2


def test_tentative_rows_are_drafts(store: Store) -> None:
    consolidate(store, lessons("r1", experience("a", signal="tentative"), experience("b", signal="probable")))
    assert {row.id: row.status for row in store.rows(Experience)} == {"a": "draft", "b": "verified"}
