"""Table `test_contracts`: what each fixed test checks, and the gate that runs it."""

from typing import ClassVar, Literal

from ckb.records import Layer, Row, Stage


class TestContract(Row):
    """The test of one contract. Its code is a gate in gpu_actors: fixed, and never written by an author."""

    __test__: ClassVar[bool] = False  # keeps pytest from taking it for a class of tests

    layer: Layer = "test"
    contract: str
    """Id of the contract that it checks."""
    stage: Stage
    """The stage whose candidates it gates."""
    level: Literal["L0", "L1", "L2", "L3"]
    """L0 provenance, L1 stage, L2 regression, L3 acceptance; an L1 test is L2 in later stages."""
    gate: str
    """Name of the gate function in gpu_actors."""
    text: str
    """What is checked, against which oracle, with which bounds."""
