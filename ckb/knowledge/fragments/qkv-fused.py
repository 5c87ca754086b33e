# ---
# contract: qkv
# title: One product, split afterwards
# applies_to: choice.weight_fusion == 'fused'
# constants: [HEADS, KV_HEADS, HEAD_DIM]
# ---
from typing import Any

import torch

from .kernels import linear


def project_qkv(layer: dict[str, Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries [M, HEADS, HEAD_DIM], keys and values [M, KV_HEADS, HEAD_DIM] of x [M, HIDDEN]."""
    joined = linear(x, layer["qkv"]).view(len(x), -1, HEAD_DIM)
    q, k, v = joined.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
    return q, k, v
