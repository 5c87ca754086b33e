"""Operators on a real device. The CPU's are in tests/unit."""

from pathlib import Path

from gpu_actors.operators import try_operators
from swarm.platform import detect


def test_torch_and_triton_run_on_the_device_and_read_its_memory(tmp_path: Path) -> None:
    here = detect("cuda")
    assert here.architecture == f"sm_{round(here.capability * 10)}"
    rows = try_operators(["torch", "triton"], here, tmp_path)
    for row in rows:
        assert (row.state, row.device) == ("usable", "cuda"), row.why
        rate, took = row.speeds
        assert "bfloat16, 131,072 x 4,096 (1,074 MB)" in rate.what
        assert 100 < rate.value < 20_000, "more than a PCIe card's host link, less than any memory"
        assert rate.value * took.value > 1000, "one launch reads the whole matrix"
