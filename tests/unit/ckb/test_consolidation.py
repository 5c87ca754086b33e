"""Consolidation: one commit a run, no duplicate, contradictions reported and kept apart."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from ckb.build import read_knowledge_at
from ckb.consolidate import Consolidator, Lessons, consolidate, content_hash
from ckb.errors import UserError
from ckb.evidence import local_condition, rule_and_fact, target_of
from ckb.judging import judge
from ckb.predicate import Predicate
from ckb.records import Provenance
from ckb.schemas import Experience, Run, Trace
from ckb.schemas.experience import Evidence
from ckb.storage import LocalStorage
from ckb.store import Store
from tests.unit.ckb.samples import FACTS, ROWS, experience


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


def run(id: str) -> Run:
    return Run.model_validate(ROWS["runs"].model_dump() | {"id": id, "provenance": {"source": "run", "run": id}})


def trace(**fields: Any) -> Trace:
    return Trace.model_validate(ROWS["traces"].model_dump() | fields)


def lessons(id: str, *found: Experience, traces: tuple[Trace, ...] = ()) -> Lessons:
    return Lessons(run=run(id), experience=found, traces=traces)


def claim(id: str, effect: float | None, run: str, target: str = "small", **fields: Any) -> Experience:
    """A row of a run, as it hands it over: with its one piece of evidence."""
    row = experience(id, effect=effect, **{"kind": "optimisation", "signal": "probable", **fields})
    found = Evidence(target=target, run=run, effect=row.effect, interval=row.interval)
    return row.model_copy(update={"evidence": (found,)})


def test_a_run_becomes_one_version(store: Store) -> None:
    outcome = consolidate(store, lessons("r1", claim("a", 0.2, "r1", scope="fact"), traces=(trace(),)))
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
    consolidate(store, lessons("r1", claim("a", 0.2, "r1", scope="fact")))
    opposite = claim("a", -0.1, "r2", scope="fact")
    outcome = consolidate(store, lessons("r2", opposite))
    (found,) = outcome.contradictions
    assert (found.table, found.existing, found.new) == ("experience", "a", f"a.{content_hash(opposite)[:8]}")
    assert found.detail == "effect +0.200 there, -0.100 now"
    rows = {row.id: row for row in store.rows(Experience)}
    assert {id: (row.effect, row.status) for id, row in rows.items()} == {
        "a": (0.2, "verified"),
        found.new: (-0.1, "verified"),
    }, "what was measured of one target stays"
    assert {row.meaning for row in rows.values()} == {"a"}
    third = consolidate(store, lessons("r3", claim("a", 0.3, "r3", scope="fact")))
    assert (third.merged, third.contradictions) == (("a",), ()), "said before, and reported then"


def test_a_rule_is_a_draft_until_two_targets_support_it(store: Store) -> None:
    first = consolidate(store, lessons("r1", claim("a", 0.2, "r1")))
    assert first.lowered == ("a: 1 of 2 targets support the rule",)
    again = consolidate(store, lessons("r2", claim("a", 0.3, "r2")))
    assert (again.rows, again.merged) == ({"runs": 1}, ("a",))
    (row,) = store.rows(Experience)
    assert (row.status, row.signal, row.effect) == ("draft", "confirmed", 0.2), "one target, twice"
    consolidate(store, lessons("r3", claim("a", 0.1, "r3", target="large")))
    (row,) = store.rows(Experience)
    assert (row.status, row.usable) == ("verified", True)
    assert (row.effect, row.interval) == (0.1, pytest.approx((0.05, 0.15))), "of all findings the one that claims least"
    assert [(e.target, e.run) for e in row.evidence] == [("small", "r1"), ("small", "r2"), ("large", "r3")]
    assert [m.operation for m in store.log()][:2] == ["overwrite", "overwrite"]
    assert store.rows(Experience, 1)[0].status == "draft", "older versions say what they said"


def test_a_rule_that_a_third_target_speaks_against_is_a_draft_again(store: Store) -> None:
    for number, target in enumerate(("small", "large"), 1):
        consolidate(store, lessons(f"r{number}", claim("a", 0.2, f"r{number}", target=target)))
    outcome = consolidate(store, lessons("r3", claim("a", -0.2, "r3", target="huge")))
    assert [(c.existing, c.detail) for c in outcome.contradictions] == [("a", "effect +0.200 there, -0.200 now")]
    assert "a: another measurement says the opposite" in outcome.lowered
    assert {row.effect: row.status for row in store.rows(Experience)} == {0.2: "draft", -0.2: "draft"}
    consolidate(store, lessons("r4", claim("a", 0.2, "r4", target="tiny")))
    assert all(row.status == "draft" for row in store.rows(Experience)), "a third vote does not settle it"


def test_a_person_settles_a_contradiction_and_no_run_undoes_it(store: Store) -> None:
    for number, target in enumerate(("small", "large"), 1):
        consolidate(store, lessons(f"r{number}", claim("a", 0.2, f"r{number}", target=target)))
    opposite = consolidate(store, lessons("r3", claim("a", -0.2, "r3", target="huge"))).contradictions[0].new
    judge(store, "experience", opposite, "deprecated", why="measured on a busy machine", by="ann")
    judge(store, "experience", "a", "verified", why="as before", by="ann")
    assert (store.log()[0].by, store.log()[0].message) == ("ann", "experience a: draft -> verified: as before")
    consolidate(store, lessons("r4", claim("a", 0.3, "r4", target="tiny")))
    consolidate(store, lessons("r5", claim("a", -0.3, "r5", target="vast")))
    rows = {row.id: row for row in store.rows(Experience)}
    assert (rows["a"].status, len(rows["a"].evidence)) == ("verified", 3)
    assert (rows[opposite].status, len(rows[opposite].evidence)) == ("deprecated", 2), "what was withdrawn stays so"
    judge(store, "experience", "a", "draft", why="not on machines of one core", by="ann")
    consolidate(store, lessons("r6", claim("a", 0.3, "r6", target="sixth")))
    assert {row.status for row in store.rows(Experience, where=pc.field("id") == "a")} == {"draft"}
    store.append({"experience": [experience("seed")]}, message="m", by="build")
    for id, status, message in (
        ("none", "draft", "no row 'none' at version"),
        ("a", "draft", "'a' is draft already"),
        ("seed", "draft", "'seed' is a row of the seed"),
    ):
        with pytest.raises(UserError, match=message):
            judge(store, "experience", id, status, why="w", by="ann")  # type: ignore[arg-type]


def test_what_each_run_said_of_a_merged_claim_is_kept(store: Store) -> None:
    for number, text in enumerate(("position 4 is missing", "wrong dtype"), 1):
        row = claim("a", None, f"r{number}", f"t{number}", kind="failure_mode", fixed=f"s{number}/kv_cache", text=text)
        told = row.evidence[0].model_copy(update={"text": text, "fixed": row.fixed})
        consolidate(store, lessons(f"r{number}", row.model_copy(update={"evidence": (told,)})))
    (merged,) = store.rows(Experience)
    assert [(e.fixed, e.text) for e in merged.evidence] == [
        ("s1/kv_cache", "position 4 is missing"),
        ("s2/kv_cache", "wrong dtype"),
    ]


def test_the_evidence_of_one_run_counts_once(store: Store) -> None:
    found = claim("a", 0.2, "r1")
    outcome = consolidate(store, lessons("r1", found, found))
    assert (outcome.rows["experience"], outcome.duplicates) == (1, ("experience/a",))


def test_a_rule_and_the_fact_behind_it_say_whom_they_are_for(store: Store) -> None:
    rule, fact = rule_and_fact(claim("a", 0.2, "r1", applies_to="platform.accelerator == 'cpu'"), FACTS)
    consolidate(store, lessons("r1", rule, fact))
    rows = {row.scope: row for row in store.rows(Experience)}
    assert (rows["rule"].status, rows["fact"].status) == ("draft", "verified")
    assert rows["rule"].meaning == rows["fact"].meaning == "a"
    assert Predicate(rows["fact"].applies_to).holds(FACTS)


@pytest.mark.parametrize(
    "name",
    ["model.model_type", "model.layers", "model.hidden", "model.weights", "platform.name", "platform.count",
     "workload.dtype", "workload.batch"],
)  # fmt: skip
def test_a_fact_holds_for_no_other_target_than_its_own(name: str) -> None:
    section, _, field = name.partition(".")
    value = FACTS.lookup(name)
    part = getattr(FACTS, section).model_copy(update={field: value + 1 if isinstance(value, int) else f"{value}x"})
    other = FACTS.model_copy(update={section: part})
    assert Predicate(local_condition(FACTS)).holds(FACTS)
    assert not Predicate(local_condition(FACTS)).holds(other)
    assert target_of(other) != target_of(FACTS)


def test_what_is_within_noise_is_no_support_of_a_rule(store: Store) -> None:
    consolidate(store, lessons("r1", claim("a", 0.2, "r1")))
    consolidate(store, lessons("r2", claim("a", 0.01, "r2", target="large")))
    guess = claim("a", None, "r3", target="huge", signal="tentative")
    consolidate(store, lessons("r3", guess))
    assert not any(row.usable for row in store.rows(Experience))


def test_a_mended_gate_is_no_proof_of_speed(store: Store) -> None:
    faster = claim("a", None, "r1", change={"kv_layout": "paged"}, fixed="s1/logits", scope="fact")
    consolidate(store, lessons("r1", faster))
    assert [(row.signal, row.status) for row in store.rows(Experience)] == [("tentative", "draft")]


def test_opposite_findings_of_one_change_meet_whatever_they_are_called(store: Store) -> None:
    """The seed's rows have names that people gave them."""
    seed = claim("eager-is-slow", -0.6, "r0", change={"step": "eager"}, applies_to="platform.accelerator == 'cpu'")
    elsewhere = {"change": {"step": "eager"}, "applies_to": "platform.accelerator == 'cuda'"}
    store.append({"experience": [seed, claim("cuda", -0.6, "r0", **elsewhere)]}, message="seed", by="t")
    found = claim("x1", 0.3, "r1", change={"step": "eager"}, applies_to="platform.cores <= 4", scope="fact")
    here = found.model_copy(update={"applies_to": "platform.accelerator == 'cpu' and platform.cores <= 4"})
    outcome = consolidate(store, lessons("r1", here))
    assert [c.existing for c in outcome.contradictions] == ["eager-is-slow"]
    assert {row.id: row.status for row in store.rows(Experience)}["eager-is-slow"] == "verified", "people's to change"


