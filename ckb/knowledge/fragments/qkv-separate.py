# ---
# contract: qkv
# title: Three products
# applies_to: choice.weight_fusion == 'separate'
# constants: [HEADS, KV_HEADS, HEAD_DIM]
# ---
from typing import Any

import torch

from .kernels import linear


def project_qkv(layer: dict[str, Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries [M, HEADS, HEAD_DIM], keys and values [M, KV_HEADS, HEAD_DIM] of x [M, HIDDEN]."""
    q, k, v = (linear(x, layer[part]) for part in ("q", "k", "v"))
    return q.view(-1, HEADS, HEAD_DIM), k.view(-1, KV_HEADS, HEAD_DIM), v.view(-1, KV_HEADS, HEAD_DIM)
