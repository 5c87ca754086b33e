"""The user's checker as a gate: it passes, it refuses, and a softened judge is noticed."""

from pathlib import Path

import pytest

from ckb.hashing import sha256_file
from gpu_actors.gate_record import Record
from gpu_actors.jobs import VerifyJob
from gpu_actors.verifier import run_user_gate
from tests.unit.gpu_actors import tiny

CHECK = """
import importlib.util, sys
from pathlib import Path

folder, checkpoint = map(Path, sys.argv[-2:])
sys.path.insert(0, str(folder.parent))
assert importlib.util.find_spec(f"{folder.name}.engine"), "the engine can't be imported"
assert (checkpoint / "config.json").is_file()
sys.exit("LIMIT" in sys.argv and "too many tokens differ")
"""


@pytest.fixture
def job(tmp_path: Path) -> VerifyJob:
    check = tmp_path / "check.py"
    check.write_text(CHECK)
    tree = tiny.write_engine(tmp_path / "trees" / "t" / "engine")
    engine = tiny.engine_job(tree, tiny.write_checkpoint(tmp_path / "tiny", "llama"))
    files = {str(check): sha256_file(check)}
    return tiny.verify_job(engine, checker=f"python {check}", checker_files=files)


def gate(job: VerifyJob, cache: Path) -> tuple[str, str]:
    record = Record(job)
    run_user_gate(job, record, cache, 60.0)
    (result,) = record.results
    assert (result.gate, result.level) == ("user_checker", "L3")
    return result.status, result.summary


def test_the_checker_gates_beside_ours(job: VerifyJob, tmp_path: Path) -> None:
    assert gate(job, tmp_path / "cache")[0] == "PASS", gate(job, tmp_path / "cache")
    refusing = job.model_copy(update={"checker": job.checker + " LIMIT"})
    status, summary = gate(refusing, tmp_path / "cache")
    assert status == "FAIL"
    assert "too many tokens differ" in summary


def test_a_checker_that_was_changed_after_the_plan_judges_nothing(job: VerifyJob, tmp_path: Path) -> None:
    Path(next(iter(job.checker_files))).write_text("print('fine')\n")
    status, summary = gate(job, tmp_path / "cache")
    assert status == "FAIL"
    assert "changed since the plan was frozen" in summary
