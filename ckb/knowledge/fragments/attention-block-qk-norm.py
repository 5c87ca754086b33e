# ---
# contract: attention-block
# title: Normalise the heads of q and k, rotate, append, attend, project
# applies_to: model.qk_norm and not model.attention_bias and model.sliding_window == None
# ---
from typing import Any

import torch

from .cache import KVCache
from .kernels import attention, linear, rms_norm, rope


def attend(layer: dict[str, Any], x: torch.Tensor, cache: KVCache, index: int, start: int) -> torch.Tensor:
    """Self-attention of layer `index` for x [M, HIDDEN] at positions from `start`; the cache is extended."""
    q, k, v = project_qkv(layer, x)
    cache.append(index, rope(rms_norm(k, layer["k_norm"]), start), v, start)
    q, end = rope(rms_norm(q, layer["q_norm"]), start), start + len(x)
    mixed = attention(q, cache.keys(index, end), cache.values(index, end), start)
    return linear(mixed, layer["o"])
