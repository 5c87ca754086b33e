"""The user's benchmark in a paired run: on every engine in turn, and failures are rows that do not count."""

import os
from pathlib import Path

import pytest

from ckb.hashing import sha256_file
from gpu_actors.benchmark_jobs import Arm, BenchmarkJob, Scenario, UserRow
from gpu_actors.device import Device
from gpu_actors.user import run_user_benchmark
from gpu_actors.user_rows import UserRounds
from tests.unit.gpu_actors import tiny

pytestmark = pytest.mark.alone

BENCHMARK = """
import json, sys
from pathlib import Path

engine, checkpoint = map(Path, sys.argv[-2:])
assert (checkpoint / "config.json").is_file()
text = (engine / "engine.py").read_text()
if "refuse me" in text:
    sys.exit("I won't have this one")
print(json.dumps({"metric": "lines", "value": len(text.splitlines())}))
"""


@pytest.fixture
def job(tmp_path: Path) -> BenchmarkJob:
    script = tmp_path / "bench.py"
    script.write_text(BENCHMARK)
    tiny.write_checkpoint(tmp_path / "llama", "llama")
    plain = tiny.write_engine(tmp_path / "plain")
    longer = tiny.write_engine(tmp_path / "longer")
    refused = tiny.write_engine(tmp_path / "refused")
    for folder, note in ((longer, "# longer\n"), (refused, "# refuse me\n")):
        (folder / "engine.py").write_text((folder / "engine.py").read_text() + note)
    arms = [Arm(name=f.name, engine=tiny.engine_job(f, tmp_path / "llama")) for f in (plain, longer, refused)]
    return BenchmarkJob(
        arms=(*arms, Arm(name="huggingface")),
        scenarios=(Scenario(prompt_tokens=9, new_tokens=4),),
        repeats=2,
        checkpoint=str(tmp_path / "llama"),
        facts=tiny.facts(),
        user_benchmark=f"python {script}",
        user_files={str(script): sha256_file(script)},
    )


def lines_of(rows: tuple[UserRow, ...], arm: str) -> set[float]:
    return {row.metrics["lines"] for row in rows if row.arm == arm}


def test_every_engine_takes_its_turn_and_one_that_fails_is_a_void_row(job: BenchmarkJob, tmp_path: Path) -> None:
    rows = UserRounds(job, job.arms, tmp_path / "cache").run(deadline=float("inf"))
    assert {row.arm for row in rows} == {"plain", "longer", "refused"}, "Hugging Face is no engine's folder"
    assert lines_of(rows, "plain") == {45.0}
    assert lines_of(rows, "longer") == {46.0}
    (failed,) = (row for row in rows if row.arm == "refused")
    assert failed.metrics == {}
    assert "I won't have this one" in (failed.void or "")
    assert {row.repeat for row in rows if row.arm == "plain"} == {0, 1}
    assert all(not row.void or "foreign processes" in row.void for row in rows if row.arm != "refused")
    order = [row.arm for row in rows if row.arm != "refused"]
    assert order[:2] != order[2:4], "the order rotates"
    assert [row.group for row in rows if row.arm == "plain"] == list(range(sum(row.arm == "plain" for row in rows)))
    assert [row.order for row in rows] == list(range(1, len(rows) + 1))


def test_a_benchmark_that_was_changed_after_the_plan_measures_nothing(job: BenchmarkJob, tmp_path: Path) -> None:
    Path(next(iter(job.user_files))).write_text("print('fine')\n")
    rows = UserRounds(job, job.arms[:1], tmp_path / "cache").run(deadline=float("inf"))
    assert [row.metrics for row in rows] == [{}]
    assert "changed since the plan was frozen" in (rows[0].void or "")


def test_processor_time_of_the_users_benchmark_is_ours_once_it_has_ended(job: BenchmarkJob, tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    burn = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(20_000_000))'])"
    script.write_text(f'{burn}\nprint(\'{{"metric": "x", "value": 1}}\')\n')
    engine = job.arms[0].engine
    assert engine
    before = os.times()
    assert run_user_benchmark(f"python {script}", (script,), engine, tmp_path / "cache", 60.0).metrics == {"x": 1.0}
    after = os.times()
    spent = after.children_user - before.children_user
    assert spent > 0.15, "a grandchild's time must reach us, or every run would count as foreign load"


def test_the_paired_run_ends_with_the_users_benchmark_on_the_engines_that_are_right(
    job: BenchmarkJob, tmp_path: Path
) -> None:
    right = job.arms[0].engine
    assert right
    edit = {"engine.py": ("            yield token\n", "            yield (token + 1) % 384\n")}
    rubbish = tiny.engine_job(tiny.write_engine(tmp_path / "rubbish", edits=edit), Path(job.checkpoint))
    arms = (Arm(name="right", engine=right), Arm(name="rubbish", engine=rubbish))
    short = job.model_copy(update={"arms": arms, "repeats": 1})
    found = Device("cpu", tmp_path / "cache", tmp_path / "leases").benchmark(short)
    assert {row.arm for row in found.rows} == {"right", "rubbish"}
    assert {row.arm for row in found.user_rows} == {"right"}
    assert lines_of(found.user_rows, "right") == {45.0}


def test_what_an_arm_tries_in_the_benchmark_of_the_user_is_a_violation_of_the_run(
    job: BenchmarkJob, tmp_path: Path
) -> None:
    script = tmp_path / "imports.py"
    script.write_text(
        "import json, sys\nfrom pathlib import Path\nfolder = Path(sys.argv[-2])\n"
        "sys.path.insert(0, str(folder.parent))\n__import__(folder.name + '.sampler')\n"
        "print(json.dumps({'metric': 'lines', 'value': 1}))\n"
    )
    text = "import torch\n\ntry:\n    __import__('transformers')\nexcept ImportError:\n    pass"
    tries = tiny.write_engine(tmp_path / "tries", edits={"sampler.py": ("import torch", text)})
    arms = (Arm(name="tries", engine=tiny.engine_job(tries, tmp_path / "llama")),)
    files = {str(script): sha256_file(script)}
    job = job.model_copy(update={"user_benchmark": f"python {script}", "user_files": files, "repeats": 1})
    (row,) = UserRounds(job, arms, tmp_path / "cache").run(deadline=float("inf"))
    assert [(found.candidate, found.gate, found.kind) for found in row.violations] == [
        ("tries", "benchmark", "runtime")
    ]
    assert "violation: imports transformers" in (row.void or "")
    assert row.metrics == {}
