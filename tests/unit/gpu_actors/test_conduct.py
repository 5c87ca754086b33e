"""Arms that are wrong for how they behave while they are timed, and what is recorded of machine and devices."""

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ckb.errors import UserError
from ckb.facts import Facts
from gpu_actors.benchmark_jobs import Arm, Benchmark, BenchmarkJob, Scenario
from gpu_actors.child import ENGINE, Child
from gpu_actors.conduct import Conduct, now_us
from gpu_actors.device import Device
from gpu_actors.nvml import Nvml
from gpu_actors.sandbox import Confinement
from gpu_actors.telemetry import Telemetry
from gpu_actors.usage import DeviceUse, Sample, Usage, too_idle, too_small, unseen
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_honesty import LATER, LOADS

YIELD = "            yield token\n"
FAST_CLOCK = """            import time
            before = globals().setdefault("BEFORE", (time.monotonic, time.sleep))
            for name in ("time", "monotonic", "perf_counter"):
                setattr(time, name, lambda: 1.0)
                setattr(time, name + "_ns", lambda: 1_000_000_000)
            before[1](0.02)
            yield token
"""
"""Slow, with every clock of its process stopped."""
IDLES = """            import threading, time
            if not globals().get("STARTED"):
                globals()["STARTED"] = True
                def work():
                    while True:
                        end = time.process_time() + 0.02
                        while time.process_time() < end:
                            sum(range(1000))
                        time.sleep(0.02)
                threading.Thread(target=work, daemon=True).start()
            yield token
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """One benchmark of honest arms and of cheats."""
    work = tmp_path_factory.mktemp("conduct")
    tiny.write_checkpoint(work / "llama", "llama")
    edits = {
        "honest": YIELD,
        "clock": FAST_CLOCK,
        "later": LATER,
        "loads": LOADS.replace("== 9", "== 30"),
        "idles": IDLES,
    }
    arms = []
    for name, lines in edits.items():
        tree = tiny.write_engine(work / name, "llama", {"engine.py": (YIELD, lines)})
        arms.append(Arm(name=name, engine=tiny.engine_job(tree, work / "llama")))
    job = BenchmarkJob(
        arms=tuple(arms),
        scenarios=(Scenario(prompt_tokens=9, new_tokens=12),),
        repeats=2,
        shown=1,
        checkpoint=str(work / "llama"),
        facts=tiny.facts(),
    )
    return Device("cpu", work / "cache", work / "leases").benchmark(job)


@pytest.mark.slow
def test_an_arm_that_misbehaves_while_it_is_timed_is_wrong_and_none_of_its_rows_counts(found: Benchmark) -> None:
    details = {arm.arm: (arm.status, arm.detail) for arm in found.arms}
    assert details["honest"] == ("OK", ""), details
    assert details["later"][0] == "WRONG"
    assert "after the last token" in details["later"][1]
    assert details["loads"][0] == "WRONG"
    assert "after its warm-up it still built or loaded the code of " in details["loads"][1]
    assert details["idles"][0] == "WRONG", details
    wrong = {"later", "loads", "idles"}
    assert all(row.void for row in found.rows if row.arm in wrong)
    assert not wrong & {row.arm for row in found.counted}


@pytest.mark.slow
def test_a_child_that_stops_its_clocks_gains_nothing(found: Benchmark) -> None:
    rows = [row for row in found.rows if row.arm == "clock"]
    assert next(arm.status for arm in found.arms if arm.arm == "clock") == "OK"
    assert len(rows) >= 3
    assert all(row.tpot_ms >= 20 and row.latency_ms >= 12 * 20 for row in rows), "it slept for 20 ms a token"


@pytest.mark.slow
def test_the_record_holds_series_and_the_machine_s_conditions(found: Benchmark) -> None:
    honest = next(arm for arm in found.arms if arm.arm == "honest")
    groups = 1 + len({row.group for row in found.rows if row.arm == "honest"})
    assert len(honest.usage.samples) == groups, "one a request, the warm-up included"
    assert all(0.1 < sample.processors < 8 for sample in honest.usage.samples)
    assert all(50 << 20 < sample.rss_bytes <= honest.peak_rss_bytes for sample in honest.usage.samples)
    assert len(found.conditions) == 2
    assert found.conditions[0].at_s < found.conditions[1].at_s
    assert all(here.load > 0 and (here.cpu_mhz is None or 100 < here.cpu_mhz < 10_000) for here in found.conditions)


@pytest.mark.slow
def test_the_inputs_that_authors_may_see_are_apart_from_those_that_decide(found: Benchmark) -> None:
    rows = [row for row in found.rows if row.arm == "honest"]
    assert {row.repeat for row in rows if row.shown} == {0}
    assert {row.repeat for row in rows if not row.shown} == {1, 2}
    assert not {row.group for row in rows if row.shown} & {row.group for row in rows if not row.shown}


def usage(processors: float = 1.5, rss: int = 1 << 30, *devices: DeviceUse) -> Usage:
    sample = Sample(at_s=1.0, rss_bytes=rss, processors=processors, devices=devices)
    return Usage(samples=(sample, sample), peak_rss_bytes=rss)


def on_gpu(facts: Facts) -> Facts:
    return facts.model_copy(update={"platform": facts.platform.model_copy(update={"accelerator": "cuda", "count": 2})})


def device(number: int, held: int, busy: float) -> DeviceUse:
    return DeviceUse(device=f"cuda-{number}", bytes=held, busy=busy)


def test_whoever_used_nothing_or_had_no_room_for_the_model_has_not_run_it() -> None:
    cpu = tiny.facts()
    big = cpu.model_copy(update={"model": cpu.model.model_copy(update={"parameters": 10**9})})
    assert too_idle(usage(), cpu) == too_small(usage(), cpu, 96) == ""
    assert "kept 1.0% of one processor busy" in too_idle(usage(0.01), cpu)
    assert "resident memory of 1,073,741,824 bytes is less than weights and cache, 4,0" in too_small(usage(), big, 96)
    gpu, wide = on_gpu(cpu), on_gpu(big)
    both = usage(0.01, 1 << 20, device(0, 2 << 30, 0.9), device(1, 2 << 30, 0.8))
    assert too_idle(seen(both, (0.9, 0.8), (0.7, 0.9)), gpu) == too_small(both, wide, 96) == "", "half of it each"
    alone = usage(1.5, 1 << 33, device(0, 4 << 30, 0.9), device(1, 1 << 20, 0.0))
    said = too_idle(seen(alone, (0.9, 0.8), (0.0, 0.0)), gpu)
    assert said == "cuda-1 was at rest: utilisation 0%, median of 4 samples within its requests"
    assert "cuda-1 of 1,048,576 bytes is less" in too_small(alone, wide, 96), "a rank that holds nothing is none"


def seen(usage: Usage, *shares: tuple[float, ...]) -> Usage:
    """The same with samples of each device's utilisation within every request."""
    found = {f"cuda-{number}": values for number, values in enumerate(shares)}
    return usage.model_copy(
        update={"samples": tuple(one.model_copy(update={"utilisation": found}) for one in usage.samples)}
    )


