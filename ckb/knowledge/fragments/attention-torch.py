# ---
# contract: attention
# title: torch's scaled dot product over grouped heads
# applies_to: platform.accelerator == 'cpu' and choice.attention == 'torch'
# constants: [HEADS, KV_HEADS, HEAD_DIM]
# affects: [attention, prefill]
# ---
import torch
import torch.nn.functional as F


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
    """Causal attention of q [M, HEADS, HEAD_DIM], at positions start .. start + M - 1, over keys and values
    [KV_HEADS, start + M, HEAD_DIM]: [M, HEADS * HEAD_DIM]."""
    group = HEADS // KV_HEADS
    grouped = q.view(len(q), KV_HEADS, group, HEAD_DIM).permute(1, 2, 0, 3)
    shape = (KV_HEADS, group, start + len(q), HEAD_DIM)
    cached = (t[:, None].expand(shape) for t in (keys, values))
    visible = torch.ones(len(q), start + len(q), dtype=torch.bool).tril(start) if start else None
    mixed = F.scaled_dot_product_attention(grouped, *cached, visible, is_causal=start == 0)
    return mixed.permute(2, 0, 1, 3).reshape(len(q), HEADS * HEAD_DIM)
