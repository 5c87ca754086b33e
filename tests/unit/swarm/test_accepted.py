"""Which acceptance a release asks for, and that nothing is released without a full one."""

from typing import Literal

import pytest

from ckb.facts import Facts
from gpu_actors.jobs import SCREEN_CONTEXT, Acceptance, EvidenceFile, GateResult, Verdict
from swarm.accepted import asked, in_full
from tests.unit.ckb.samples import FACTS


def verdict(acceptance: Literal["none"] | Acceptance) -> Verdict:
    evidence = (EvidenceFile(sha256="0" * 64, what="a sample"),)
    gate = GateResult(gate="g", level="L3", contract="c", status="PASS", summary="s", seconds=0.0, evidence=evidence)
    return Verdict(candidate="c", tree="t", levels=("L3",), acceptance=acceptance, gates=(gate,), sandbox="none")


def facts(context: int) -> Facts:
    workload = FACTS.workload.model_copy(update={"max_prompt": context - 8, "max_new": 8})
    model = FACTS.model.model_copy(update={"max_positions": 8192})
    return FACTS.model_copy(update={"workload": workload, "model": model})


@pytest.mark.parametrize(
    ("passed", "context", "wanted"),
    [
        ([], SCREEN_CONTEXT, "full"),
        (["none"], SCREEN_CONTEXT, "full"),
        (["screen"], SCREEN_CONTEXT, "fresh"),
        (["screen"], SCREEN_CONTEXT + 1, "full"),
        (["screen", "full"], 4352, "fresh"),
    ],
)
def test_a_release_asks_all_that_its_tree_has_not_passed(passed: list[Acceptance], context: int, wanted: str) -> None:
    held, target = [verdict(way) for way in passed], facts(context)
    way = asked("release", held, target)
    assert way == wanted
    assert {asked(purpose, held, target) for purpose in ("stage", "gates", "screen", "merge")} == {"screen"}  # type: ignore[arg-type]
    assert in_full([*held, verdict(way)], target), "what is asked must be enough"


@pytest.mark.parametrize(
    ("passed", "context"), [([], 64), (["screen"], 64), (["fresh"], 64), (["screen", "fresh"], 4352), (["none"], 64)]
)
def test_less_than_a_full_acceptance_releases_nothing(passed: list[Acceptance], context: int) -> None:
    assert not in_full([verdict(way) for way in passed], facts(context))