def test_one_busy_moment_is_no_work_and_what_was_hardly_looked_at_is_not_judged() -> None:
    gpu = on_gpu(tiny.facts())
    idle = usage(1.5, 1 << 30, device(0, 1 << 30, 0.9))
    assert "at rest: utilisation 0%, median of 6" in too_idle(seen(idle, (0.0, 1.0, 0.0)), gpu), "who else was that?"
    assert unseen(seen(idle, (0.0, 1.0, 0.0)), gpu) == ()
    assert too_idle(seen(idle, (0.0,)), gpu) == too_idle(idle, gpu) == "", "requests may be too short to be sampled"
    assert unseen(idle, gpu) == (
        "whether cuda-0 was at work is not judged: 0 sample(s) of its utilisation lie within 2 request(s), "
        "3 are needed",
    )
    assert unseen(idle, tiny.facts()) == ()
    once = Usage(samples=tuple(Sample(at_s=1.0, rss_bytes=1, processors=p) for p in (1.9, 0.0, 0.001)))
    assert "kept 0.1% of one processor busy" in too_idle(once, tiny.facts()), "the same holds of processors"


def test_a_device_s_samples_count_where_their_whole_period_lies_within_the_request() -> None:
    def busy(start: int, end: int) -> tuple[float, ...]:
        return Nvml(("cuda-0",), Library({})).utilisation(start, end)["cuda-0"]

    assert busy(10_000_000, 10_400_000) == (0.1, 0.2, 0.3, 0.4)
    assert busy(10_050_000, 10_350_000) == (0.2, 0.3), "what began before or ended after is partly of others"
    assert busy(10_110_000, 10_190_000) == ()
    assert busy(10_500_000, 10_900_000) == (), "the driver is late"
    assert busy(0, 1) == (), "this device does not tell"


class Value:
    """A union of ctypes: only the field of the type that is told means anything."""

    def __init__(self, value: int):
        self.uiVal, self.dVal = value, 1e-300


