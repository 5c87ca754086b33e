"""What is seen of a real device: who is on it, what it holds, that graphs are replayed and that work has ended."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gpu_actors.drivers import honest
from gpu_actors.drivers.stages import PARTS
from gpu_actors.lease import physical_devices
from gpu_actors.nvml import Nvml, uses_a_device
from gpu_actors.telemetry import Telemetry

HOLDS = """
import torch
held = torch.ones(1 << 28, device="cuda")
print("held", flush=True)
input()
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """A process that holds 1 GiB of the device."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate("\n")


def test_another_process_on_the_device_is_a_stranger_and_our_own_is_not(other: "subprocess.Popen[str]") -> None:
    nvml = Nvml(physical_devices("cuda"))
    assert uses_a_device(other.pid)
    assert nvml.strangers([other.pid]) == ""
    assert nvml.strangers([]) != "", "without it as one of ours it is somebody else's"
    held = nvml.held_bytes(other.pid)
    assert all(size is None or size > 1 << 30 for size in held.values()), held
    assert sum(state.used_bytes for state in nvml.states()) > 1 << 30
    nvml.close()


def test_a_device_tells_its_clocks_heat_and_power() -> None:
    with Telemetry("cuda") as telemetry:
        here = telemetry.conditions(0.0)
    assert here.devices
    for state in here.devices:
        assert 100 < state.sm_mhz < 5000, state
        assert 100 < state.memory_mhz < 10_000, state
        assert 10 < state.temperature_c < 100, state
        assert state.power_w > 10, state


def test_replayed_graphs_and_work_that_goes_on_are_seen() -> None:
    import torch

    class Engine:
        """Replays a captured product for each token; `late` leaves work behind."""

        def __init__(self, late: int = 0):
            self.late, self.x = late, torch.randn(4096, 4096, device="cuda")
            self.x @ self.x
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.x @ self.x

        def stream(self, prompt: list[int], count: int, ignore_eos: bool) -> Iterator[int]:
            for _ in range(count):
                self.graph.replay()
                yield 0
            for _ in range(self.late):
                self.x @ self.x

    PARTS["engine"] = Engine()
    events = honest.device_events([1], 5)["events"]
    assert sum(count for name, count in events.items() if "GraphLaunch" in name) == 5, sorted(events)
    took = []
    for late in (0, 200):
        list(Engine(late).stream([1], 1, True))
        start = time.perf_counter()
        honest.settle()
        took.append(time.perf_counter() - start)
    assert took[0] < 0.025 < took[1], took
    PARTS.clear()
