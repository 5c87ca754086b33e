"""A Plan: what a Target needs from the knowledge base, with its numbers, frozen before the first implementer starts."""

import hashlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from benchmarks.metrics import USER_METRIC, Metric, find_metric, user_metric
from benchmarks.roofline.floor import Machine
from ckb.build import read_knowledge_at
from ckb.checkpoint import Checkpoint, read_checkpoint
from ckb.constants import constants
from ckb.coverage import Coverage, coverage
from ckb.errors import KnowledgeGap, UserError
from ckb.facts import Facts, Frozen, PlatformFacts
from ckb.gaps import GapError
from ckb.hashing import sha256_file, sha256_json
from ckb.knowledge_files import Knowledge
from ckb.operators import PlannedOperator, describing, planned, settled
from ckb.predicate import predicate
from ckb.records import STAGES, Choice, Contract, Function, Row, Stage, Tensor
from ckb.schemas import ModelFamily, Parallelism, Platform, TestContract
from ckb.schemas.platforms import TriedOperator
from ckb.space import Unsatisfiable, affects, complete, decisions, open_space
from ckb.store import Store
from gpu_actors.benchmark_jobs import Scenario
from swarm.ceilings import nominal
from swarm.feasibility import Feasibility, bound_of, check_memory, check_metric, facts_of, scenarios_of
from swarm.target import Target
from swarm.user_inputs import UserFiles, user_files


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
    bound: float | None
    """Roofline bound of the metric: the geometric mean over the scenarios. None for a metric of the user's own."""
    slo: dict[str, float] = Field(default_factory=dict)
    """Bounds of the goodput metric."""
    scenarios: tuple[Scenario, ...]
    feasibility: Feasibility
    operators: tuple[PlannedOperator, ...] = ()
    """What the Target lists, as this machine has it, with what is used instead of what is not usable."""
    checkpoint: str
    """Hash of the checkpoint's config.json and safetensors headers."""
    user_files: UserFiles
    draw: int
    """Secret of this run: verdicts and benchmarks draw from it, and no author sees it."""

    @property
    def sha256(self) -> str:
        return sha256_json(self.model_dump(mode="json"))

    @property
    def contract_ids(self) -> tuple[str, ...]:
        return tuple(contract.id for contract in self.contracts)

    @property
    def definition(self) -> Metric:
        """The objective's metric, with its unit, its definition and what computes it."""
        if self.metric.startswith(USER_METRIC):
            return user_metric(self.metric, self.direction)
        return find_metric(self.metric, self.slo)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before anything is spent."""
        if self.metric.startswith(USER_METRIC) or not self.definition.of_process:
            return ()
        return (
            f"objective.metric {self.metric} is measured once for each process, so its spread is not known and no "
            "candidate of a round can show a gain: the run ends with the first engine that is accepted",
        )

    @property
    def max_memory_bytes(self) -> int:
        """Most memory of the engine's process tree."""
        return self.feasibility.allowed_bytes

    def seed_of(self, *parts: str) -> int:
        """A seed for one named purpose: the same for the same words in the same run, and not to be guessed."""
        digest = hashlib.sha256("\0".join([str(self.draw), *parts]).encode()).digest()
        return int.from_bytes(digest[:6], "big")


Trial = Callable[[PlatformFacts], tuple[TriedOperator, ...]]
"""What the operators of a Target do on a machine; takes seconds where they were not tried before."""


def untried(platform: PlatformFacts) -> tuple[TriedOperator, ...]:
    """No operator is known: facts stay as the machine describes itself."""
    return ()


def tried_out(facts: Facts, trial: Trial) -> tuple[Facts, tuple[TriedOperator, ...]]:
    """The facts as the trial has shown them, and what it found."""
    tried = trial(facts.platform)
    return facts.model_copy(update={"platform": settled(facts.platform, tried)}), tried


def make_plan(
    target: Target,
    store: Store,
    platform: PlatformFacts,
    measure: Callable[[PlatformFacts], Machine],
    trial: Trial = untried,
) -> Plan:
    """The Plan of a Target from the newest version of the knowledge base. Nothing is spent before it returns.

    `trial` tells what the operators of the Target do on this machine, which decides over what `platform` says.
    Raises UserError for a Target that can't be met, GapError for one that the knowledge base does not cover.
    """
    refuse_unsupported(target)
    check_metric(target)
    files = user_files(target.user)
    version = store.latest
    checkpoint = read_checkpoint(target.checkpoint, store.rows(ModelFamily, version))
    facts = facts_of(target, checkpoint.facts, platform)
    memory = check_memory(target, facts)
    facts, tried = tried_out(facts, trial)
    knowledge = read_knowledge_at(store, version)
    if gaps := cover(facts, checkpoint, knowledge, store, tried).gaps:
        raise GapError(gaps)
    about = describing(facts.platform, store.rows(Platform, version))
    machine = nominal(facts.platform, facts.workload.dtype, about) or measure(facts.platform)
    bound = bound_of(target, facts, machine)
    contracts = possible_contracts(knowledge, facts)
    fragments = [f for f in knowledge.fragments.values() if f.contract in {c.id for c in contracts}]
    space = open_space(contracts, fragments, facts)
    numbers = constants(facts)
    tests = store.rows(TestContract, version)
    return Plan(
        facts=facts,
        ckb_version=version,
        contracts=tuple(instantiate(contract, numbers) for contract in contracts),
        tests=tuple(planned_tests(contracts, tests)),
        numbers=numbers,
        space=space,
        affects={key: parts for key, parts in affects(contracts, fragments).items() if key in space},
        metric=bound.metric,
        direction=bound.direction,
        unit=bound.unit,
        bound=bound.value,
        slo=target.objective.slo,
        scenarios=scenarios_of(target),
        feasibility=Feasibility(**memory.model_dump(), read_gb_s=machine.read_gb_s),
        operators=planned(tried, about),
        checkpoint=headers_sha256(checkpoint),
        user_files=files,
        draw=secrets.randbits(62),
    )


