"""Every row that a verdict may hold, in the order in which they are made, as a page:

python -m gpu_actors.gates.listed > docs/gates.md
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gpu_actors.gates.base import EVERY, Gate
from gpu_actors.gates.provenance import RUNTIME, STATIC
from gpu_actors.gates.registry import STAGE_GATES

HEAD = """\
# The gates, in the order in which they run

Made by `python -m gpu_actors.gates.listed` from `gpu_actors/gates/registry.py` and `provenance.py`; what a gate asks is
the first sentence of its function's docstring. "By stage" is L1 in the last stage that a job names and L2 in an earlier
one. A gate whose contract is "every" executes what the columns of every contract in force say; another one runs if the
plan holds its contract. `enginesmith ckb show test_contracts GATE` has bounds and oracle of those that are tests of one
contract. Rows in italics are no gates of the registry: `gpu_actors/verifier.py` adds them.

| gate | level | stage | contract | what it asks |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Listed:
    """One row of a verdict."""

    id: str
    level: str
    stage: str
    contract: str
    says: str
    registered: bool = True

    def line(self) -> str:
        id = f"`{self.id}`" if self.registered else f"*`{self.id}`*"
        cells = (id, self.level, self.stage, self.contract, self.says.replace("|", "\\|"))
        return f"| {' | '.join(cells)} |"


OPENED = Listed(
    "open",
    "L0",
    "any",
    "provenance",
    "Only of a tree that can't even be made importable in its process: why.",
    registered=False,
)
AFTER = (
    *(
        Listed(f"{part}_of_issue", "L1", "any", "acceptance", f"{what} (`gpu_actors/criteria.py`).", registered=False)
        for part, what in (
            ("acceptance", "What the issue wants to be seen, a row for each criterion"),
            ("activation", "That the issue's change is at work, likewise"),
            ("falsification", "That what would prove its idea wrong is not so, likewise"),
        )
    ),
    Listed(
        "run_again",
        "its gate's",
        "any",
        "its gate's",
        "One drawn gate that passed with evidence, once more: to the same evidence.",
        registered=False,
    ),
    Listed(
        "user_checker",
        "L3",
        "acceptance",
        "acceptance",
        "The command that the Target names as `user.checker`, of files that have not changed.",
        registered=False,
    ),
)


def listed() -> Iterator[Listed]:
    """All of them. Raises ValueError for a gate whose function doesn't say what it asks."""
    yield from map(of_provenance, STATIC)
    yield OPENED
    yield from map(of_stage, STAGE_GATES)
    yield from map(of_provenance, RUNTIME)
    yield from AFTER


def of_provenance(gate: Gate) -> Listed:
    return Listed(gate.id, gate.level or "", "any", gate.contract, asks(gate))


def of_stage(gate: Gate) -> Listed:
    contract = "every" if gate.contract == EVERY else gate.contract
    return Listed(gate.id, gate.level or "by stage", gate.stage, contract, asks(gate))


def asks(gate: Gate) -> str:
    """The first sentence of a gate's docstring."""
    check = gate.check.func if isinstance(gate.check, partial) else gate.check
    words = " ".join((inspect.getdoc(check) or "").split())
    if not words:
        raise ValueError(f"the function of gate {gate.id} has no docstring: what does it ask?")
    return words.partition(". ")[0].removesuffix(".") + "."


def page() -> str:
    return HEAD + "\n".join(row.line() for row in listed()) + "\n"


if __name__ == "__main__":
    print(page(), end="")
