"""Table `platforms`: what is known of a class of machines. `applies_to` says which machines are meant."""

from typing import Literal

from pydantic import Field

from ckb.facts import Frozen
from ckb.records import Layer, Row


class PlatformOperator(Frozen):
    """One operator library or instruction set on this platform."""

    name: str
    """torch, triton, avx2, ..."""
    state: Literal["usable", "installed", "absent", "untried"]
    """usable: a small run gave right results; installed: it imports, its kernels failed; absent: it does not exist for
    this platform; untried: it exists, and no run of ours has shown more."""
    fallback: str | None = None
    """What to use instead, with its cost, when it is not usable."""
    note: str = ""


class Device(Frozen):
    """One product of the class, by its data sheet. Numbers are of one device."""

    name: str
    """A part of the name that the driver reports: H200."""
    memory_bytes: int | None = None
    """Capacity of its memory."""
    read_gb_s: float | None = None
    """Nominal bandwidth of that memory, 10^9 bytes a second."""
    tflops: dict[str, float] = Field(default_factory=dict)
    """Dtype -> nominal dense peak of the matrix units, 10^12 operations a second; sparsity not counted."""
    link_gb_s: float | None = None
    """Nominal bandwidth to the other devices of the host, one direction, 10^9 bytes a second."""
    source: str
    """Where the numbers are from."""


class Measurement(Frozen):
    """One number that was measured on a machine of the class."""

    what: str
    """What was measured, and of what size."""
    value: float
    unit: str
    source: str
    """Machine, and who measured it."""


class Platform(Row):
    """One class of machines."""

    layer: Layer = "parallelism"
    title: str
    """The class of machines, for people."""
    accelerator: Literal["cpu", "cuda", "hip", "metal"]
    """As in ckb.facts.PlatformFacts, which knows cpu and cuda so far."""
    dtypes: tuple[str, ...]
    """Compute dtypes that the platform runs at full rate or close to it."""
    devices: tuple[Device, ...] = ()
    """Products of the class. Empty where each machine differs: its numbers are measured when a run starts."""
    measured: tuple[Measurement, ...] = ()
    """What was measured, against the nominal numbers."""
    operators: tuple[PlatformOperator, ...] = ()
    """What an engine can call here."""
    graph_capture: str = ""
    """How a step is captured or compiled as one program here, and what it may not contain."""
    collectives: str = ""
    """What several devices exchange data with."""
    constraints: tuple[str, ...] = ()
    """What an engine must respect here: alignment, thread counts, limits."""
    text: str = ""
    """What an implementer should know of it."""
