"""The float64 decoder of gates/decoder.py in torch, for models that are too large for a processor: same formulas, same
order of roundings. Runs in a child process of its own, which executes no candidate's code and knows no candidate.

Weights cross to the device one by one in the format in which they are stored, and are widened there.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

TABLE = "model.embed_tokens.weight"
BLOCK = 16_384
"""Rows of the head that are widened to float64 at a time."""


class Stored:
    """The tensors of a checkpoint folder, each read when it is asked for."""

    def __init__(self, folder: Path, device: str):
        self._device = device
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file: Any = safe_open(path, "pt")
            self._files |= dict.fromkeys(file.keys(), file)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str) -> torch.Tensor:
        return self._wide(self._files[name].get_tensor(name))

    def rows(self, name: str, start: int, end: int) -> torch.Tensor:
        return self._wide(self._files[name].get_slice(name)[start:end])

    def lookup(self, name: str, tokens: list[int]) -> torch.Tensor:
        return self._wide(self._files[name].get_tensor(name)[torch.tensor(tokens)])

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device).double()


class Decoder:
    """One pass over the layers for all rows: `length` of them exactly, then as many for each dtype, to which they are
    rounded after each operator."""

    def __init__(self, stored: Stored, facts: dict[str, Any], dtypes: list[torch.dtype], length: int):
        """`facts`: fields of ckb.facts.ModelFacts."""
        self.stored, self.facts, self.dtypes, self.length = stored, facts, dtypes, length

    def logits(self, sequences: list[list[int]]) -> torch.Tensor:
        x = self.norm(self.hidden(sequences), "model.norm.weight")
        head, vocab = TABLE if self.facts["tied_head"] else "lm_head.weight", self.facts["vocab"]
        blocks = (self.stored.rows(head, n, min(n + BLOCK, vocab)) for n in range(0, vocab, BLOCK))
        return self.rounded(torch.cat([x @ block.T for block in blocks], dim=1))

    def hidden(self, sequences: list[list[int]]) -> torch.Tensor:
        """What leaves the last layer, [rows, hidden]."""
        x = self.rounded(self.stored.lookup(TABLE, [token for sequence in sequences for token in sequence]))
        bounds = np.cumsum([0, *map(len, sequences)]).tolist()
        for layer in range(self.facts["layers"]):
            x = self.layer(x, f"model.layers.{layer}.", bounds)
        return x

    def layer(self, x: torch.Tensor, prefix: str, bounds: list[int]) -> torch.Tensor:
        x = self.rounded(x + self.attended(self.norm(x, prefix + "input_layernorm.weight"), prefix, bounds))
        return self.rounded(x + self.mlp(self.norm(x, prefix + "post_attention_layernorm.weight"), prefix))

    def attended(self, normed: torch.Tensor, prefix: str, bounds: list[int]) -> torch.Tensor:
        heads, kv_heads, dim = (self.facts[name] for name in ("heads", "kv_heads", "head_dim"))
        q = self.linear(normed, prefix + "self_attn.q_proj").view(len(normed), heads, dim)
        k = self.linear(normed, prefix + "self_attn.k_proj").view(len(normed), kv_heads, dim)
        v = self.linear(normed, prefix + "self_attn.v_proj").view(len(normed), kv_heads, dim)
        if self.facts["qk_norm"]:
            q = self.norm(q, prefix + "self_attn.q_norm.weight")
            k = self.norm(k, prefix + "self_attn.k_norm.weight")
        q, k = self.turned(q, k, bounds)
        return self.linear(self.mixed(q, k, v, bounds), prefix + "self_attn.o_proj")

    def turned(self, q: torch.Tensor, k: torch.Tensor, bounds: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        theta = self.facts["rope_theta"]
        q, k = (self.rounded(torch.cat([rope(t[a:b], theta) for a, b in pairwise(bounds)])) for t in (q, k))
        return q, k

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: list[int]) -> torch.Tensor:
        return self.rounded(torch.cat([attention(q[a:b], k[a:b], v[a:b]) for a, b in pairwise(bounds)]))

    def mlp(self, normed: torch.Tensor, prefix: str) -> torch.Tensor:
        gate, up = (self.linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
        gated = self.rounded(gate / (1.0 + torch.exp(-gate)) * up)
        return self.linear(gated, prefix + "mlp.down_proj")

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.sqrt(x.square().mean(-1, keepdim=True) + self.facts["norm_eps"])
        return self.rounded(x / scale * self.stored.tensor(name))

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self.stored.tensor(name + ".weight").T
        return self.rounded(y + self.stored.tensor(name + ".bias") if name + ".bias" in self.stored else y)

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        for part, dtype in zip(x.split(self.length)[1:], self.dtypes, strict=True):
            part.copy_(part.float().to(dtype))
        return x


def rope(x: torch.Tensor, theta: float, start: int = 0) -> torch.Tensor:
    """x [M, heads, head_dim] at positions from `start`, the first half of a head paired with its second."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(start, start + len(x), dtype=x.dtype, device=x.device)[:, None, None] * frequency
    first, second, cos, sin = x[..., :half], x[..., half:], angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one sequence over itself: q [M, heads, d], k and v [M, kv_heads, d] -> [M, heads * d]."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    return torch.einsum("hmt,thd->mhd", shares(q, k), v).reshape(len(q), -1)


def shares(q: torch.Tensor, k: torch.Tensor, ahead: int = 0) -> torch.Tensor:
    """What each query takes of each position up to `ahead` after its own: q and k [M, heads, d] -> [heads, M, M]."""
    scores = torch.einsum("mhd,thd->hmt", q, k) / math.sqrt(q.shape[2])
    hidden = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).triu(1 + ahead)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


def expected(
    checkpoint: str, facts: dict[str, Any], dtypes: list[str], sequences: list[list[int]], device: str
) -> dict[str, Any]:
    """`logits` float64 [sum of lengths, vocab]; `roundings` by sequence and dtype: root mean square error of the worst
    position when activations are rounded to it (gates/decoder.py, Expected)."""
    torch.set_grad_enabled(False)
    lengths = list(map(len, sequences))
    kinds = [getattr(torch, dtype) for dtype in dtypes]
    decoder = Decoder(Stored(Path(checkpoint), device), facts, kinds, sum(lengths))
    exact, *shadows = decoder.logits(sequences * (1 + len(kinds))).chunk(1 + len(kinds))
    errors = [(exact - shadow).square().mean(-1).sqrt().split(lengths) for shadow in shadows]
    worst = [[float(by_dtype[i].max()) for by_dtype in errors] for i in range(len(sequences))]
    return {"logits": exact.cpu().numpy(), "roundings": worst}


OPERATIONS = {"expected": expected}
