# ---
# contract: linear
# title: torch's own matrix product, weights in the compute dtype
# applies_to: platform.accelerator == 'cpu' and choice.linear == 'torch' and model.weights in ['bf16', 'fp32']
# constants: [DTYPE]
# affects: [linear, head, prefill]
# ---
import torch
import torch.nn.functional as F


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight [N, K] in the compute dtype, in memory of its own."""
    return weight.to(DTYPE, copy=True)


def linear(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x [M, K] times the packed weight [N, K] transposed: [M, N]."""
    return F.linear(x, packed)
