"""Knowledge is load-bearing: without any one fragment of a plan of targets/, generation stops with its contract's name.

The plans are those of the targets on an x86 processor or an H200, from the facts of a checkpoint.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ckb.build import read_seed
from ckb.choices import default_choices
from ckb.coverage import coverage
from ckb.facts import Facts
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import Choice
from ckb.schemas import ModelFamily, Platform, TestContract
from ckb.space import default_assignment, selection
from swarm.plan import facts_of, possible_contracts
from swarm.target import load_target
from tests.unit.ckb.test_coverage_of_models import read
from tests.unit.roles.composed import brief_of, compose
from tests.unit.swarm.test_plan import H200, PLATFORM

TARGETS = sorted((Path(__file__).parents[3] / "targets").glob("*.yaml"))
ROWS = read_seed()
KNOWLEDGE = read_knowledge()


@cache
def facts(target: Path) -> Facts:
    asked = load_target(target)
    machine = {"cpu": PLATFORM, "cuda": H200}[asked.hardware.accelerator]
    return facts_of(asked, read("smollm2-135m" if machine is PLATFORM else "qwen3-8b")[1], machine)


@cache
def planned(target: Path) -> tuple[Knowledge, dict[str, Choice]]:
    """The knowledge that the plan of a target holds, and the choices that its engine starts from."""
    contracts = possible_contracts(KNOWLEDGE, facts(target))
    fragments = KNOWLEDGE.fragments.values()
    choices = default_assignment(contracts, fragments, facts(target))
    return replace(KNOWLEDGE, contracts={c.id: c for c in contracts}), choices


def needed(target: Path) -> list[tuple[str, str]]:
    """(contract, fragment) of everything that the engine is made of."""
    knowledge, choices = planned(target)
    chosen = {name: value for name, value in choices.items() if "." not in name}
    found = selection(knowledge.contracts.values(), knowledge.fragments.values(), facts(target), chosen)
    return [(contract.id, fragment.id) for contract, fragment in found]


def without(knowledge: Knowledge, fragment: str) -> Knowledge:
    return replace(knowledge, fragments={id: row for id, row in knowledge.fragments.items() if id != fragment})


def gaps(target: Path, knowledge: Knowledge) -> set[str]:
    models = [row for row in ROWS["models"] if isinstance(row, ModelFamily)]
    platforms = [row for row in ROWS["platforms"] if isinstance(row, Platform)]
    tests = [row for row in ROWS["test_contracts"] if isinstance(row, TestContract)]
    return {gap.subject for gap in coverage(facts(target), knowledge, models, platforms, tests).gaps}


@pytest.mark.parametrize("target", TARGETS, ids=lambda path: str(path.stem))
def test_coverage_stops_with_the_contract_of_any_fragment_that_is_gone(target: Path) -> None:
    assert gaps(target, KNOWLEDGE) == set()
    compiled = facts(target).platform.accelerator == "cpu"
    assert len(needed(target)) >= (30 if compiled else 27), "an engine for a device has no C++ of its own"
    for contract, fragment in needed(target):
        assert contract in gaps(target, without(KNOWLEDGE, fragment)), fragment


@pytest.mark.parametrize("target", TARGETS, ids=lambda path: str(path.stem))
def test_the_composer_stops_with_the_contract_of_any_fragment_that_is_gone(target: Path) -> None:
    knowledge, choices = planned(target)
    decided = {name: value for name, value in choices.items() if "." not in name}
    assert compose(brief_of(facts(target), decided, knowledge=knowledge)).missing_contract is None
    for contract, fragment in needed(target):
        answer = compose(brief_of(facts(target), decided, knowledge=without(knowledge, fragment)))
        assert answer.missing_contract == contract, fragment
        assert contract in answer.summary


def test_what_coverage_starts_from_is_what_the_plan_starts_from() -> None:
    for target in TARGETS:
        _, choices = planned(target)
        decided = {name: value for name, value in choices.items() if "." not in name}
        assert default_choices(facts(target), KNOWLEDGE.contracts.values()) == decided
