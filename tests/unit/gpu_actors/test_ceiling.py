"""The floor under every timing: measured on the device that is timed, and said where there is none."""

from typing import Any

import pytest
import torch

from ckb.facts import Facts, PlatformFacts
from gpu_actors.child import Child, ChildFailure
from gpu_actors.drivers.ceiling import readers
from gpu_actors.machine import (
    DRIVER,
    Ceiling,
    CeilingFailure,
    Reads,
    last_level_cache_bytes,
    no_floor,
    question,
    too_fast,
)
from gpu_actors.profiler import profile
from gpu_actors.sandbox import Confinement
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_device import row

HOST, DEVICE = Reads(20.0, 32 << 20), Reads(4400.0, 60 << 20)


def big() -> Facts:
    small = tiny.facts()
    return small.model_copy(update={"model": small.model.model_copy(update={"parameters": 10**9})})


def on_device(count: int) -> PlatformFacts:
    return tiny.facts().platform.model_copy(update={"accelerator": "cuda", "name": "NVIDIA H200", "count": count})


def test_faster_than_memory_is_void_and_on_a_device_its_own_memory_says_what_that_is() -> None:
    assert "under the floor of 173.9" in too_fast(row("a", 0, tpot=150.0), big(), HOST)
    assert too_fast(row("a", 0, tpot=180.0), big(), HOST) == ""
    assert too_fast(row("a", 0, tpot=1.2), big(), HOST) != ""
    assert too_fast(row("a", 0, tpot=1.2), big(), DEVICE) == "", "right on a device, whatever the host's memory does"
    assert "(4,000,038,400 bytes at 4400.0 GB/s)" in too_fast(row("a", 0, tpot=0.7), big(), DEVICE)


def test_what_a_cache_can_hold_has_no_floor_and_that_is_said() -> None:
    small = tiny.facts()
    assert too_fast(row("a", 0, tpot=0.01), small, HOST) == ""
    assert no_floor(11, 128, small, HOST).endswith(
        "bytes a step are less than twice the last-level cache of 33,554,432 bytes"
    )
    assert no_floor(11, 1, big(), HOST) == "1 new token(s) have no time between them"
    assert no_floor(11, 128, big(), HOST) == ""
    assert no_floor(11, 128, big(), Reads(4400.0, 3 * 10**9)) != "", "the cache of the device that is timed"


def test_the_memory_that_is_timed_is_the_one_that_is_read() -> None:
    assert question(tiny.facts().platform) | {"bytes_": 0} == {
        "device": "cpu", "count": 1, "threads": 2, "bytes_": 0, "seconds": 1.0,
    }  # fmt: skip
    asked = question(on_device(2))
    assert (asked["device"], asked["count"]) == ("cuda", 2)
    assert asked["bytes_"] % (16 * 4096) == 0
    for device, count in (("cpu", 3), ("meta", 4)):
        found = readers(torch.ones(1 << 18, device=device))
        assert len(found) == count
        for read, moved in found:
            answer: Any = read()
            assert answer.device.type == device
            assert moved >= 1 << 20


def test_a_ceiling_is_measured_in_a_process_of_its_own_with_the_processor_s_cache_beside_it() -> None:
    with Ceiling(tiny.facts().platform) as ceiling:
        ceiling.measure()
        first = ceiling.reads
        ceiling.measure()
        assert ceiling.reads.gb_s >= first.gb_s > 1
        assert first.cache_bytes == last_level_cache_bytes()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_an_error_and_not_the_host_s_figure() -> None:
    """With the question of a device, asked where there is none."""
    with Child(DRIVER, Confinement()) as child, pytest.raises(ChildFailure, match=r"CUDA|NVIDIA"):
        child.call("ceiling", 120.0, **question(on_device(1)))


def test_a_ceiling_that_fails_is_no_candidate_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_actors.machine.CEILING_SECONDS", "a second")
    with Ceiling(tiny.facts().platform) as ceiling, pytest.raises(CeilingFailure, match=r"1 cpu device\(s\) \(test\)"):
        ceiling.measure()


def test_a_profile_that_reads_faster_than_memory_tells_nothing(tmp_path: Any) -> None:
    """Facts of a large model over an engine of a small one: its steps are as short as only a lie could be."""
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    engine = tiny.engine_job(tiny.write_engine(tmp_path / "engine"), checkpoint)
    huge = big().model_copy(update={"model": big().model.model_copy(update={"parameters": 10**11})})
    found = profile(engine.model_copy(update={"facts": huge}), tmp_path / "cache", "c", "profile")
    assert found.shares == {}
    assert found.failure.startswith("WRONG: ")
    assert "ms a token is under the floor of" in found.failure
