"""Timing on a real device: the ceiling is its memory's, and one paired benchmark of a small engine."""

from pathlib import Path

from benchmarks.verification.run_h200 import Bench
from benchmarks.verification.run_steps import composed
from ckb.hashing import tree_sha256
from gpu_actors.benchmark_jobs import Arm, BenchmarkJob, Scenario
from gpu_actors.device import Device
from gpu_actors.gpus import grant
from gpu_actors.jobs import EngineJob
from gpu_actors.lease import physical_devices
from gpu_actors.machine import Ceiling
from gpu_actors.telemetry import Telemetry
from swarm.platform import detect


def test_the_ceiling_is_the_device_s_and_its_process_is_no_stranger() -> None:
    with Ceiling(detect("cpu")) as host, Ceiling(detect("cuda")) as device, Telemetry("cuda") as telemetry:
        host.measure()
        device.measure()
        assert telemetry.strangers([device.pid]) == "", "it stays while arms are timed"
    assert host.reads.gb_s < device.reads.gb_s < 20_000
    assert device.reads.gb_s > 100, "more than a host's link to it"
    assert 1 << 20 < device.reads.cache_bytes < 1 << 30


def test_a_sandbox_gets_the_files_of_the_leased_devices_only() -> None:
    found = grant("cuda")
    numbered = [path for path in found.devices if path.removeprefix("/dev/nvidia").isdigit()]
    leased = physical_devices("cuda")
    assert len(numbered) == len(leased)
    assert all(name.startswith("cuda-GPU-") for name in leased)
    assert "/dev/nvidiactl" in found.devices


def test_a_small_engine_is_timed_in_turn_with_itself_and_is_right(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "work", tmp_path / "out", "tiny", "cuda", commit="")
    bench.checkpoint()
    facts = bench.facts()
    arms = []
    for name in ("one", "other"):
        tree = tmp_path / name / "engine"
        tree.mkdir(parents=True)
        for file, text in composed(facts)[0].items():
            (tree / file).write_text(text, encoding="utf-8")
        engine = EngineJob(tree=tree_sha256(tree), tree_dir=str(tree), checkpoint=str(bench.model), facts=facts)
        arms.append(Arm(name=name, engine=engine))
    job = BenchmarkJob(
        arms=tuple(arms),
        scenarios=(Scenario(prompt_tokens=64, new_tokens=64),),
        repeats=2,
        checkpoint=str(bench.model),
        facts=facts,
    )
    device = Device("cuda", tmp_path / "cache", tmp_path / "leases")
    found = device.benchmark(job)
    assert {arm.arm: (arm.status, arm.detail) for arm in found.arms} == {"one": ("OK", ""), "other": ("OK", "")}
    assert all(row.busy or row.void is None for row in found.rows), [row.void for row in found.rows]
    assert found.read_gb_s > 100
    assert "less than twice the last-level cache" in "".join(found.no_floor)
    for arm in found.arms:
        assert set(arm.usage.by_device) == set(physical_devices("cuda"))
        sampled = sum(map(len, arm.usage.utilisation.values()))
        assert sampled >= 3 or arm.not_judged, "seen at work, or said that it was not seen"
    profile = device.profile(arms[0].engine) if arms[0].engine else None
    assert profile
    assert profile.failure == ""
    assert profile.read_gb_s > 100
