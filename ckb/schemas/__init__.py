"""The tables of the knowledge base: the record class of each, from which its Arrow schema follows."""

from ckb.records import Contract, Fragment, Row
from ckb.schemas.definitions import Definition
from ckb.schemas.experience import Experience
from ckb.schemas.guides import Guide
from ckb.schemas.models import ModelFamily
from ckb.schemas.parallelism import Parallelism
from ckb.schemas.platforms import Platform
from ckb.schemas.runs import Run
from ckb.schemas.solutions import Solution
from ckb.schemas.test_contracts import TestContract
from ckb.schemas.traces import Trace
from ckb.schemas.workloads import Workload

__all__ = [
    "TABLES",
    "Contract",
    "Definition",
    "Experience",
    "Fragment",
    "Guide",
    "ModelFamily",
    "Parallelism",
    "Platform",
    "Run",
    "Solution",
    "TestContract",
    "Trace",
    "Workload",
]

TABLES: dict[str, type[Row]] = {
    "contracts": Contract,
    "fragments": Fragment,
    "guides": Guide,
    "models": ModelFamily,
    "platforms": Platform,
    "parallelism": Parallelism,
    "experience": Experience,
    "test_contracts": TestContract,
    "definitions": Definition,
    "workloads": Workload,
    "solutions": Solution,
    "traces": Trace,
    "runs": Run,
}
"""Table name -> the record of its rows."""