def test_runs_meet_beside_a_row_of_people_that_says_the_same(store: Store) -> None:
    store.append({"experience": [claim("a", 0.2, "r0")]}, message="seed", by="t")
    for number, target in enumerate(("small", "large", "huge"), 1):
        consolidate(store, lessons(f"r{number}", claim("a", 0.2, f"r{number}", target=target)))
    (own,) = (row for row in store.rows(Experience) if row.provenance.source == "run")
    assert ([item.target for item in own.evidence], own.status) == (["small", "large", "huge"], "verified")


def test_a_run_speaks_for_itself_alone(store: Store) -> None:
    with pytest.raises(UserError, match="run r1 hands in evidence of r99"):
        consolidate(store, lessons("r1", claim("a", 0.2, "r99")))
    forged = claim("a", 0.2, "r1").model_copy(update={"provenance": Provenance(source="seed", run="other")})
    consolidate(store, lessons("r1", forged))
    assert [(row.provenance.source, row.provenance.run) for row in store.rows(Experience)] == [("run", "r1")]
    for interval in ((-0.2, -0.1), (0.3, 0.1)):
        with pytest.raises(ValidationError, match="does not lie in its interval"):
            claim("a", 0.2, "r1", interval=interval)


def test_a_people_s_row_is_not_rewritten_by_a_run(store: Store) -> None:
    seed = claim("a", 0.2, "r0")
    store.append({"experience": [seed]}, message="seed", by="t")
    outcome = consolidate(store, lessons("r1", claim("a", 0.3, "r1")))
    assert (outcome.merged, outcome.rows["experience"]) == ((), 1)
    assert store.rows(Experience)[0] == seed
    consolidate(store, lessons("r2", claim("a", -0.3, "r2")))
    assert store.rows(Experience)[0].status == "verified", "nor lowered"


