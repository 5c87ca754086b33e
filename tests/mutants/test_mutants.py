"""A seeded sample of the mutants and variants, judged by the verifier itself; and the table's own tests.

ENGINESMITH_MUTANTS=N draws another sample.
"""

import ast
import os
import random
import re
from pathlib import Path

import pytest

from benchmarks.verification.edits import DoesNotApply, Edit, edited
from ckb.hashing import tree_sha256
from ckb.records import Stage
from gpu_actors.gates import provenance
from gpu_actors.gates.registry import STAGE_GATES
from gpu_actors.jobs import EngineJob, Verdict, VerifyJob
from gpu_actors.verifier import Verifier
from tests.mutants import bases, subtle, table
from tests.mutants.mutant import FAMILIES, Mutant, Variant
from tests.mutants.runner import BENCHMARK, SEEN_LATE, Workshop, made_of
from tests.mutants.variants import VARIANTS

SEED = int(os.environ.get("ENGINESMITH_MUTANTS", "1"))
ALL = {gate.id for gate in (*provenance.STATIC, *STAGE_GATES, *provenance.RUNTIME)} | {BENCHMARK}
EARLY = {gate.id for gate in (*provenance.STATIC, *STAGE_GATES)} - SEEN_LATE
"""Gates that need no reference: those of the sample, which has a minute."""
PLAIN = ("llama", "qwen3", "llama sampled")
"""Engines that nothing is compiled for."""


def stage_of(one: Mutant | Variant) -> Stage:
    """The last stage whose gates are asked: what a mutant's own gate has seen, no later one need say."""
    found = [
        gate.stage for gate in (*provenance.STATIC, *STAGE_GATES) if isinstance(one, Mutant) and gate.id == one.gate
    ]
    return found[0] if found else bases.BUILT[-1]