def coverage_of(target: Target, store: Store, platform: PlatformFacts, trial: Trial = untried) -> Coverage:
    """What a Target needs of the knowledge base, gaps and all. Raises UserError where it contradicts itself."""
    checkpoint = read_checkpoint(target.checkpoint, store.rows(ModelFamily))
    facts, tried = tried_out(facts_of(target, checkpoint.facts, platform), trial)
    return cover(facts, checkpoint, read_knowledge_at(store), store, tried)


def cover(
    facts: Facts, checkpoint: Checkpoint, knowledge: Knowledge, store: Store, tried: Sequence[TriedOperator]
) -> Coverage:
    at = knowledge.version
    models, platforms = store.rows(ModelFamily, at), store.rows(Platform, at)
    tests, parallelism = store.rows(TestContract, at), store.rows(Parallelism, at)
    return coverage(facts, knowledge, models, platforms, tests, parallelism, checkpoint.unmapped, tried)


def refuse_unsupported(target: Target) -> None:
    """What the schema has room for and this version can't do ends here, before it is silently passed over."""
    only: dict[str, tuple[object, object]] = {
        "hardware.pool": (target.hardware.pool, "local"),
        "workload.kind": (target.workload.kind, "single_stream"),
        "constraints.mode.serve": (target.constraints.mode.serve, "offline"),
        "constraints.tensor_parallel": (target.constraints.tensor_parallel, 1),
        "constraints.expert_parallel": (target.constraints.expert_parallel, 1),
        "libraries": (target.libraries, "allow"),
        "objective.stages": (target.objective.stages, ()),
    }
    for field, (asked, offered) in only.items():
        if asked != offered:
            raise UserError(f"{field}: {asked!r} asked for, this version offers {offered!r} alone; set it to that")


def possible_contracts(knowledge: Knowledge, facts: Facts) -> list[Contract]:
    """The contracts that some assignment for these facts needs, and those whose decisions they ask about, in order of
    stage, module and place."""
    every = knowledge.contracts.values()
    found = {contract.id: contract for contract in every if is_possible(contract, knowledge, facts)}
    while True:
        fragments = [f for f in knowledge.fragments.values() if f.contract in found]
        texts = [row.applies_to for row in (*found.values(), *fragments)]
        asked = {name for text in texts for name in predicate(text).choices()}
        more = {c.id: c for c in every if c.id not in found and asked & c.decisions.keys()}
        if not more:
            return sorted(found.values(), key=lambda c: (STAGES.index(c.stage), c.module, c.order, c.id))
        found |= more


def is_possible(contract: Contract, knowledge: Knowledge, facts: Facts) -> bool:
    """Whether some assignment that the facts allow puts a contract in force."""
    condition, options = predicate(contract.applies_to), decisions(knowledge.contracts.values())
    names = sorted(condition.choices())
    for values in itertools.product(*(options.get(name, ()) for name in names)):
        choices = dict(zip(names, values, strict=True))
        if condition.holds(facts, choices) and satisfiable(choices, knowledge, facts):
            return True
    return False


def satisfiable(choices: Mapping[str, Choice], knowledge: Knowledge, facts: Facts) -> bool:
    try:
        complete(choices, knowledge.contracts.values(), knowledge.fragments.values(), facts)
    except (Unsatisfiable, KnowledgeGap):
        return False
    return True


def instantiate(contract: Contract, numbers: Mapping[str, str]) -> PlannedContract:
    """A contract with the Target's numbers in the place of their names."""

    def filled(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            tensor.model_copy(update={"shape": tuple(numbers.get(axis, axis) for axis in tensor.shape)})
            if tensor.shape
            else tensor
            for tensor in tensors
        )

    interface = tuple(
        function.model_copy(update={"takes": filled(function.takes), "returns": filled(function.returns)})
        for function in contract.interface
    )
    return PlannedContract(
        id=contract.id,
        sha256=row_sha256(contract),
        stage=contract.stage,
        module=contract.module,
        interface=interface,
        test=contract.test,
    )


def planned_tests(contracts: Iterable[Contract], tests: Iterable[TestContract]) -> Iterable[PlannedTest]:
    """The tests of the planned contracts, by id."""
    ids, named = {c.id for c in contracts}, {c.test for c in contracts}
    for test in sorted(tests, key=lambda t: t.id):
        if test.status == "verified" and (test.contract in ids or test.id in named):
            yield PlannedTest(
                id=test.id, sha256=row_sha256(test), contract=test.contract, level=test.level, gate=test.gate
            )


def row_sha256(row: Row) -> str:
    return sha256_json(row.model_dump(mode="json"))


def headers_sha256(checkpoint: Checkpoint) -> str:
    """Hash of what a checkpoint is, without its weights: config.json and every tensor's name, type and shape."""
    tensors = sorted((t.name, t.dtype, list(t.shape)) for t in checkpoint.tensors.values())
    return sha256_json([sha256_file(checkpoint.path / "config.json"), tensors])
