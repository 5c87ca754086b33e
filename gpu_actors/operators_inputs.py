"""What an operator is tried on: fresh random inputs, and what float64 makes of them. numpy only.

Every input is a bfloat16 number, sent as its bit pattern: each dtype holds it exactly, so that one oracle judges all.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_actors.machine import last_level_cache_bytes

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, WIDTH = 2048, 4096
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
TOKENS = {"cpu": 2048, "cuda": 32768}
"""Positions in the attention's cache: on a device more than its second-level cache holds."""
MIN_BYTES = {"cpu": 256 * 2**20, "cuda": 2**30}
MAX_BYTES = 2**30
BOUNDS = {"float32": (1e-3, 0.0), "bfloat16": (2e-2, 2**-7)}
"""Dtype -> largest error, as a share of the answers' root mean square and of the answer itself. Float32 sums of 4,096
products in any order stay below a quarter of the first; a bfloat16 answer is rounded to 2**-9 of itself."""


@dataclass(frozen=True)
class Problem:
    """One kernel's inputs, with the right answers."""

    what: str
    """The kernel and its size, in words."""
    dtype: str
    arrays: dict[str, Array]
    """Bit patterns, uint16."""
    right: Array
    """Answers of the runs [repeats, ...], float64."""
    copies: int
    """How often the matrix lies in memory, one below the other."""
    launches: int
    """How many are timed together."""
    read_bytes: int
    """What one run must read."""
    threads: int = field(default=1)

    def wrong(self, answers: Array) -> str:
        """Why the answers are not right, or ""."""
        right = self.right
        if answers.shape != right.shape:
            return f"wrong shape: answers {list(answers.shape)}, right is {list(right.shape)}"
        scale, own = BOUNDS[self.dtype]
        size = float(np.sqrt(np.mean(right**2)))
        error = np.abs(answers.astype(np.float64) - right)
        bad = ~(error <= scale * size + own * np.abs(right))  # also what is no number
        if not bad.any():
            return ""
        return (
            f"wrong numbers: {bad.sum():,} of {bad.size:,} answers, the largest error {error[bad].max():.3g}, "
            f"their root mean square {size:.3g}"
        )


def product(device: str, repeats: int, threads: int, random: np.random.Generator) -> Problem:
    """A matrix times a vector, a fresh one for each run, from more memory than a cache holds."""
    dtype = "bfloat16" if device == "cuda" else "float32"
    block = ROWS * WIDTH * (2 if dtype == "bfloat16" else 4)
    wanted = max(MIN_BYTES[device], 4 * last_level_cache_bytes() if device == "cpu" else 0)
    copies = -(-min(wanted, MAX_BYTES) // block)
    w, x = draw(random, ROWS, WIDTH), draw(random, repeats + 1, WIDTH)
    right = exact(x)[:repeats] @ exact(w).T
    size = copies * block
    return Problem(
        what=f"matrix-vector product in {dtype}, {copies * ROWS:,} x {WIDTH:,} ({size / 1e6:,.0f} MB)",
        dtype=dtype,
        arrays={"w": w, "x": x},
        right=np.tile(right, (1, copies)),
        copies=copies,
        launches=launches(device),
        read_bytes=size,
        threads=threads,
    )


def attention(device: str, repeats: int, threads: int, random: np.random.Generator) -> Problem:
    """One new token's attention over a cache of keys and values, grouped queries."""
    tokens = TOKENS[device]
    q, k, v = (
        draw(random, *shape)
        for shape in ((repeats + 1, HEADS, HEAD_DIM), (tokens, KV_HEADS, HEAD_DIM), (tokens, KV_HEADS, HEAD_DIM))
    )
    right = np.empty((repeats, HEADS, HEAD_DIM))
    group = HEADS // KV_HEADS
    for head in range(KV_HEADS):
        keys, values = exact(k[:, head]), exact(v[:, head])
        queries = exact(q[:repeats, head * group : (head + 1) * group])
        scores = queries @ keys.T / np.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        right[:, head * group : (head + 1) * group] = weights @ values / weights.sum(axis=-1, keepdims=True)
    size = k.nbytes + v.nbytes
    return Problem(
        what=f"attention of one token in bfloat16, {HEADS} heads over {tokens:,} cached ({size / 1e6:,.0f} MB)",
        dtype="bfloat16",
        arrays={"q": q, "k": k, "v": v},
        right=right,
        copies=1,
        launches=launches(device),
        read_bytes=size,
        threads=threads,
    )


def launches(device: str) -> int:
    """On an accelerator starting one kernel costs as much time as running it: a queue of them hides that."""
    return 20 if device == "cuda" else 1


def draw(random: np.random.Generator, *shape: int) -> Array:
    """Bit patterns of bfloat16 numbers from a normal distribution, cut and not rounded."""
    values = random.standard_normal(shape, dtype=np.float32)
    bits: Array = (values.view(np.uint32) >> 16).astype(np.uint16)
    return bits


def exact(bits: Array) -> Array:
    """The numbers of bit patterns, float64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
