# ---
# contract: rms-norm
# title: Normalise in float32, scale in the compute dtype
# constants: [NORM_EPS]
# ---
import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Divide each vector of the last axis by its root mean square, then scale by weight [H]; same shape as x."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
    return weight * wide.to(x.dtype)
