# ---
# contract: mlp
# title: Gate and up in two products
# applies_to: choice.weight_fusion == 'separate' and not model.mlp_bias
# ---
from typing import Any

import torch

from .kernels import linear, silu_mul


def mlp(layer: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    """The gated feed-forward block of x [M, HIDDEN]; same shape."""
    gate_up = torch.cat((linear(x, layer["gate"]), linear(x, layer["up"])), dim=-1)
    return linear(silu_mul(gate_up), layer["down"])
