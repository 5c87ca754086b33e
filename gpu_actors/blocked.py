"""What can't be found out here, because it needs more than there is."""

import psutil

from ckb.facts import Facts, ModelFacts
from gpu_actors.jobs import Shortage

WIDTH = {"bfloat16": 2, "float32": 4, "float64": 8}
"""Bytes of a number, by dtype."""
OVERHEAD_BYTES = 1 << 30
"""Interpreter, libraries and activations of a reference process, generously."""


class Blocked(Exception):
    """A gate that asks for more than the hardware, or the time that it was given, has: nothing is said of the
    candidate. The gate ends BLOCKED_BY_HARDWARE, which is never a pass, and is run again where there is more."""

    def __init__(self, what: str, shortage: Shortage):
        """`what`: who asks, in words."""
        self.shortage = shortage
        asked, available = shortage.asked, shortage.available
        super().__init__(f"{what} asks for {asked:,.0f} {shortage.unit}, available are {available:,.0f}")


def reference_bytes(model: ModelFacts, *dtypes: str) -> int:
    """What a reference that holds the model in these dtypes takes."""
    return model.parameters * sum(WIDTH[dtype] for dtype in dtypes) + OVERHEAD_BYTES


def require_memory(what: str, needed: int, facts: Facts) -> None:
    """Raises Blocked where the host has less memory than a trusted process needs. A CUDA device's own memory is its
    driver's affair: a process that does not fit there says so itself."""
    if facts.platform.accelerator != "cpu":
        return
    available = int(psutil.virtual_memory().available)
    if needed > available:
        raise Blocked(what, Shortage(asked=needed, available=available, unit="bytes"))
