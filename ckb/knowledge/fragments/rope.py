# ---
# contract: rope
# title: Halves rotated by a table of all positions
# applies_to: platform.accelerator == 'cpu' and model.rope_type == 'default'
# constants: [DTYPE, HEAD_DIM, ROPE_THETA, MAX_CONTEXT]
# ---
from functools import cache

import torch


@cache
def rope_table() -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [MAX_CONTEXT, HEAD_DIM / 2] of every position, made in float32, then rounded to DTYPE."""
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angles = torch.arange(MAX_CONTEXT).float()[:, None] * frequencies
    return angles.cos().to(DTYPE), angles.sin().to(DTYPE)


def rope(x: torch.Tensor, start: int) -> torch.Tensor:
    """Rotate x [M, heads, HEAD_DIM] by its positions start .. start + M - 1; same shape."""
    cosine, sine = (table[start : start + len(x), None] for table in rope_table())
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
