"""Twelve verdicts in a row, of which a third misbehave: twelve rows, and nothing is left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "verification" / "run_endurance.py"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_each_is_a_row_with_its_status_and_nothing_is_left(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--candidates", "12", "--seed", "3", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert len(found["rows"]) == 12
    assert sum(not row["passed"] for row in found["rows"]) == 4
    assert found["leaked"] == {}
    assert found["after"]["processes"] == 1
