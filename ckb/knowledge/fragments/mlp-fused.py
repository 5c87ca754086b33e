# ---
# contract: mlp
# title: Gate and up in one product
# applies_to: choice.weight_fusion == 'fused' and not model.mlp_bias
# ---
from typing import Any

import torch

from .kernels import linear, silu_mul


def mlp(layer: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    """The gated feed-forward block of x [M, HIDDEN]; same shape."""
    return linear(silu_mul(linear(x, layer["gate_up"])), layer["down"])
