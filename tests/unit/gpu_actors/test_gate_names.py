"""The test contracts of the seed against the gates that there are: neither may promise what the other does not keep."""

from ckb.build import read_seed
from ckb.schemas import TestContract
from gpu_actors.gates.registry import STAGE_GATES

TESTS = [row for row in read_seed()["test_contracts"] if isinstance(row, TestContract)]


def test_each_verified_test_contract_names_a_gate_and_each_gate_has_one() -> None:
    promised = sorted((t.gate, t.contract, t.stage, t.level) for t in TESTS if t.status == "verified")
    assert promised == sorted((gate.id, gate.contract, gate.stage, gate.level or "L1") for gate in STAGE_GATES)


def test_what_a_gate_runs_is_no_draft() -> None:
    running = {gate.id for gate in STAGE_GATES}
    assert [test.id for test in TESTS if test.status == "draft" and test.gate in running] == []