class Library:
    """The functions of pynvml that are used, on two devices."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, users: dict[int, int | None], present: bool = True):
        self.users, self.present = users, present
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.present:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, _: object) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self.users.items()]

    def nvmlDeviceGetClockInfo(self, _: object, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, _: object, __: int) -> int:
        return 41

    def nvmlDeviceGetPowerUsage(self, _: object) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: object) -> int:
        return 0x1 | 0x4 | 0x40

    def nvmlDeviceGetMemoryInfo(self, _: object) -> Any:
        return SimpleNamespace(used=5 << 30)

    NVML_GPU_UTILIZATION_SAMPLES = 1

    def nvmlDeviceGetSamples(self, _: object, kind: int, after_us: int) -> tuple[int, list[Any]]:
        if kind != self.NVML_GPU_UTILIZATION_SAMPLES or after_us < 0:
            raise self.NVMLError("Not Found")
        told = [SimpleNamespace(timeStamp=10_000_000 + 100_000 * i, sampleValue=Value(10 * i)) for i in range(5)]
        return 1, [sample for sample in reversed(told) if sample.timeStamp > after_us]

    def nvmlDeviceGetUtilizationRates(self, _: object) -> Any:
        return SimpleNamespace(gpu=87)


class Sampling(Library):
    """Samples the device every millisecond, always at rest, and knows it by a UUID."""

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetUUID(self, _: object) -> str:
        return "GPU-5f"

    def nvmlDeviceGetMinorNumber(self, _: object) -> int:
        return 0

    def nvmlDeviceGetSamples(self, _: object, kind: int, after_us: int) -> tuple[int, list[Any]]:
        moments = range(now_us() - 2_000_000, now_us(), 1000)
        return 1, [SimpleNamespace(timeStamp=at, sampleValue=Value(0)) for at in moments]


def test_the_samples_of_a_request_are_those_from_its_beginning_to_its_last_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Sampling({}))  # type: ignore[arg-type]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with Telemetry("cuda") as telemetry, Child(ENGINE, Confinement()) as child:
        conduct = Conduct(child, telemetry, child, time.monotonic())
        conduct.begins()
        conduct.ends()
        assert len(conduct.not_judged(on_gpu(tiny.facts()))) == 1, "a request of no time"
        start = time.perf_counter()
        conduct.begins()
        time.sleep(0.1)
        took_ms = 1000 * (time.perf_counter() - start)
        conduct.ends()
        found = conduct.samples[-1].utilisation["cuda-GPU-5f"]
        assert 80 < len(found) < took_ms + 40, "what came after it is left out, and it rests for 80 ms"
        assert conduct.not_judged(on_gpu(tiny.facts())) == ()
        assert too_idle(conduct.usage, on_gpu(tiny.facts())).startswith("cuda-GPU-5f was at rest: utilisation 0%")


def test_a_device_tells_clocks_temperature_power_and_why_it_is_held_down() -> None:
    library = Library({7: 1 << 30})
    nvml = Nvml(("cuda-0", "cuda-GPU-5f"), library)
    first, second = nvml.states()
    assert (first.device, second.device) == ("cuda-0", "cuda-GPU-5f")
    assert (first.sm_mhz, first.memory_mhz, first.temperature_c, first.busy) == (1980, 2619, 41, 0.87)
    assert first.power_w == 0, "this device does not tell"
    assert first.throttle == ("power cap", "thermal (hardware)")
    nvml.close()
    assert library.open == 0
    with pytest.raises(UserError, match="cuda-0 can't be looked at through NVML: Driver Not Loaded"):
        Nvml(("cuda-0",), Library({}, present=False))


def test_another_process_on_a_device_is_noticed_whatever_its_number_means(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {100: [100, 101], 200: [200]}
    monkeypatch.setattr("gpu_actors.processes.tree", lambda pid: trees.get(pid, [pid]))
    using = {101, 200}
    monkeypatch.setattr("gpu_actors.nvml.uses_a_device", lambda pid: pid in using)

    def strangers(*users: int) -> str:
        return Nvml(("cuda-0",), Library(dict.fromkeys(users, 1 << 30))).strangers([100, 200])

    assert strangers() == strangers(101) == strangers(101, 200) == ""
    assert strangers(101, 555) == "1 other process(es) on cuda-0: [555] beside [101]"
    assert strangers(9001, 9002) == "", "numbers of the host, as many as ours that use the device"
    assert strangers(9001, 9002, 9003) == "3 process(es) on cuda-0, of which at most 2 can be ours"
    using.clear()
    assert "of which at most 0 can be ours" in strangers(555), "before anything of ours is loaded"


def test_what_a_tree_holds_of_a_device_is_known_where_the_driver_names_its_processes() -> None:
    import os

    assert Nvml(("cuda-0",), Library({os.getpid(): 3 << 30})).held_bytes(os.getpid()) == {"cuda-0": 3 << 30}
    assert Nvml(("cuda-0",), Library({9001: 3 << 30})).held_bytes(os.getpid()) == {"cuda-0": None}
    assert Nvml(("cuda-0",), Library({os.getpid(): None})).held_bytes(os.getpid()) == {"cuda-0": None}
