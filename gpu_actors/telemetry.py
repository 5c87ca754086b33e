"""The machine's state while something is measured: frequency, temperature, throttling and load of the processors; on
NVIDIA the devices' own, and who else is on them."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from ckb.facts import Frozen
from gpu_actors.lease import physical_devices
from gpu_actors.nvml import DeviceState, Nvml

CPUS = Path("/sys/devices/system/cpu")
ZONES = Path("/sys/class/thermal")


class Conditions(Frozen):
    """The machine at one moment of a benchmark. What it doesn't tell is None."""

    at_s: float
    """Since the benchmark began."""
    load: float
    """Processes that run or wait, over the last minute."""
    cpu_mhz: float | None
    """Mean over the processors."""
    cpu_throttled: int | None
    """How often processors were slowed down for heat, since the machine started."""
    cpu_temperature_c: float | None
    """The hottest zone."""
    devices: tuple[DeviceState, ...] = ()
    """Of an accelerator; empty for a CPU."""


class Telemetry:
    """Reads the machine and the devices that `accelerator` stands for. A context manager."""

    def __init__(self, accelerator: str):
        self._nvml = Nvml(physical_devices(accelerator)) if accelerator == "cuda" else None

    def __enter__(self) -> "Telemetry":
        return self

    def __exit__(self, *_: object) -> None:
        if self._nvml:
            self._nvml.close()

    def conditions(self, at_s: float) -> Conditions:
        return Conditions(
            at_s=at_s,
            load=os.getloadavg()[0],
            cpu_mhz=cpu_mhz(),
            cpu_throttled=throttled(),
            cpu_temperature_c=temperature(),
            devices=self.states(),
        )

    def states(self) -> tuple[DeviceState, ...]:
        return self._nvml.states() if self._nvml else ()

    def utilisation(self, start_us: int, end_us: int) -> dict[str, tuple[float, ...]]:
        """See Nvml.utilisation; empty on a CPU."""
        return self._nvml.utilisation(start_us, end_us) if self._nvml else {}

    def held_bytes(self, pid: int) -> dict[str, int | None]:
        """Bytes of each device that a process tree holds; empty on a CPU."""
        return self._nvml.held_bytes(pid) if self._nvml else {}

    def strangers(self, ours: Iterable[int]) -> str:
        """Who else is on the devices, in words; empty for nobody, and on a CPU, whose load is measured instead."""
        return self._nvml.strangers(ours) if self._nvml else ""


def numbers(folder: Path, pattern: str) -> list[int]:
    """The number in each file that is there and may be read."""
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # a processor that is off, or a sensor that has no value now
            continue
    return found


def cpu_mhz() -> float | None:
    """What the frequency driver says, or else what the processor said last."""
    if scaled := numbers(CPUS, "cpu[0-9]*/cpufreq/scaling_cur_freq"):
        return mean(scaled) / 1000
    said = re.findall(r"^cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return mean(map(float, said)) if said else None


def throttled() -> int | None:
    counted = numbers(CPUS, "cpu[0-9]*/thermal_throttle/core_throttle_count")
    return sum(counted) if counted else None


def temperature() -> float | None:
    zones = numbers(ZONES, "thermal_zone*/temp")
    return max(zones) / 1000 if zones else None
