"""A decoder of the Llama and Qwen3 families in float64, from the configuration's facts and the stored tensors alone.

Beside the exact answer it tells how much rounding a sequence makes of itself: the same sequence goes through a second
time, its activations rounded to the compute dtype after each operator. Some contexts amplify a last bit thousandfold
(drawn tokens in particular), and no fixed bound is right for these and for the others.

numpy computes it here where the Target's device is the processor. For another device, whose models are too large for
that, a process of ours computes the same in torch there (drivers/exact.py); a test holds the two together.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ckb.errors import UserError
from ckb.facts import Dtype, Facts, ModelFacts
from gpu_actors.checkpoint import Checkpoint
from gpu_actors.child import DRIVERS, Child, ChildFailure
from gpu_actors.gates import blas, formulas
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
    roundings: dict[str, float]
    """Dtype -> root mean square error of the worst position when activations are rounded to it."""


def expected(facts: Facts, checkpoint: Path, sequences: list[list[int]], dtypes: tuple[Dtype, ...]) -> list[Expected]:
    """The decoder's word on each sequence, and how far rounding to each dtype takes it. Raises UserError for a model of
    which it has no formula."""
    if facts.platform.accelerator == "cpu":
        return Decoder(facts.model, checkpoint, *dtypes).expected(sequences)
    return expected_on(facts.platform.accelerator, facts.model, checkpoint, sequences, dtypes)


def expected_on(
    device: str, facts: ModelFacts, checkpoint: Path, sequences: list[list[int]], dtypes: tuple[Dtype, ...]
) -> list[Expected]:
    """The same by torch on a device, in a process that runs no generated code and so is not confined.

    Raises ReferenceFailure: that it can't answer is no candidate's fault.
    """
    refuse_unknown(facts)
    arguments = {"checkpoint": str(checkpoint), "dtypes": dtypes, "sequences": sequences, "device": device}
    with Child(EXACT, Confinement(mode="none", environment=UNTIMED), forbidden=()) as child:
        try:
            reply = child.call("expected", 600.0, facts=facts.model_dump(mode="json"), **arguments)
        except ChildFailure as failure:
            what = f"the float64 decoder of {checkpoint} on {device}"
            raise ReferenceFailure(f"{what}: {failure}\n{failure.trace}") from failure
    parts = np.split(reply.array("logits"), np.cumsum(list(map(len, sequences)))[:-1])
    worst = reply.value("roundings", list[list[float]])
    return [
        Expected(part, dict(zip(dtypes, by_dtype, strict=True))) for part, by_dtype in zip(parts, worst, strict=True)
    ]


def refuse_unknown(facts: ModelFacts) -> None:
    """Raises UserError for a model of which there is no formula here."""
    if facts.rope_type != "default" or facts.activation != "silu" or facts.sliding_window:
        raise UserError(
            f"the model gate has no formula for rope {facts.rope_type!r}, activation {facts.activation!r} and "
            f"sliding window {facts.sliding_window!r}; it knows default, silu and none"
        )


class Decoder:
    """Teacher-forced logits. Weights stream through layer by layer: one pass serves all sequences, once exactly and
    once for each dtype."""

    def __init__(self, facts: ModelFacts, checkpoint: Path, *dtypes: Dtype):
        refuse_unknown(facts)
        self.facts = facts
        self.weights = Checkpoint(checkpoint)
        self._dtypes = dtypes
        self._length = 0
        """Rows of one of the pass's copies: the first stays exact, each later one is rounded to its dtype."""

    def expected(self, sequences: list[list[int]]) -> list[Expected]:
        """What each sequence's logits are, and how far rounding alone may take them."""
        lengths = [len(sequence) for sequence in sequences]
        self._length = sum(lengths)
        with blas.threads(max(1, (os.cpu_count() or 1) // 2)):  # the other half is the candidate's
            rows = self._logits(sequences * (1 + len(self._dtypes)))
        copies = np.split(rows, 1 + len(self._dtypes))
        exact, *shadows = (np.split(part, np.cumsum(lengths)[:-1]) for part in copies)
        return [
            Expected(
                logits,
                {
                    dtype: max(rms(row) for row in logits - shadow[i])
                    for dtype, shadow in zip(self._dtypes, shadows, strict=True)
                },
            )
            for i, logits in enumerate(exact)
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
        for i, dtype in enumerate(self._dtypes, 1):
            part = slice(i * self._length, (i + 1) * self._length)
            x[part] = rounded(x[part], dtype)
        return x
