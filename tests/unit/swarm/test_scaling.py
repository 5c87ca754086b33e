"""How many implementers are at work at once."""

from pathlib import Path

import pytest

from tests.unit.swarm.scaling import measure


def test_eight_implementers_are_at_work_at_once_and_never_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes is for `python -m tests.unit.swarm.scaling` to say, on a machine that does nothing else."""
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    cost, context = measure(tmp_path, width=8, issues=16, delay=0.5)
    assert (cost.issues, cost.most) == (16, 8)
    assert all(c.decided and c.findings == () for c in context.state.candidates.values() if c.id.startswith("r"))
