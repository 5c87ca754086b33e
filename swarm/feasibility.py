"""Whether a Target can be met at all, found out before anything is spent: memory, and the roofline."""

from ckb.facts import Frozen


class Feasibility(Frozen):
    """What an engine for the Target needs at least, against what there is."""

    weight_bytes: int
    kv_bytes: int
    workspace_bytes: int
    """Activations and logits of the longest prompt, and the interpreter with torch."""
    allowed_bytes: int
    """The tighter of constraints.max_memory_gib and the platform's memory."""
    read_gb_s: float
    """Read bandwidth that the bound was computed with."""

    @property
    def needed_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.workspace_bytes
