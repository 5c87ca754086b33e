"""The test contracts of the seed against the gates that there are: neither may promise what the other does not keep."""

from ckb.build import read_seed
from ckb.schemas import TestContract
from gpu_actors.gates.registry import OWN, STAGE_GATES

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
