"""A decoder of the Llama and Qwen3 families in float64, from the configuration's facts and the stored tensors alone.

Beside the exact answer it tells how much rounding a sequence makes of itself: the same sequence goes through a second
time, its activations rounded to the compute dtype after each operator. Some contexts amplify a last bit thousandfold
(drawn tokens in particular), and no fixed bound is right for these and for the others.

numpy computes it here where the Target's device is the processor. For another device, whose models are too large for
that, a process of ours computes the same in torch there (drivers/exact.py); a test holds the two together.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ckb.errors import UserError
from ckb.facts import Dtype, Facts, ModelFacts
from gpu_actors.checkpoint import Checkpoint
from gpu_actors.child import DRIVERS, Child, ChildFailure
from gpu_actors.gates import formulas
from gpu_actors.gates.compare import rms, rounded
from gpu_actors.reference import ReferenceFailure
from gpu_actors.sandbox import UNTIMED, Confinement

Array = np.ndarray[Any, np.dtype[Any]]
EXACT = DRIVERS / "exact.py"
"""Driver of the same decoder in torch."""
TABLE = "model.embed_tokens.weight"
BLOCK = 16_384
"""Rows of the head that are widened to float64 at a time."""


@dataclass(frozen=True)
class Expected:
    """What is expected of one sequence."""

    logits: Array
    """float64 [length, vocab]"""
    rounding: float
    """Root mean square error of the worst position when activations are rounded to the compute dtype."""


def expected(facts: Facts, checkpoint: Path, sequences: list[list[int]]) -> list[Expected]:
    """The decoder's word on each sequence. Raises UserError for a model of which it has no formula."""
    if facts.platform.accelerator == "cpu":
        return Decoder(facts.model, checkpoint, facts.workload.dtype).expected(sequences)
    return expected_on(facts.platform.accelerator, facts, checkpoint, sequences)


def expected_on(device: str, facts: Facts, checkpoint: Path, sequences: list[list[int]]) -> list[Expected]:
    """The same by torch on a device, in a process that runs no generated code and so is not confined.

    Raises ReferenceFailure: that it can't answer is no candidate's fault.
    """
    refuse_unknown(facts.model)
    arguments = {"checkpoint": str(checkpoint), "dtype": facts.workload.dtype, "sequences": sequences, "device": device}
    with Child(EXACT, Confinement(mode="none", environment=UNTIMED), forbidden=()) as child:
        try:
            reply = child.call("expected", 600.0, facts=facts.model.model_dump(mode="json"), **arguments)
        except ChildFailure as failure:
            what = f"the float64 decoder of {checkpoint} on {device}"
            raise ReferenceFailure(f"{what}: {failure}\n{failure.trace}") from failure
    parts = np.split(reply.array("logits"), np.cumsum(list(map(len, sequences)))[:-1])
    return [Expected(*pair) for pair in zip(parts, reply.value("rounding", list[float]), strict=True)]


def refuse_unknown(facts: ModelFacts) -> None:
    """Raises UserError for a model of which there is no formula here."""
    if facts.rope_type != "default" or facts.activation != "silu" or facts.sliding_window:
        raise UserError(
            f"the model gate has no formula for rope {facts.rope_type!r}, activation {facts.activation!r} and "
            f"sliding window {facts.sliding_window!r}; it knows default, silu and none"
        )


class Decoder:
    """Teacher-forced logits. Weights stream through layer by layer: one pass serves all sequences, twice each."""

    def __init__(self, facts: ModelFacts, checkpoint: Path, dtype: Dtype):
        refuse_unknown(facts)
        self.facts = facts
        self.weights = Checkpoint(checkpoint)
        self._dtype = dtype
        self._exact = 0
        """Rows of the pass that stay exact; those behind them are rounded."""

    def expected(self, sequences: list[list[int]]) -> list[Expected]:
        """What each sequence's logits are, and how far rounding alone may take them."""
        lengths = [len(sequence) for sequence in sequences]
        self._exact = sum(lengths)
        rows = self._logits([*sequences, *sequences])
        parts = np.split(rows, np.cumsum(lengths + lengths)[:-1])
        exact, shadow = parts[: len(lengths)], parts[len(lengths) :]
        return [
            Expected(logits, max(rms(row) for row in logits - other))
            for logits, other in zip(exact, shadow, strict=True)
        ]

    def _logits(self, sequences: list[list[int]]) -> Array:
        x = self._rounded(self.weights.rows(TABLE, np.concatenate([np.asarray(s) for s in sequences])))
        bounds = np.cumsum([0, *map(len, sequences)])
        for layer in range(self.facts.layers):
            x = self._layer(x, f"model.layers.{layer}.", bounds)
        x = self._norm(x, "model.norm.weight")
        head = TABLE if self.facts.tied_head else "lm_head.weight"
        blocks = (self.weights.rows(head, slice(n, n + BLOCK)) for n in range(0, self.facts.vocab, BLOCK))
        return self._rounded(np.concatenate([x @ block.T for block in blocks], axis=1))

    def _layer(self, x: Array, prefix: str, bounds: Array) -> Array:
        facts = self.facts
        normed = self._norm(x, prefix + "input_layernorm.weight")
        q = self._linear(normed, prefix + "self_attn.q_proj").reshape(len(x), facts.heads, facts.head_dim)
        k = self._linear(normed, prefix + "self_attn.k_proj").reshape(len(x), facts.kv_heads, facts.head_dim)
        v = self._linear(normed, prefix + "self_attn.v_proj").reshape(len(x), facts.kv_heads, facts.head_dim)
        if facts.qk_norm:
            q = self._norm(q, prefix + "self_attn.q_norm.weight")
            k = self._norm(k, prefix + "self_attn.k_norm.weight")
        q, k = (
            self._rounded(np.concatenate([formulas.rope(t[a:b], 0, facts.rope_theta) for a, b in pairwise(bounds)]))
            for t in (q, k)
        )
        mixed = [
            formulas.attention(q[a:b], k[a:b].transpose(1, 0, 2), v[a:b].transpose(1, 0, 2), 0)[0]
            for a, b in pairwise(bounds)
        ]
        x = self._rounded(x + self._linear(self._rounded(np.concatenate(mixed)), prefix + "self_attn.o_proj"))
        normed = self._norm(x, prefix + "post_attention_layernorm.weight")
        gate, up = (self._linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
        return self._rounded(x + self._linear(self._rounded(formulas.silu(gate) * up), prefix + "mlp.down_proj"))

    def _norm(self, x: Array, name: str) -> Array:
        return self._rounded(formulas.rms_norm(x, self.weights.tensor(name), self.facts.norm_eps))

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self.weights.tensor(name + ".weight").T
        return self._rounded(y + self.weights.tensor(name + ".bias") if name + ".bias" in self.weights else y)

    def _rounded(self, x: Array) -> Array:
        x[self._exact :] = rounded(x[self._exact :], self._dtype)
        return x
