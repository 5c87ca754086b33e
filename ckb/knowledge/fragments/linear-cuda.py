# ---
# contract: linear
# title: torch's own matrix product, weights on the device in the compute dtype
# applies_to: platform.accelerator == 'cuda' and choice.linear == 'torch' and model.weights in ['bf16',
#   'fp32']
# constants: [DTYPE]
# affects: [linear, head, prefill]
# ---
import torch
import torch.nn.functional as F


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight [N, K] on the device in the compute dtype, in memory of its own."""
    return weight.to(DEVICE, DTYPE, copy=True)


def linear(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x [M, K] times the packed weight [N, K] transposed: [M, N]."""
    return F.linear(x, packed)
