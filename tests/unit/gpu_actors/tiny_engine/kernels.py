"""Operators in torch alone. `facts.py` beside this file holds the model's numbers; the tests write it."""

import torch
import torch.nn.functional as F

from .facts import DTYPE, HEAD_DIM, HEADS, KV_HEADS, NORM_EPS, ROPE_THETA, THREADS


def setup() -> None:
    torch.set_num_threads(THREADS)


def pack(weight: torch.Tensor) -> torch.Tensor:
    return weight.to(DTYPE)


def linear(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    return F.linear(x, packed)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + NORM_EPS)).to(x.dtype)


def rope(x: torch.Tensor, start: int) -> torch.Tensor:
    frequency = 1.0 / ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angle = torch.arange(start, start + len(x)).float()[:, None, None] * frequency
    cosine, sine = angle.cos().to(DTYPE), angle.sin().to(DTYPE)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
    keys, values = (t.repeat_interleave(HEADS // KV_HEADS, dim=0) for t in (keys, values))
    visible = torch.ones(len(q), start + len(q), dtype=torch.bool).tril(start)
    mixed = F.scaled_dot_product_attention(q.transpose(0, 1), keys, values, visible)
    return mixed.transpose(0, 1).reshape(len(q), HEADS * HEAD_DIM)
