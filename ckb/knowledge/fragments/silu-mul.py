# ---
# contract: silu-mul
# title: Gate and up from one tensor
# applies_to: model.activation == 'silu'
# ---
import torch
import torch.nn.functional as F


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of gate_up [M, 2 * INTERMEDIATE], gate first: [M, INTERMEDIATE]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up
