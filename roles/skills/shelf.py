"""The knowledge of one version, sorted as skills hand it on: what may be used apart from what is only described."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from ckb.records import Contract, Fragment, Row, Stage, Status
from ckb.schemas import Experience, Guide, ModelFamily, Parallelism, Platform, TestContract
from roles.checks import ENGINE_MODULES

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Shelf:
    """What an export is made from."""

    rows: Mapping[str, Sequence[Row]]
    """Table -> its rows at the version."""
    version: str
    """Which knowledge it is, in words that every file repeats: `version 3`."""
    manifest: str
    """JSON: the least manifest.json with which `enginesmith verify` judges a folder that no run released."""

    def of(self, kind: type[R], table: str, status: Status = "verified") -> list[R]:
        """The rows of a table with one status, by id."""
        found = [row for row in self.rows.get(table, ()) if isinstance(row, kind) and row.status == status]
        return sorted(found, key=lambda row: row.id)

    @cached_property
    def contracts(self) -> list[Contract]:
        """The verified contracts, in the order in which an engine is written."""
        return in_order(self.of(Contract, "contracts"))

    @cached_property
    def drafts(self) -> list[Contract]:
        """The contracts that only describe."""
        return in_order(self.of(Contract, "contracts", "draft"))

    @cached_property
    def fragments(self) -> list[Fragment]:
        return self.of(Fragment, "fragments")

    @cached_property
    def guides(self) -> list[Guide]:
        return self.of(Guide, "guides")

    @cached_property
    def models(self) -> list[ModelFamily]:
        return self.of(ModelFamily, "models")

    @cached_property
    def experience(self) -> list[Experience]:
        """What was learned and is more than tentative."""
        return [row for row in self.of(Experience, "experience") if row.usable]

    def platforms(self, status: Status) -> list[Platform]:
        return self.of(Platform, "platforms", status)

    def parallelism(self, status: Status) -> list[Parallelism]:
        return self.of(Parallelism, "parallelism", status)

    def stage(self, stage: Stage) -> list[Contract]:
        return [contract for contract in self.contracts if contract.stage == stage]

    def examples(self, contract: Contract) -> list[Fragment]:
        """The fragments filed under a contract, the preferred first."""
        filed = [fragment for fragment in self.fragments if fragment.contract == contract.id]
        return sorted(filed, key=lambda fragment: (-fragment.rank, fragment.id))

    def tests(self, contract: Contract) -> list[TestContract]:
        """What checks a contract: a draft's tests are drafts too."""
        every = self.of(TestContract, "test_contracts", contract.status)
        return [test for test in every if test.contract == contract.id or test.id == contract.test]


def in_order(contracts: Sequence[Contract]) -> list[Contract]:
    """By file of the engine, then by place in it; what is of no file comes last."""
    places = {module: place for place, module in enumerate(ENGINE_MODULES)}
    return sorted(contracts, key=lambda c: (places.get(c.module, len(places)), c.order, c.id))
