"""The draft contracts of the seed: whole, apart from what generation sees, and about things that there are."""

import ast
import re
from pathlib import Path

import pytest

from ckb.build import ensure_store, read_knowledge_at, read_seed
from ckb.drafts import Drafts, described
from ckb.knowledge_files import read_knowledge
from ckb.predicate import Predicate
from ckb.records import Contract
from ckb.schemas import ModelFamily, Parallelism, TestContract
from ckb.schemas.models import TEXT_CONFIG
from tests.unit.ckb.samples import facts, families

KNOWLEDGE = read_knowledge()
DRAFTS = list(KNOWLEDGE.drafts.values())
EVERY = KNOWLEDGE.contracts | KNOWLEDGE.drafts
TESTS = {row.id: row for row in read_seed()["test_contracts"] if isinstance(row, TestContract)}
WAYS = [row for row in read_seed()["parallelism"] if isinstance(row, Parallelism)]
STATEFUL = {"cache.py", "scheduler.py"}
"""Modules whose contracts are about what outlives a call."""

WITHOUT_TENSORS = {
    "process-group", "yarn-attention-scale", "text-config", "sharded-weights", "request-life-cycle", "memory-pool",
}  # fmt: skip


def asked_for(predicate: str) -> set[str]:
    """Features of a model that a predicate names."""
    tree = ast.parse(" ".join(predicate.split()), mode="eval")
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.In | ast.NotIn)]
    texts = [n.left.value for n in found if isinstance(n.left, ast.Constant) and "features" in ast.unparse(n)]
    return {text for text in texts if isinstance(text, str)}


def features(family: ModelFamily) -> set[str]:
    return {feature.name for feature in family.features}


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda draft: str(draft.id))
def test_a_draft_fills_its_columns_and_its_test_is_a_draft_under_the_same_condition(draft: Contract) -> None:
    assert all((draft.interface, draft.state, draft.error_cases, draft.failures, draft.text.strip()))
    assert all((draft.applies_to, draft.provenance.references))
    assert bool(draft.transitions) or draft.module not in STATEFUL
    tensors = [t for function in draft.interface for t in (*function.takes, *function.returns)]
    assert any(tensor.shape for tensor in tensors) == (draft.id not in WITHOUT_TENSORS)
    assert [t.name for t in tensors if t.dtype == "compute" and (not t.shape or t.placement != "device")] == []
    assert [t.name for t in tensors if t.shape is None and t.placement != "host"] == []
    test = TESTS[draft.test]
    assert (test.contract, test.status, test.stage) == (draft.id, "draft", draft.stage)
    assert (test.applies_to, bool(test.text.strip())) == (draft.applies_to, True)


def test_verified_contracts_build_on_no_draft_and_have_verified_tests() -> None:
    assert [c.id for c in KNOWLEDGE.contracts.values() if set(c.requires) & KNOWLEDGE.drafts.keys()] == []
    assert [c.id for c in KNOWLEDGE.contracts.values() if TESTS[c.test].status != "verified"] == []


def test_a_decision_belongs_to_one_contract() -> None:
    names = [name for contract in EVERY.values() for name in contract.decisions]
    assert sorted(names) == sorted(set(names))


def test_drafts_speak_of_features_that_models_have_and_every_feature_has_one() -> None:
    known = {TEXT_CONFIG.name, *(name for family in families() for name in features(family))}
    asked = {name for draft in DRAFTS for name in asked_for(draft.applies_to)}
    assert asked == known
    assert {name for way in WAYS for name in asked_for(way.applies_to)} <= known


def test_no_draft_is_in_force_for_what_the_gates_run() -> None:
    found = Drafts.in_force(DRAFTS, facts(), {})
    assert [draft.id for draft in found.contracts] == []


def test_the_store_keeps_drafts_apart_as_the_files_do(tmp_path: Path) -> None:
    stored = read_knowledge_at(ensure_store(tmp_path / "store"))
    undated = {id: row.model_copy(update={"created": ""}) for id, row in stored.drafts.items()}
    assert undated == KNOWLEDGE.drafts
    assert not stored.drafts.keys() & stored.contracts.keys()


def test_what_a_gap_says_of_drafts() -> None:
    assert described(()) == ""
    assert described(("a",)) == "contract a describes it and is a draft: no gate has run it"
    assert described(("a", "b"), "row") == "rows a, b describe it and are drafts: no gate has run them"


def test_states_of_a_requests_life_are_reached_and_final_ones_are_never_left() -> None:
    cycle = KNOWLEDGE.drafts["request-life-cycle"]
    moves = {(t.before, t.after) for t in cycle.transitions}
    state = next(f for f in cycle.interface if f.name == "Sequence.state")
    named = set(re.findall(r"\w+", state.does.replace(" or ", " ")))
    final = {"finished", "aborted"}
    assert {word for move in moves for word in move} == named
    assert {before for before, _ in moves} == named - final
    reached = {"waiting"}
    for _ in named:
        reached |= {after for before, after in moves if before in reached}
    assert reached == named
    assert all((state, "aborted") in moves for state in named - final), "a request can be aborted in each state"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.id))
def test_a_way_to_spread_a_model_is_a_draft_whose_exchanges_are_described(way: Parallelism) -> None:
    assert way.status == "draft"
    assert Predicate(way.degree).names() == {"platform.count"}
    exchanged = {part.collective for part in way.partitions} - {"none"}
    assert {name.replace("_", "-") for name in exchanged} <= KNOWLEDGE.drafts.keys()
    assert all((way.text.strip(), way.provenance.references, way.divides))
