"""A composed engine on a real device: the whole gate set on a small checkpoint. The large one is a script's:
benchmarks/verification/run_h200.py."""

from pathlib import Path

from benchmarks.verification.run_h200 import Bench
from benchmarks.verification.wrong import H200


def test_an_engine_on_the_device_passes_every_gate_and_a_wrong_one_is_rejected(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "work", tmp_path / "out", "tiny", "cuda", commit="")
    bench.checkpoint()
    right, outside = bench.judge("engine", seed=1)
    assert right.passed, [f"{gate.gate}: {gate.summary}" for gate in right.gates if gate.status != "PASS"]
    assert outside
    assert outside >= 0.7
    wrong, _ = bench.judge(next(iter(H200)), seed=2)
    assert wrong.rejected_by == "rope"
