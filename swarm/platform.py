"""What this machine is: cores, instruction sets, memory, compiler, devices. Read from the kernel and NVML, no torch."""

import math
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from platform import machine
from typing import Literal, NamedTuple

from ckb.errors import UserError
from ckb.facts import PlatformFacts

KERNEL_ISA = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni",
    "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
"""Instruction sets that a CPU kernel may be written for, under the kernel's names."""
UNLIMITED = 2**60
"""cgroup v1 writes "no limit" as a number near 2**63."""


class Gpu(NamedTuple):
    name: str
    memory_bytes: int
    capability: float
    """Compute capability: 9.0."""

    @property
    def architecture(self) -> str:
        """What kernels are compiled for: sm_90."""
        return f"sm_{round(self.capability * 10)}"


def detect(accelerator: Literal["cpu", "cuda"], count: int = 1) -> PlatformFacts:
    """The platform that a Target's `hardware` names. Raises UserError when this machine has no such device.

    `memory_bytes` is the machine's memory (or the cgroup's limit, if less) for a CPU, and that of all `count` devices
    together for CUDA.
    """
    cores, architecture, capability = physical_cores(), machine(), 0.0
    if accelerator == "cpu":
        if count != 1:
            raise UserError(f"hardware.count: {count} CPUs asked for, one machine is one CPU device; set it to 1")
        name, memory = cpu_name(), memory_limit()
    else:
        devices = gpus()
        if len(devices) < count:
            raise UserError(
                f"hardware.accelerator: {count} cuda device(s) asked for, {len(devices)} there; set "
                "hardware.accelerator to cpu, lower hardware.count, or start this on a machine that has them"
            )
        name, memory = devices[0].name, sum(device.memory_bytes for device in devices[:count])
        architecture, capability = devices[0].architecture, devices[0].capability
    return PlatformFacts(
        accelerator=accelerator,
        name=name,
        count=count,
        cores=cores,
        isa=cpu_isa(),
        memory_bytes=memory,
        compiler=kernel_compiler(),
        architecture=architecture,
        capability=capability,
    )


def cpu_fields(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The fields of the first processor."""
    first = path.read_text(encoding="utf-8", errors="replace").strip().split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def cpu_name() -> str:
    fields = cpu_fields()
    return fields.get("model name") or fields.get("Hardware") or f"{machine()} processor"


def cpu_isa() -> tuple[str, ...]:
    """Those of KERNEL_ISA that this CPU has, in that order."""
    fields = cpu_fields()
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return tuple(name for name in KERNEL_ISA if name in flags)


def physical_cores() -> int:
    """Physical cores that this process may use: by affinity, hyper-threads counted once, within the cgroup's quota."""
    allowed = os.sched_getaffinity(0)
    cores = {core_of(cpu) for cpu in allowed}
    return max(1, int(min(len(cores), cpu_quota() + 0.5)))


def core_of(cpu: int) -> str:
    """A name for the physical core of a logical CPU; the CPU itself where the kernel does not tell."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings.read_text().strip() if siblings.is_file() else str(cpu)


def cgroup_values(files: Iterable[str]) -> list[str]:
    """The contents of the files of that name in this process's cgroup and those above it (v2, then v1)."""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / controllers if controllers else Path("/sys/fs/cgroup")
        folders = [root / own.lstrip("/"), *(root / own.lstrip("/")).parents]
        for folder in folders[: 1 + len(Path(own).parts)]:
            found += [(folder / name).read_text().strip() for name in files if (folder / name).is_file()]
    return found


def memory_limit() -> int:
    """Bytes that this process may use: the machine's memory or the tightest cgroup limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(v) for v in cgroup_values(["memory.max", "memory.limit_in_bytes"]) if v.isdecimal()]
    return min([total, *(limit for limit in limits if limit < UNLIMITED)])


def cpu_quota() -> float:
    """CPUs' worth of time that the cgroup grants (v2); infinite without a quota."""
    quotas = [value.split() for value in cgroup_values(["cpu.max"])]
    return min((int(quota) / int(period) for quota, period in quotas if quota != "max"), default=math.inf)


def find_tool(name: str) -> str | None:
    """A command on PATH, or beside the running interpreter (a virtual environment that is not activated)."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def python_headers() -> Path:
    return Path(sysconfig.get_paths()["include"]) / "Python.h"


def kernel_compiler() -> str | None:
    """The C++ compiler that torch.utils.cpp_extension takes, if ninja and Python's headers are there too."""
    command = os.environ.get("CXX", "c++")
    return command if shutil.which(command) and find_tool("ninja") and python_headers().is_file() else None


def gpus() -> list[Gpu]:
    """The CUDA devices that NVML shows; none without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [gpu_of(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def gpu_of(handle: object) -> Gpu:
    import pynvml

    name = pynvml.nvmlDeviceGetName(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        name=name.decode() if isinstance(name, bytes) else name,
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        capability=float(f"{major}.{minor}"),
    )