def test_a_definition_with_another_content_is_a_contradiction(store: Store) -> None:
    definition = ROWS["definitions"]
    first = Lessons.model_validate({"run": run("r1"), "definitions": (definition,)})
    changed = definition.model_copy(update={"op_type": "gemv"})
    consolidate(store, first)
    outcome = consolidate(store, Lessons.model_validate({"run": run("r2"), "definitions": (changed,)}))
    assert [(c.existing, c.detail) for c in outcome.contradictions] == [("a", "the same id, and another content")]
    assert len(store.rows("definitions")) == 2


def test_what_is_not_above_noise_is_a_tentative_draft_whatever_its_author_says(store: Store) -> None:
    found = (
        claim("noise", 0.02, "r1", interval=(-0.01, 0.05), signal="confirmed", scope="fact"),
        claim("unmeasured", None, "r1", signal="confirmed", scope="fact"),
        claim("said", 0.2, "r1", signal="tentative", scope="fact"),
        claim("mended", None, "r1", kind="failure_mode", fixed="s2/kv_cache", scope="fact"),
        claim("worse", -0.2, "r1", scope="fact"),
    )
    outcome = consolidate(store, lessons("r1", *found))
    rows = {row.id: (row.signal, row.status) for row in store.rows(Experience)}
    assert rows == {
        "noise": ("tentative", "draft"),
        "unmeasured": ("tentative", "draft"),
        "said": ("tentative", "draft"),
        "mended": ("probable", "verified"),
        "worse": ("probable", "verified"),
    }
    assert len(outcome.lowered) == 3
    assert outcome.lowered[0] == "noise: no effect above noise, and no failing test that it fixed"
    assert {e.id for e in read_knowledge_at(store).experience} == {"mended", "worse"}
