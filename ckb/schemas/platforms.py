"""Table `platforms`: what is known of a class of machines. `applies_to` says which machines are meant."""

from typing import Literal

from pydantic import Field, model_validator

from ckb.facts import Accelerator, Frozen
from ckb.records import Layer, Row

OperatorState = Literal["usable", "installed", "absent", "untried"]
"""usable: a small run gave right results; installed: it imports, its kernels failed; absent: it is not there, or does
not exist for the platform; untried: it exists, and no run of ours has shown more."""

STATE_WORDS: dict[OperatorState, str] = {
    "usable": "usable", "installed": "installed, not usable", "absent": "absent", "untried": "not tried",
}  # fmt: skip


class PlatformOperator(Frozen):
    """One operator library or instruction set on this platform."""

    name: str
    """torch, cpp, triton, avx2, ..."""
    state: OperatorState
    """What is known of the class; on each machine a run decides (ckb.operators)."""
    fallback: str | None = None
    """What to use instead, with its cost, when it is not usable."""
    note: str = ""


class Device(Frozen):
    """One product of the class, by its data sheet. Numbers are of one device."""

    name: str
    """A part of the name that the driver reports: H200. Of several that fit the longest is meant."""
    memory_bytes: int | None = None
    """Capacity of its memory. Data sheets write GB for 2^30 bytes of memory, and for 10^9 where they mean speed."""
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


BUSY = 0.05
"""Share of foreign processor time from which a speed is said to be that of a busy machine."""


class TriedOperator(Frozen):
    """What is known of one operator library on one machine."""

    name: str
    """torch, cpp, triton, flash_attn, ..."""
    device: str
    """What its kernel was to run on: cpu, cuda."""
    state: OperatorState
    why: str = ""
    """One line that says why it is not usable; empty when it is."""
    speeds: tuple[Measurement, ...] = ()
    """How fast its kernel was, and how long it took; only of a usable one."""
    foreign_cpu: float = 0.0
    """Share of the machine's processors that others used meanwhile: the speeds of a busy machine say little."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """What the outcome may depend on: its own version, that of Python, torch, the compiler, the driver."""
    machine: str = ""
    """Processor or device, with its architecture and cores."""
    tried: str = ""
    """ISO date and time of the run; empty where none was needed to see that it is absent."""
    sandbox: str = ""
    """The isolation that the run was made in, in words."""

    @model_validator(mode="after")
    def only_a_right_answer_makes_it_usable(self) -> "TriedOperator":
        usable = self.state == "usable"
        if usable != bool(self.speeds) or usable == bool(self.why):
            raise ValueError(f"{self.name} is {self.state}: a usable operator has speeds, any other one a reason")
        if self.state in ("usable", "installed") and not self.tried:
            raise ValueError(f"{self.name} is {self.state}, and no run has shown it")
        return self

    @property
    def words(self) -> str:
        """State with speed or reason, for a line of text."""
        return f"{STATE_WORDS[self.state]}: {f'{self.speed} ({self.measured})' if self.speeds else self.why}"

    @property
    def speed(self) -> str:
        """The speeds alone; "" without any."""
        return ", ".join(f"{s.value:.4g} {s.unit}" for s in self.speeds)

    @property
    def measured(self) -> str:
        """What its speeds are speeds of; "" without any."""
        beside = f", while others used {self.foreign_cpu:.0%} of the processors" if self.foreign_cpu > BUSY else ""
        return f"{self.speeds[0].what}{beside}" if self.speeds else ""


class Platform(Row):
    """One class of machines."""

    layer: Layer = "parallelism"
    title: str
    """The class of machines, for people."""
    accelerator: Accelerator
    """As in ckb.facts.PlatformFacts."""
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
