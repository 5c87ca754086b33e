"""NVIDIA's management library: what a device does, and who else is on it. Imported where a device is measured."""

import os
from collections.abc import Callable, Iterable
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
