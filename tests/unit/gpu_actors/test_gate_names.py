"""The test contracts of the seed against the gates that there are: neither may promise what the other does not keep."""

from dataclasses import replace
from pathlib import Path

import pytest

from ckb.build import read_seed
from ckb.criteria import METRICS
from ckb.schemas import TestContract
from gpu_actors.gates.listed import asks, listed, page
from gpu_actors.gates.registry import OWN, STAGE_GATES

DOCS = Path(__file__).parents[3] / "docs"
TESTS = [row for row in read_seed()["test_contracts"] if isinstance(row, TestContract)]


def test_each_verified_test_contract_names_a_gate_and_each_gate_has_one() -> None:
    promised = sorted((t.gate, t.contract, t.stage, t.level) for t in TESTS if t.status == "verified")
    own = [
        gate for gate in STAGE_GATES if gate.contract != "contracts"
    ]  # those check what every contract's columns say
    assert len(own) == len(STAGE_GATES) - 4 * len(OWN)
    assert promised == sorted((gate.id, gate.contract, gate.stage, gate.level or "L1") for gate in own)


def test_what_a_gate_runs_is_no_draft() -> None:
    running = {gate.id for gate in STAGE_GATES}
    assert [test.id for test in TESTS if test.status == "draft" and test.gate in running] == []


def test_the_page_of_gates_is_what_the_registry_gives_now() -> None:
    told = "write it anew: python -m gpu_actors.gates.listed > docs/gates.md"
    assert (DOCS / "gates.md").read_text(encoding="utf-8") == page(), told
    assert all(f"`{row.id}`" in page() for row in listed())


def test_a_gate_says_in_its_docstring_what_it_asks() -> None:
    (gate,) = (gate for gate in STAGE_GATES if gate.id == "float32_model")
    assert asks(gate).startswith("A bfloat16 Target's tree in a copy")
    with pytest.raises(ValueError, match="the function of gate float32_model has no docstring"):
        asks(replace(gate, check=lambda subject: gate.check(subject)))


def test_the_page_on_judging_names_what_a_verdict_holds_beside_the_gates_of_the_registry() -> None:
    words = (DOCS / "verification.md").read_text(encoding="utf-8")
    others = [row.id for row in listed() if not row.registered]
    assert [name for name in others if f"`{name}`" not in words] == []


def test_the_page_on_judging_names_every_metric_that_a_criterion_may_compare() -> None:
    words = (DOCS / "verification.md").read_text(encoding="utf-8")
    assert [name for known in (*METRICS.values(), METRICS) for name in known if f"`{name}`" not in words] == []
