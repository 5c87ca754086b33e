# ---
# contract: attention-block
# title: Rotate, append, attend, project
# applies_to: not model.qk_norm and not model.attention_bias and model.sliding_window == None
# ---
from typing import Any

import torch

from .cache import KVCache
from .kernels import attention, linear, rope


def attend(layer: dict[str, Any], x: torch.Tensor, cache: KVCache, index: int, start: int) -> torch.Tensor:
    """Self-attention of layer `index` for x [M, HIDDEN] at positions from `start`; the cache is extended."""
    q, k, v = project_qkv(layer, x)
    cache.append(index, rope(k, start), v, start)
    end = start + len(x)
    mixed = attention(rope(q, start), cache.keys(index, end), cache.values(index, end), start)
    return linear(mixed, layer["o"])
