"""The scripts that measure the verifier: the checkpoint that they write, the wrong engines that they ask about, the
page that is made of what they found."""

import ast
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.verification import page
from benchmarks.verification.edits import DoesNotApply, edited
from benchmarks.verification.found import Found, Judged
from benchmarks.verification.run_h200 import Bench
from benchmarks.verification.run_smollm2 import main
from benchmarks.verification.run_steps import RIGHT, Steps, leave
from benchmarks.verification.wrong import H200, SMOLLM2
from ckb.errors import UserError
from gpu_actors.faults import LEAST_OUTSIDE, MOST_ENTROPY
from swarm.platform import detect
from tests.unit.gpu_actors.test_contract_gates import composed, facts


@pytest.mark.parametrize(
    ("family", "accelerator", "compiler"),
    [("qwen3", "cpu", None), ("qwen3", "cuda", None), ("llama", "cpu", "c++"), ("llama", "cpu", None)],
)
def test_each_edit_fits_a_composed_engine_in_one_place(family: str, accelerator: str, compiler: str | None) -> None:
    step = "graph" if compiler else "eager"
    files, _ = composed(facts(family, accelerator=accelerator, compiler=compiler, step=step))
    for edit in (H200 if family == "qwen3" else SMOLLM2).values():
        changed = edited(files, (edit,))
        assert [file for file in files if changed[file] != files[file]] == [edit.file]
        ast.parse(changed[edit.file])
        with pytest.raises(DoesNotApply, match=f"{edit.file} has .* 0 times"):
            edited(files | {edit.file: ""}, (edit,))


def test_a_checkpoint_is_measured_recorded_and_not_made_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    Bench(work, tmp_path / "one", "tiny", "cpu", "c").checkpoint()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (work / "model").iterdir())
    again = Bench(work, tmp_path / "two", "tiny", "cpu", "c")
    again.checkpoint()
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (work / "model").iterdir()) == before
    found = Found.model_validate_json((tmp_path / "one" / "checkpoint.json").read_text())
    made = found.checkpoint
    assert made
    assert made.measures
    assert made.shape == "tiny"
    assert 0 < made.measures.entropy <= MOST_ENTROPY
    assert min(made.measures.outside.values()) >= LEAST_OUTSIDE
    assert len(made.measures.effects) == 10
    assert min(effect.error for effect in made.measures.effects) > 0.005


# --- the page ---------------------------------------------------------------------------------------------------------


def test_every_figure_of_the_page_is_in_the_newest_record() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, page.section(page.RECORDS)) == text, (
        "docs/verification.md: run python -m benchmarks.verification.page"
    )


@pytest.mark.parametrize(("step", "was", "now"), [
    ("gates", '"seconds": 207.09', '"seconds": 307.09'), ("gates", "all but 0 of the 77.8%", "all but 0 of the 81.0%"),
    ("mutants", '"rejected_by": "rope"', '"rejected_by": "linear"'), ("checkpoint", "16385159977", "17385159977"),
    ("gates", "d327b09", "e327b09"),
])  # fmt: skip
def test_a_figure_that_is_another_one_in_the_record_changes_the_page(
    step: str, was: str, now: str, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for records in (one, two):
        shutil.copytree(page.RECORDS / "2026-11-30-h200", records / "h200")
    other = two / "h200"
    text = (other / f"{step}.json").read_text()
    assert was in text
    (other / f"{step}.json").write_text(text.replace(was, now))
    assert page.section(one) != page.section(two)
    (other / f"{step}.json").unlink()
    with pytest.raises(UserError, match=rf"not {step}\.json|no record of the step {step}"):
        page.section(two)


def test_wrong_engines_that_were_judged_earlier_are_told_with_their_commit(tmp_path: Path) -> None:
    for name in ("a-h200", "b-h200"):
        shutil.copytree(page.RECORDS / "2026-11-30-h200", tmp_path / name)
    (tmp_path / "b-h200" / "mutants.json").unlink()
    gates = tmp_path / "b-h200" / "gates.json"
    gates.write_text(gates.read_text().replace("2026-11-30T", "2026-12-01T").replace("d327b09", "e327b09"))
    text = page.section(tmp_path)
    assert "commit e327b09" in text
    assert "judged at commit d327b09 on the checkpoint of `a-h200`" in text


def test_the_page_says_what_a_checkpoint_shows_where_that_was_measured(tmp_path: Path) -> None:
    Bench(tmp_path / "work", tmp_path / "h200", "tiny", "cpu", "c").checkpoint()
    for step in ("gates", "mutants"):
        shutil.copy(page.RECORDS / "2026-11-30-h200" / f"{step}.json", tmp_path / "h200")
    made = page.read(tmp_path / "h200", "checkpoint").checkpoint
    assert made
    assert made.measures
    text = page.section(tmp_path)
    assert f"{made.measures.entropy:.2f} of log T" in text
    for dtype, share in made.measures.outside.items():
        assert f"{100 * share:.0f}% of the positions lie outside the tie band of {dtype}" in text
    for effect in made.measures.effects:
        assert f"| {effect.fault} | {100 * effect.error:.1f}% | {effect.kl:.2g} |" in text


# --- steps ------------------------------------------------------------------------------------------------------------


def judged(name: str, passed: bool) -> Judged:
    return Judged(name=name, passed=passed, seconds=1, rejected_by="", gates=(), sandbox="none", seed=0)


def test_what_a_step_found_is_kept_and_a_wrong_verdict_is_exit_status_1(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "work", tmp_path / "out", detect("cpu"), "c")
    steps.found("right", judged=(judged(RIGHT, True), judged("a fault", False)))
    leave(Steps(tmp_path / "work", tmp_path / "out", detect("cpu"), "c").of(("right", "absent")))
    for wrong in (judged(RIGHT, False), judged("a fault", True)):
        steps.found("wrong", judged=(wrong,))
        with pytest.raises(typer.Exit):
            leave(steps.of(("right", "wrong")))


@pytest.mark.parametrize(("arguments", "says"), [
    (["--context", "128"], "--context 128 is too short"), (["--context", "100000"], "8192"),
    (["--only", "all"], "reference, screen, full, wrong"), (["--dtype", "float16"], "float32, bfloat16"),
])  # fmt: skip
@pytest.mark.model
def test_what_the_script_of_the_small_model_can_not_do_is_refused_with_the_numbers(
    arguments: list[str], says: str, tmp_path: Path
) -> None:

    app = typer.Typer()
    app.command()(main)
    refused = CliRunner().invoke(app, [str(tmp_path / "work"), str(tmp_path / "out"), *arguments])
    assert refused.exit_code == 2, refused.output
    assert says in refused.output
