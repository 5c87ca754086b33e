"""Table `platforms`: what is known of a class of machines. `applies_to` says which machines are meant."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row
from ckb.schemas.arrow import schema_of


class PlatformOperator(Frozen):
    """One operator library or instruction set on this platform."""

    name: str
    """torch, triton, avx2, ..."""
    state: Literal["usable", "installed", "absent"]
    """usable: a small run gave right results; installed: it imports, its kernels failed or were not tried."""
    fallback: str | None = None
    """What to use instead, with its cost, when it is not usable."""
    note: str = ""


class Platform(Row):
    """One class of machines."""

    layer: Layer = "parallelism"
    title: str
    """The class of machines, for people."""
    accelerator: Literal["cpu", "cuda"]
    """As in ckb.facts.PlatformFacts."""
    dtypes: tuple[str, ...]
    """Compute dtypes that the platform runs at full rate or close to it."""
    operators: tuple[PlatformOperator, ...] = ()
    """What an engine can call here."""
    constraints: tuple[str, ...] = ()
    """What an engine must respect here: alignment, thread counts, limits."""
    text: str = ""
    """What an implementer should know of it."""


SCHEMA = schema_of(Platform)
