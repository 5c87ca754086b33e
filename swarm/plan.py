"""A Plan: what a Target needs from the knowledge base, with its numbers, frozen before the first implementer starts."""

import hashlib
from typing import Literal

from ckb.facts import Facts, Frozen
from ckb.hashing import sha256_json
from ckb.records import Choice, Function, Stage
from gpu_actors.jobs import Scenario
from swarm.feasibility import Feasibility


class PlannedContract(Frozen):
    """A contract with the Target's numbers in its shapes."""

    id: str
    sha256: str
    """Hash of the knowledge base's row."""
    stage: Stage
    module: str
    interface: tuple[Function, ...]
    test: str


class PlannedTest(Frozen):
    """The test of a planned contract."""

    id: str
    sha256: str
    """Hash of the knowledge base's row."""
    contract: str
    level: str
    gate: str
    """Name of the gate function in gpu_actors."""


class Plan(Frozen):
    facts: Facts
    ckb_version: int
    contracts: tuple[PlannedContract, ...]
    """In order of stage, module and place in it."""
    tests: tuple[PlannedTest, ...]
    numbers: dict[str, str]
    """The Target's numbers by the names that contracts and fragments use: HIDDEN, HEADS, ..."""
    space: dict[str, tuple[Choice, ...]]
    """Open decisions and parameters with their values, the default first."""
    affects: dict[str, tuple[str, ...]]
    """Decision or parameter -> the parts of a step that it can change."""
    metric: str
    direction: Literal["min", "max"]
    unit: str
    bound: float
    """Roofline bound of the metric."""
    scenarios: tuple[Scenario, ...]
    feasibility: Feasibility
    checkpoint: str
    """Hash of the checkpoint's config.json and safetensors headers."""
    user_files: dict[str, str]
    """File of the user's block -> sha256."""
    draw: int
    """Secret of this run: verdicts and benchmarks draw from it, and no author sees it."""

    @property
    def sha256(self) -> str:
        return sha256_json(self.model_dump(mode="json"))

    @property
    def contract_ids(self) -> tuple[str, ...]:
        return tuple(contract.id for contract in self.contracts)

    @property
    def max_memory_bytes(self) -> int:
        """Most memory of the engine's process tree."""
        return self.feasibility.allowed_bytes

    def seed_of(self, *parts: str) -> int:
        """A seed for one named purpose: the same for the same words in the same run, and not to be guessed."""
        digest = hashlib.sha256("\0".join([str(self.draw), *parts]).encode()).digest()
        return int.from_bytes(digest[:6], "big")
