"""The formulas of the execution stage in float64, written from the papers: the gates' own opinion of what is right."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root mean square normalisation (Zhang and Sennrich, 2019), over the last axis."""
    scaled: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    return scaled


def rope(x: Array, start: int, theta: float) -> Array:
    """Rotary embedding (Su et al., 2021) of x [M, heads, head_dim], the first half of a head paired with its second."""
    half = x.shape[-1] // 2
    frequency = theta ** (-np.arange(half) / half)
    angle = np.arange(start, start + len(x))[:, None, None] * frequency
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def silu(x: Array) -> Array:
    activated: Array = x / (1.0 + np.exp(-x))
    return activated


def silu_mul(gate_up: Array) -> Array:
    """SwiGLU (Shazeer, 2020) of [M, 2 I]: the gate is the first half."""
    gate, up = np.split(gate_up, 2, axis=-1)
    mixed: Array = silu(gate) * up
    return mixed


def score_size(q: Array, keys: Array) -> Array:
    """What the rounding of a score scales with: the largest sum of |q k| / sqrt(d) over the keys, [M, heads]."""
    heads, dim = q.shape[1:]
    keys = np.repeat(keys, heads // keys.shape[0], axis=0)
    sizes: Array = np.einsum("mhd,htd->mht", np.abs(q), np.abs(keys)).max(-1) / np.sqrt(dim)
    return sizes


def attention(q: Array, keys: Array, values: Array, start: int) -> tuple[Array, Array]:
    """Causal grouped-query attention (Ainslie et al., 2023).

    q [M, heads, d], keys and values [kv_heads, start + M, d]. Returns the output [M, heads * d] and, for error
    bounds, the same mixture of absolute values.
    """
    queries, heads, dim = q.shape
    group = heads // keys.shape[0]
    keys, values = np.repeat(keys, group, axis=0), np.repeat(values, group, axis=0)
    scores = np.einsum("mhd,htd->hmt", q, keys) / np.sqrt(dim)
    hidden = np.arange(keys.shape[1])[None, :] > start + np.arange(queries)[:, None]
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = [np.einsum("hmt,htd->mhd", weights, v).reshape(queries, heads * dim) for v in (values, np.abs(values))]
    return mixed[0], mixed[1]
