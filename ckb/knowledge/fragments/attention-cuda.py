# ---
# contract: attention
# title: Scores, softmax and sums as float32 tensors on the device
# applies_to: platform.accelerator == 'cuda' and choice.attention == 'torch'
# constants: [DTYPE, HEADS, KV_HEADS, HEAD_DIM]
# affects: [attention, prefill]
# ---
import math

import torch


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
    """Causal attention of q [M, HEADS, HEAD_DIM], at positions start .. start + M - 1, over keys and values
    [KV_HEADS, start + M, HEAD_DIM]: [M, HEADS * HEAD_DIM]."""
    count, group = len(q), HEADS // KV_HEADS
    grouped = q.float().view(count, KV_HEADS, group, HEAD_DIM).permute(1, 2, 0, 3).reshape(KV_HEADS, -1, HEAD_DIM)
    scores = torch.bmm(grouped, keys.float().transpose(1, 2)).view(KV_HEADS, group, count, -1) / math.sqrt(HEAD_DIM)
    if count > 1:  # a single query sees every key
        hidden = torch.ones(count, start + count, dtype=torch.bool, device=DEVICE).triu(start + 1)
        scores = scores.masked_fill(hidden, -torch.inf)
    chances = scores.softmax(-1).view(KV_HEADS, group * count, -1)
    mixed = torch.bmm(chances, values.float()).view(KV_HEADS, group, count, HEAD_DIM)
    return mixed.permute(2, 0, 1, 3).reshape(count, HEADS * HEAD_DIM).to(DTYPE)
