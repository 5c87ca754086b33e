"""NVIDIA's management library: what a device does, and who else is on it. Imported where a device is measured."""

import os
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ckb.errors import UserError
from ckb.facts import Frozen
from gpu_actors import processes

REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""Bits of the reasons for which clocks are held down (nvmlClocksEventReasons; 0x1 says that the device idles)."""


BEFORE_US = 5_000_000
"""How long before a stretch of time its samples are asked for: where a period began, the sample before it tells."""
NUMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Fields of a sample's value by its type (nvmlValueType_t)."""


class DeviceState(Frozen):
    """One device at one moment."""

    device: str
    """cuda-0."""
    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    throttle: tuple[str, ...]
    """Why its clocks are held down; empty for no reason."""
    used_bytes: int
    """Of its memory, by whomever."""
    busy: float
    """Share of the last sampling period in which a kernel ran."""
    processes: int
    """How many compute on it."""


class Nvml:
    """Reads the devices of one lease. Raises UserError where the library can't be used: a measurement on a device that
    may be somebody else's means nothing."""

    def __init__(self, devices: tuple[str, ...], library: Any = None):
        """`library`: what has the functions of pynvml; None imports it."""
        if library is None:
            import pynvml

            library = pynvml
        self._nvml = library
        try:
            library.nvmlInit()
            self._handles = {device: self._handle(device.partition("-")[2]) for device in devices}
        except library.NVMLError as error:
            raise UserError(
                f"{', '.join(devices)} can't be looked at through NVML: {error}. Timing on a GPU needs the driver's "
                "libnvidia-ml.so and devices that CUDA_VISIBLE_DEVICES names by their NVML index or UUID"
            ) from None

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def states(self) -> tuple[DeviceState, ...]:
        return tuple(self._state(device, handle) for device, handle in self._handles.items())

    def _state(self, device: str, handle: Any) -> DeviceState:
        nvml = self._nvml

        def said(ask: Callable[[], Any]) -> int:
            """0 for what this device does not tell."""
            try:
                return int(ask())
            except nvml.NVMLError:
                return 0

        mask = said(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return DeviceState(
            device=device,
            sm_mhz=said(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=said(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=said(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=said(lambda: nvml.nvmlDeviceGetPowerUsage(handle)) / 1000,
            throttle=tuple(words for bit, words in REASONS.items() if mask & bit),
            used_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            busy=said(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100,
            processes=len(self._users(handle)),
        )

    def _users(self, handle: Any) -> dict[int, int]:
        """Process -> bytes of the device that it holds, 0 where the driver doesn't tell."""
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {int(process.pid): int(process.usedGpuMemory or 0) for process in found}

    def utilisation(self, start_us: int, end_us: int) -> dict[str, tuple[float, ...]]:
        """Device -> the driver's own samples of how busy it was, 0 to 1, of the sampling periods that lie wholly
        between two moments, microseconds since 1970: what a device did before or after says nothing. Few or none for a
        short time, and none where the driver keeps none."""
        return {device: self._samples(handle, start_us, end_us) for device, handle in self._handles.items()}

    def _samples(self, handle: Any, start_us: int, end_us: int) -> tuple[float, ...]:
        nvml = self._nvml
        try:
            kind, found = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, start_us - BEFORE_US)
        except nvml.NVMLError:
            return ()
        told = sorted((int(s.timeStamp), getattr(s.sampleValue, NUMBERS[kind]) / 100) for s in found)
        periods = pairwise(told)
        return tuple(busy for (began, _), (ended, busy) in periods if start_us <= began and ended <= end_us)

    def held_bytes(self, pid: int) -> dict[str, int | None]:
        """Bytes that the tree of `pid` holds, by device; None where the driver doesn't name processes as we do (their
        numbers are the host's in a container)."""
        members = set(processes.tree(pid))
        found: dict[str, int | None] = {}
        for device, handle in self._handles.items():
            users = self._users(handle)
            mine = [users[member] for member in members & users.keys()]
            found[device] = sum(mine) if mine and all(mine) else None
        return found

    def strangers(self, ours: Iterable[int]) -> str:
        """Who else computes on the devices, in words; empty for nobody. `ours`: the roots of our process trees."""
        members = {member for root in ours for member in processes.tree(root)}
        using = {member for member in members if uses_a_device(member)}
        for device, handle in self._handles.items():
            users = self._users(handle).keys()
            if known := users & members:
                others = users - members
                if others:
                    return (
                        f"{len(others)} other process(es) on {device}: {sorted(others)[:5]} beside {sorted(known)[:5]}"
                    )
            elif len(users) > len(using):  # numbers of another namespace: only how many there are can be compared
                return f"{len(users)} process(es) on {device}, of which at most {len(using)} can be ours"
        return ""

    def close(self) -> None:
        self._nvml.nvmlShutdown()


def uses_a_device(pid: int) -> bool:
    """Whether a process has an NVIDIA device open."""
    try:
        links = [os.readlink(entry) for entry in (Path("/proc") / str(pid) / "fd").iterdir()]  # noqa: PTH115
    except OSError:
        return False
    return any(link.startswith("/dev/nvidia") and link[11:].isdigit() for link in links)


@cache
def driver_version() -> str:
    """Of the NVIDIA driver, "none" without one."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "none"
    try:
        found = pynvml.nvmlSystemGetDriverVersion()
        return found.decode() if isinstance(found, bytes) else str(found)
    finally:
        pynvml.nvmlShutdown()
