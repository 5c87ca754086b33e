"""Gates of engines that sample: their mathematics, right engines, and those that were seen to pass all other gates."""

import time
from collections.abc import Iterator
from itertools import product
from math import comb, exp
from pathlib import Path

import numpy as np
import pytest

from gpu_actors.child import ENGINE, Child
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates import sampling
from gpu_actors.gates.base import Subject
from gpu_actors.jobs import EngineJob, VerifyJob
from gpu_actors.reference import Reference
from tests.mutants import bases
from tests.mutants.mutant import Mutant, Variant
from tests.mutants.runner import made_of
from tests.mutants.sampling import MUTANTS
from tests.mutants.variants import VARIANTS

BASE = "llama sampled"
SEED = 3
ONES: dict[str, Mutant | Variant] = {
    "right": Variant("right", BASE),
    **{one.name: one for one in VARIANTS if one.base == BASE},
    **{
        one.name: one
        for one in MUTANTS
        if one.name
        in (
            "top_p is ignored and the temperature squared",
            "the stream drops its sampler",
            "the server takes the most likely token for every request",
            "a chat is not sampled",
        )
    },
}


def test_the_bound_on_counts_holds_for_every_count_and_chance() -> None:
    """Against the exact probability of as many draws or more (fewer): a bound that is too low refuses right engines."""
    for draws, chance in product((5, 24, 40), (0.0, 1e-3, 0.2, 0.5, 0.97, 1.0)):
        exact = np.array([comb(draws, k) * chance**k * (1 - chance) ** (draws - k) for k in range(draws + 1)])
        for count in range(draws + 1):
            tail = exact[count:].sum() if count >= draws * chance else exact[: count + 1].sum()
            (told,) = sampling.surprise(np.array([count]), np.array([chance]), draws)
            assert tail <= exp(-told) * (1 + 1e-9), (draws, chance, count)
    assert sampling.surprise(np.array([24]), np.array([0.5]), 24)[0] == pytest.approx(24 * np.log(2))
    assert sampling.surprise(np.array([15]), np.array([0.5]), 24, slack=0.2)[0] == 0


def test_what_top_k_and_top_p_leave_is_their_definition() -> None:
    chances = np.array([0.4, 0.3, 0.2, 0.1])
    for top_k, top_p, left in (
        (0, 1.0, [0.4, 0.3, 0.2, 0.1]),
        (0, 0.5, [4 / 7, 3 / 7, 0, 0]),
        (0, 0.3, [1, 0, 0, 0]),
        (3, 1.0, [4 / 9, 3 / 9, 2 / 9, 0]),
        (3, 0.5, [4 / 7, 3 / 7, 0, 0]),
        (1, 0.9, [1, 0, 0, 0]),
    ):
        np.testing.assert_allclose(sampling.left(chances, top_k, top_p), left)


@pytest.mark.parametrize("seed", range(5))
def test_no_case_depends_on_rounding_or_on_when_chances_are_renormalised(seed: int) -> None:
    row, likely = sampling.landscape(np.random.default_rng(seed), 384)
    asked = sampling.cases(row, likely)
    for body in asked:
        chances = sampling.softmax(row / body["temperature"])[likely]
        top_k, top_p = body.get("top_k", len(likely)), body.get("top_p", 1.0)
        kept = np.count_nonzero(sampling.left(chances, top_k, top_p))
        sums = np.cumsum(chances)
        for reached in (sums, sums / sums[top_k - 1]):
            assert top_p == 1 or min(top_k, 1 + int((reached < top_p).sum())) == kept, body
            assert np.abs(reached[: min(kept + 1, top_k)] - top_p).min() > 0.005 or top_p == 1, body
    pairs = [(body.get("top_k"), body.get("top_p")) for body in asked]
    assert sum(top_k is not None and top_p is not None for top_k, top_p in pairs) == 2


def test_a_draw_of_many_thousand_is_no_surprise_and_a_wrong_temperature_is_one() -> None:
    rng = np.random.default_rng(SEED)
    row, likely = sampling.landscape(rng, 384)
    right, wrong = (sampling.softmax(row / hot)[likely] for hot in (1.7, 1.7**2))
    bound = sampling.allowed(9 * 2 * (len(likely) + 1))
    told = []
    for chances in (right, wrong):
        counts = rng.multinomial(sampling.DRAWS, chances / chances.sum(), size=2000)
        summed = sampling.surprise(counts.cumsum(-1), right.cumsum(), sampling.DRAWS)
        told.append(np.maximum(summed, sampling.surprise(counts, right, sampling.DRAWS)).max(-1))
    assert told[0].max() < bound
    assert (told[1] > bound).mean() > 0.9


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sampling")


@pytest.fixture(scope="module")
def trees(work: Path) -> dict[str, EngineJob]:
    base = bases.BASES[BASE]
    checkpoint = str(bases.checkpoint(work, base))
    found = {}
    for number, (name, one) in enumerate(ONES.items()):
        folder = work / "trees" / f"tree_{number}"
        folder.mkdir(parents=True)
        for file, text in made_of(one).files.items():
            (folder / file).write_text(text, encoding="utf-8")
        found[name] = EngineJob(tree=f"{number:064x}", tree_dir=str(folder), checkpoint=checkpoint, facts=base.facts)
    return found


@pytest.fixture(scope="module")
def child(work: Path, trees: dict[str, EngineJob]) -> Iterator[Child]:
    """One process for all trees: its start takes longer than what they are asked."""
    with Child(ENGINE, confinement(trees["right"], work / "cache", also_read=(work / "trees",))) as child:
        yield child


@pytest.mark.parametrize("name", ONES)
def test_a_right_engine_passes_and_a_wrong_one_fails_its_gate(
    name: str, work: Path, trees: dict[str, EngineJob], child: Child
) -> None:
    engine, one = trees[name], ONES[name]
    open_tree(child, engine, 60)
    job = VerifyJob(candidate="c", engine=engine, stages=bases.BUILT, contracts=(), seed=SEED)
    with Subject(
        job, child, Reference(work / "cache", Path(engine.checkpoint), engine.facts), time.monotonic() + 120, work
    ) as subject:
        found = {gate.id: gate.check(subject) for gate in sampling.GATES}
    wrong = {gate: finding.summary for gate, finding in found.items() if finding.status != "PASS"}
    if isinstance(one, Variant):
        assert not wrong
    else:
        assert one.gate in wrong, found


def test_an_engine_that_decodes_greedily_is_not_asked() -> None:
    assert not any(gate.applies(bases.BASES["llama"].facts) for gate in sampling.GATES)
    assert all(gate.applies(bases.BASES[BASE].facts) for gate in sampling.GATES)
