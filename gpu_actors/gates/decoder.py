"""A decoder of the Llama and Qwen3 families in float64, from the configuration's facts and the stored tensors alone."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ckb.errors import UserError
from ckb.facts import ModelFacts
from gpu_actors.checkpoint import Checkpoint
from gpu_actors.gates import formulas

Array = np.ndarray[Any, np.dtype[Any]]


class Decoder:
    """Teacher-forced logits in float64. Weights stream through layer by layer: one pass serves all sequences."""

    def __init__(self, facts: ModelFacts, checkpoint: Path):
        if facts.rope_type != "default" or facts.activation != "silu" or facts.sliding_window:
            raise UserError(
                f"the model gate has no formula for rope {facts.rope_type!r}, activation {facts.activation!r} and "
                f"sliding window {facts.sliding_window!r}; it knows default, silu and none"
            )
        self.facts = facts
        self.weights = Checkpoint(checkpoint)

    def logits(self, sequences: list[list[int]]) -> Array:
        """Logits of every position of every sequence, [sum of lengths, vocab]."""
        table = self.weights.tensor("model.embed_tokens.weight")
        x = table[np.concatenate([np.asarray(s) for s in sequences])]
        bounds = np.cumsum([0, *map(len, sequences)])
        for layer in range(self.facts.layers):
            x = self._layer(x, f"model.layers.{layer}.", bounds)
        x = formulas.rms_norm(x, self.weights.tensor("model.norm.weight"), self.facts.norm_eps)
        head = table if self.facts.tied_head else self.weights.tensor("lm_head.weight")
        found: Array = x @ head.T
        return found

    def _layer(self, x: Array, prefix: str, bounds: Array) -> Array:
        facts = self.facts
        normed = self._norm(x, prefix + "input_layernorm.weight")
        q = self._linear(normed, prefix + "self_attn.q_proj").reshape(len(x), facts.heads, facts.head_dim)
        k = self._linear(normed, prefix + "self_attn.k_proj").reshape(len(x), facts.kv_heads, facts.head_dim)
        v = self._linear(normed, prefix + "self_attn.v_proj").reshape(len(x), facts.kv_heads, facts.head_dim)
        if facts.qk_norm:
            q = self._norm(q, prefix + "self_attn.q_norm.weight")
            k = self._norm(k, prefix + "self_attn.k_norm.weight")
        mixed = []
        for start, end in pairwise(bounds):
            rotated = (formulas.rope(t[start:end], 0, facts.rope_theta) for t in (q, k))
            query, keys = next(rotated), next(rotated)
            values = v[start:end].transpose(1, 0, 2)
            mixed.append(formulas.attention(query, keys.transpose(1, 0, 2), values, 0)[0])
        x = x + self._linear(np.concatenate(mixed), prefix + "self_attn.o_proj")
        normed = self._norm(x, prefix + "post_attention_layernorm.weight")
        gate, up = (self._linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
        return x + self._linear(formulas.silu(gate) * up, prefix + "mlp.down_proj")

    def _norm(self, x: Array, name: str) -> Array:
        return formulas.rms_norm(x, self.weights.tensor(name), self.facts.norm_eps)

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self.weights.tensor(name + ".weight").T
        return y + self.weights.tensor(name + ".bias") if name + ".bias" in self.weights else y
