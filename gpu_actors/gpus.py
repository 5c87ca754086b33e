"""Which NVIDIA devices this process may use, and under what names.

CUDA_VISIBLE_DEVICES, NVML, lock files and device files each count in their own way: one device has several spellings,
and its number in the variable need not be that of its file. Everything here goes by the UUID that NVML tells.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckb.errors import UserError

VARIABLE = "CUDA_VISIBLE_DEVICES"
FOLDER = Path("/dev")
SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps*")
"""Device files that whoever uses any device needs, as far as they are there."""


@dataclass(frozen=True)
class Gpu:
    """One visible device."""

    uuid: str
    """Of the whole device, also where only a slice of it is visible."""
    minor: int
    """N of its /dev/nvidiaN."""
    visible_as: str
    """Its entry in CUDA_VISIBLE_DEVICES that means the same in every process: a UUID, that of the slice if it is one.
    A number counts what a process can open, so it means another device in a sandbox."""


@dataclass(frozen=True)
class Grant:
    """What a confined process is given to use the visible devices and no other."""

    devices: tuple[str, ...] = ()
    """Device files."""
    environment: dict[str, str] = field(default_factory=dict)


def visible(library: Any = None) -> tuple[Gpu, ...] | None:
    """The devices that CUDA_VISIBLE_DEVICES names, or all; None where NVML can't be used. `library`: what has the
    functions of pynvml; None imports it. Raises UserError for an entry that is no device here."""
    if library is None:
        import pynvml

        library = pynvml
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    try:
        return _visible(library)
    finally:
        library.nvmlShutdown()


def _visible(nvml: Any) -> tuple[Gpu, ...]:
    spelled = os.environ.get(VARIABLE)
    try:
        handles = _handles(nvml)
        if spelled is None:
            found = tuple(_gpu(nvml, handle) for handle in handles)
        else:
            entries = [entry.strip() for entry in spelled.split(",") if entry.strip()]
            found = tuple(_named(nvml, entry, handles) for entry in entries)
    except nvml.NVMLError as error:
        raise UserError(f"NVML can't tell which devices {VARIABLE}={spelled or ''} means: {error}") from None
    if not found:
        raise UserError(f"no NVIDIA device is visible: {len(handles)} there, {VARIABLE} is {spelled!r}")
    return found


def _handles(nvml: Any) -> list[Any]:
    """The devices that this process may open: NVML counts the others too (a cluster's control groups leave some out),
    and CUDA does not, so neither do the numbers of the variable."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            found.append(nvml.nvmlDeviceGetHandleByIndex(index))
    return found


def _gpu(nvml: Any, handle: Any, visible_as: str = "") -> Gpu:
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    return Gpu(uuid=uuid, minor=int(nvml.nvmlDeviceGetMinorNumber(handle)), visible_as=visible_as or uuid)


def _named(nvml: Any, entry: str, handles: list[Any]) -> Gpu:
    """The device of one entry: a number, a UUID or its beginning, or the UUID of a slice."""
    if entry.startswith("MIG-"):
        slice_ = nvml.nvmlDeviceGetHandleByUUID(entry)
        return _gpu(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_), entry)
    if entry.isdigit():
        fitting = handles[int(entry) : int(entry) + 1]
        if len({str(nvml.nvmlDeviceGetName(handle)) for handle in handles}) > 1:
            raise UserError(
                f"{VARIABLE} names device {entry} of {len(handles)} that are not alike: CUDA counts the fastest first "
                "and NVML by bus; name it by its UUID (nvidia-smi -L)"
            )
    else:
        fitting = [handle for handle in handles if str(nvml.nvmlDeviceGetUUID(handle)).startswith(entry)]
    if len(fitting) != 1:
        raise UserError(f"{VARIABLE} names {entry}, which is {len(fitting)} of the {len(handles)} devices here")
    return _gpu(nvml, fitting[0])


def grant(accelerator: str, library: Any = None) -> Grant:
    """Nothing for what is no NVIDIA device. Where NVML can't tell which file belongs to a visible device there may be
    one file only, else UserError: passing all would let a candidate use the devices of other runs."""
    if accelerator != "cuda":
        return Grant()
    gpus, files = visible(library), dict(_files())
    if gpus is not None and {gpu.minor for gpu in gpus} <= files.keys():
        own = [files[minor] for minor in sorted({gpu.minor for gpu in gpus})]
    elif len(files) == 1 and (gpus is None or len({gpu.uuid for gpu in gpus}) == 1):
        own = list(files.values())
    else:
        told = "is not there" if gpus is None else f"says {', '.join(f'{gpu.uuid}: {gpu.minor}' for gpu in gpus)}"
        raise UserError(
            f"which of {len(files)} files {FOLDER}/nvidiaN a candidate may use is not known: NVML {told}; "
            f"install the driver's libnvidia-ml.so, or start this where there is one device ({VARIABLE}="
            f"{os.environ.get(VARIABLE, '')})"
        )
    shared = [str(path) for pattern in SHARED for path in sorted(FOLDER.glob(pattern))]
    environment = {VARIABLE: ",".join(dict.fromkeys(gpu.visible_as for gpu in gpus))} if gpus else {}
    return Grant(devices=(*shared, *own), environment=environment)


def _files() -> Iterator[tuple[int, str]]:
    for path in FOLDER.glob("nvidia[0-9]*"):
        if (number := path.name.removeprefix("nvidia")).isdigit():
            yield int(number), str(path)