def drawn() -> list[Mutant | Variant]:
    draw = random.Random(SEED)
    mutants = [m for m in table.MUTANTS if m.gate in EARLY and m.base in PLAIN and m.name in table.caught()]
    variants = [v for v in VARIANTS if v.base in PLAIN]
    few = [m for stage in bases.BUILT for m in draw.sample([m for m in mutants if stage_of(m) == stage], 1)]
    return [*few, *draw.sample(variants, 1)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants")


def verdict_of(one: Mutant | Variant, work: Path) -> Verdict:
    """The product's own verdict, which stops after a stage that failed, without the reference."""
    base, made = bases.BASES[one.base], made_of(one)
    folder = work / re.sub(r"\W+", "_", f"tree {one.name}")
    folder.mkdir()
    for name, text in made.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    engine = EngineJob(
        tree=tree_sha256(folder), tree_dir=str(folder), checkpoint=str(bases.checkpoint(work, base)), facts=base.facts
    )
    stages = bases.BUILT[: 1 + bases.BUILT.index(stage_of(one))]
    job = VerifyJob(candidate="c", engine=engine, stages=stages, contracts=tuple(bases.knowledge().contracts),
                    rows=tuple(row for row in made.rows if row.stage in stages), seed=SEED)  # fmt: skip
    return Verifier(work / "cache").verify(job)


@pytest.mark.parametrize("one", drawn(), ids=lambda one: one.name)
def test_the_sample_is_judged_as_it_should_be(one: Mutant | Variant, work: Path) -> None:
    print(f"ENGINESMITH_MUTANTS={SEED} draws this sample again")
    verdict = verdict_of(one, work)
    said = [f"{gate.gate}: {gate.summary}" for gate in verdict.failures]
    assert verdict.passed == isinstance(one, Variant), f"seed {SEED}, {one.name}: {said or 'passes every gate'}"
    if isinstance(one, Mutant):
        assert one.gate in {gate.gate for gate in verdict.failures}, said


def test_there_are_mutants_of_every_family_in_both_models_and_both_languages() -> None:
    names = [one.name for one in (*table.MUTANTS, *subtle.MUTANTS, *VARIANTS)]
    assert len(set(names)) == len(names)
    assert len(table.MUTANTS) >= 80
    assert len(VARIANTS) >= 25
    assert len(subtle.MUTANTS) == 12
    assert {m.family for m in table.MUTANTS} == set(FAMILIES)
    assert {bases.BASES[m.base].family for m in table.MUTANTS} == {"llama", "qwen3"}
    assert sum(bases.BASES[m.base].native for m in table.MUTANTS) >= 10
    assert {m.gate for m in table.MUTANTS} <= ALL
    assert table.caught() <= {m.name for m in table.MUTANTS}


@pytest.mark.parametrize("base", [name for name, base in bases.BASES.items() if not base.real])
def test_every_edit_applies_and_every_module_still_parses(base: str) -> None:
    """What does not parse is caught by everybody: such a mutant would prove nothing."""
    ours = [one for one in (*table.MUTANTS, *VARIANTS) if one.base == base]
    assert ours
    for one in ours:
        for name, text in made_of(one).files.items():
            if name.endswith(".py"):
                ast.parse(text)


@pytest.mark.model
def test_every_subtle_edit_applies_to_the_engine_for_smollm2(smollm2: Path) -> None:
    assert smollm2 == bases.SMOLLM2
    for one in subtle.MUTANTS:
        for text in made_of(one).files.values():
            ast.parse(text)


def test_an_edit_that_finds_nothing_or_two_places_is_refused() -> None:
    files = {"a.py": "x = 1\ny = 1\n"}
    for old in ("z", " = 1"):
        with pytest.raises(DoesNotApply, match=r"a\.py has"):
            edited(files, (Edit("a.py", old, "2"),))
    with pytest.raises(DoesNotApply, match="change nothing"):
        edited(files, (Edit("a.py", "x", "x"),))
    assert edited(files, (Edit("b.py", "", "new"), Edit("a.py", "x", "z"))) == {"a.py": "z = 1\ny = 1\n", "b.py": "new"}


def test_two_workers_that_judge_one_tree_at_once_have_a_copy_each(tmp_path: Path) -> None:
    """Five seeds of a variant are five verdicts on one tree: who was done first took it from the other."""
    base = bases.BASES["llama"]
    with Workshop(tmp_path) as one, Workshop(tmp_path) as other:
        first, second = (shop._written({"a.py": "x = 1\n"}, base.facts, tmp_path) for shop in (one, other))
        assert first.tree == second.tree
        assert first.tree_dir != second.tree_dir
    assert list((tmp_path / "trees").iterdir()) == [], "and leave none behind"


def test_the_value_of_a_gate_is_what_it_alone_caught() -> None:
    rows = [
        table.Row("one", {"a": "1", "b": "1"}, ("c",), 1.0, 0, "here"),
        table.Row("two", {"a": "1"}, ("b", "c"), 1.0, 0, "here"),
        table.Row("three", {}, ("a", "b", "c"), 1.0, 0, "here"),
    ]
    found = {value.gate: (value.caught, value.alone, value.missed) for value in table.values(rows)}
    assert found == {"a": (2, 1, ("three",)), "b": (1, 0, ("two", "three")), "c": (0, 0, ("one", "two", "three"))}


def test_the_page_names_what_escapes_and_breaks_at_no_bar_or_path() -> None:
    mutants = list(table.MUTANTS[:3])
    rows = {
        mutants[0].name: table.Row(
            mutants[0].name, {mutants[0].gate: "a | b\n<c> /tmp/here/there"}, (), 1.0, 11, "here"
        ),
        mutants[1].name: table.Row(mutants[1].name, {}, (mutants[1].gate,), 2.0, 11, "here"),
    }
    again = [table.Row(VARIANTS[0].name, {"step": "no"}, (), 1.0, 11, "here")]
    page = table.document(mutants, rows, list(VARIANTS[:2]), again)
    assert "**1 pass every gate.**" in page
    assert f"- **{mutants[1].name}**" in page
    assert "a \\| b &lt;c> ..." in page
    assert f"| {VARIANTS[0].name} | {VARIANTS[0].base} | 1 | step |" in page
    assert f"| {VARIANTS[1].name} | {VARIANTS[1].base} | 0 | not judged |" in page
    assert mutants[2].name not in page, "what was not judged has no row"


@pytest.mark.slow
def test_gates_after_one_that_ended_the_process_are_asked_all_the_same(work: Path) -> None:
    """Only the sampler's own gate has logits of about -50. What was recorded of calls is lost with the process."""
    ends = Edit("sampler.py", "return int(logits.argmax())",
                "return int(logits.argmax()) if float(logits.mean()) > -40 else __import__('os')._exit(0)")  # fmt: skip
    one = Mutant("ends", "cheat", "llama", "sampler", (ends,))
    with Workshop(work, "screen") as shop:
        found = shop.judge(one, SEED)
    assert found.failed.keys() <= {"sampler", "audit", "watched"}, found.failed
    assert "CRASHED" in found.failed["sampler"]
    assert {"scheduler", "agreement", "server", "acceptance_greedy", "loaded_modules"} <= set(found.passed)
    assert not {"calls_integration", "errors_integration", "states_integration"} & {*found.passed, *found.failed}
    assert {"calls_model", "errors_model"} <= set(found.passed), "the stages before it had ended"
