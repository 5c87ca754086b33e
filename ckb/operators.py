"""Operator libraries as one machine has them: what a small run of a real kernel showed, and what follows from it.

A package that imports and whose kernels fail is installed and not usable. What a run found out decides over what the
machine's description says: the facts name only what was seen to work.
"""

from collections.abc import Iterable, Sequence

from ckb.facts import Frozen, PlatformFacts, Scalar
from ckb.predicate import predicate
from ckb.schemas.platforms import Platform, TriedOperator

CPP = "cpp"
"""C++ through torch.utils.cpp_extension."""


class PlannedOperator(Frozen):
    """An operator that a Target lists, and what is used in its place where it is not usable."""

    operator: TriedOperator
    fallback: str = ""
    """From the platform's row, with its cost; empty for a usable one, and where the row names none."""

    @property
    def words(self) -> str:
        return self.operator.words.rstrip(".") + (f". Instead: {self.fallback}" if self.fallback else "")


def settled(platform: PlatformFacts, tried: Sequence[TriedOperator]) -> PlatformFacts:
    """The facts as the runs have shown them: the usable operators, and no compiler whose C++ failed."""
    usable = tuple(operator.name for operator in tried if operator.state == "usable")
    failed = CPP in {operator.name for operator in tried} - set(usable)
    compiler = None if failed else platform.compiler
    return platform.model_copy(update={"operators": usable, "compiler": compiler})


def describing(platform: PlatformFacts, rows: Iterable[Platform]) -> list[Platform]:
    """The rows that are about this machine, drafts too. They speak of platform facts alone (ckb.lint)."""
    facts = Machine(platform)
    return [row for row in rows if row.status != "deprecated" and predicate(row.applies_to).holds(facts)]


class Machine:
    """Platform facts alone, as ckb.predicate asks for them."""

    def __init__(self, platform: PlatformFacts):
        self._facts: dict[str, Scalar | tuple[Scalar, ...]] = {f"platform.{name}": value for name, value in platform}

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        """The value of `platform.name`, ... KeyError for anything else."""
        return self._facts[path]


def planned(tried: Iterable[TriedOperator], rows: Sequence[Platform]) -> tuple[PlannedOperator, ...]:
    """Each with its fallback by the platform rows given, of which the first that names one decides."""
    named = {o.name: o.fallback for row in reversed(rows) for o in row.operators if o.fallback}
    return tuple(
        PlannedOperator(operator=o, fallback="" if o.state == "usable" else named.get(o.name, "")) for o in tried
    )
