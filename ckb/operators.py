"""Operator libraries as one machine has them: what a small run of a real kernel showed, and what follows from it.

A package that imports and whose kernels fail is installed and not usable. What a run found out decides over what the
machine's description says: the facts name only what was seen to work.
"""

from collections.abc import Iterable, Sequence

from pydantic import Field, model_validator

from ckb.facts import Frozen, PlatformFacts
from ckb.schemas.platforms import Measurement, OperatorState, Platform

CPP = "cpp"
"""C++ through torch.utils.cpp_extension."""
STATE_WORDS: dict[OperatorState, str] = {
    "usable": "usable", "installed": "installed, not usable", "absent": "absent", "untried": "not tried",
}  # fmt: skip


class TriedOperator(Frozen):
    """What is known of one operator library on one machine."""

    name: str
    """torch, cpp, triton, flash-attn, ..."""
    device: str
    """What its kernel was to run on: cpu, cuda."""
    state: OperatorState
    why: str = ""
    """One line that says why it is not usable; empty when it is."""
    speeds: tuple[Measurement, ...] = ()
    """How fast its kernel was, and how long it took; only of a usable one."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """What the outcome may depend on: its own version, that of Python, torch, the compiler, the driver."""
    machine: str = ""
    """Processor or device, with its architecture and cores."""
    tried: str = ""
    """ISO date and time of the run; empty where none was needed to see that it is absent."""
    sandbox: str = ""
    """The isolation that the run was made in, in words."""

    @model_validator(mode="after")
    def only_a_right_answer_makes_it_usable(self) -> "TriedOperator":
        usable = self.state == "usable"
        if usable != bool(self.speeds) or usable == bool(self.why):
            raise ValueError(f"{self.name} is {self.state}: a usable operator has speeds, any other one a reason")
        if self.state in ("usable", "installed") and not self.tried:
            raise ValueError(f"{self.name} is {self.state}, and no run has shown it")
        return self

    @property
    def words(self) -> str:
        """State with speed or reason, for a line of text."""
        said = ", ".join(f"{s.value:.4g} {s.unit}" for s in self.speeds) or self.why
        return f"{STATE_WORDS[self.state]}: {said}"


class PlannedOperator(Frozen):
    """An operator that a Target lists, and what is used in its place where it is not usable."""

    operator: TriedOperator
    fallback: str = ""
    """From the platform's row, with its cost; empty for a usable one, and where the row names none."""

    @property
    def words(self) -> str:
        return self.operator.words + (f". Instead: {self.fallback}" if self.fallback else "")


def settled(platform: PlatformFacts, tried: Iterable[TriedOperator]) -> PlatformFacts:
    """The facts as the runs have shown them: the usable operators, and a compiler only if its C++ ran."""
    usable = tuple(operator.name for operator in tried if operator.state == "usable")
    compiler = platform.compiler if CPP in usable else None
    return platform.model_copy(update={"operators": usable, "compiler": compiler})


def planned(tried: Iterable[TriedOperator], rows: Sequence[Platform]) -> tuple[PlannedOperator, ...]:
    """Each with its fallback by the platform rows given, of which the first that names one decides."""
    named = {o.name: o.fallback for row in reversed(rows) for o in row.operators if o.fallback}
    return tuple(
        PlannedOperator(operator=o, fallback="" if o.state == "usable" else named.get(o.name, "")) for o in tried
    )
