"""Standard faults of a decoder's mathematics, computed in float64: what each of them does to a checkpoint's logits.

A checkpoint on which a fault hardly shows can't tell a right engine from a wrong one. Random weights are such a
checkpoint unless care is taken: attention that averages over everything forgets positions, and inputs that are large
hide eps. gpu_actors.seeded writes checkpoints on which each of these shows, and its record says by how much.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from benchmarks import prompts
from ckb.errors import UserError
from ckb.facts import Dtype, Frozen, ModelFacts
from gpu_actors.gates import formulas
from gpu_actors.gates.acceptance import MARGIN
from gpu_actors.gates.compare import rms
from gpu_actors.gates.decoder import Decoder

Array = np.ndarray[Any, np.dtype[Any]]
MOST_REPEATS = 0.2
"""Share of positions that may say their own token again: greedy text that stays on one token shows no fault."""
LEAST_OUTSIDE = 0.7
"""Share of positions whose best token rounding alone must not be able to change."""
TEXTS = (96, 64, 40)
"""Tokens of the texts on which a checkpoint is measured."""


@dataclass(frozen=True)
class Mathematics:
    """What a decoder computes. At its defaults every field is right."""

    theta: float = 1.0
    """Factor on the rotary base."""
    eps: float = 1.0
    """Factor on the eps of every norm."""
    norm_weights: Literal["stored", "plus one", "ones"] = "stored"
    head_norms: bool = True
    """Whether heads of q and k are normalised, in a family that does so."""
    down: float = 1.0
    """Factor on the product of each down projection."""
    query_shift: int = 0
    """Positions by which queries are rotated too far; keys stay where they are."""
    groups: Literal["consecutive", "interleaved"] = "consecutive"
    """Which query heads share a head of keys."""
    residual: bool = True
    """Whether the input of attention is added to its output."""
    scores: float = 1.0
    """Factor on the scores before the softmax."""
    ahead: int = 0
    """Positions after its own that each query sees."""


def standard(facts: ModelFacts) -> dict[str, Mathematics]:
    """The ten faults that a checkpoint is measured by, in the variant that its family allows."""
    theta = 1e4 / facts.rope_theta if facts.rope_theta >= 2e5 else 0.01
    unit = Mathematics(head_norms=False) if facts.qk_norm else Mathematics(norm_weights="ones")
    return {
        f"theta {facts.rope_theta * theta:g}": Mathematics(theta=theta),
        "eps x 10": Mathematics(eps=10.0),
        "q_norm and k_norm missing" if facts.qk_norm else "norm weights of one": unit,
        "down projection 1% too large": Mathematics(down=1.01),
        "queries one position late": Mathematics(query_shift=1),
        "interleaved head groups": Mathematics(groups="interleaved"),
        "(1 + w) for w": Mathematics(norm_weights="plus one"),
        "residual of attention missing": Mathematics(residual=False),
        "scores over the root of twice the head": Mathematics(scores=2.0**-0.5),
        "causal mask one late": Mathematics(ahead=1),
    }


@dataclass
class Seen:
    """What one pass showed beside its logits."""

    shares: list[Array] = field(default_factory=list)
    """Entropy of each head's attention at each position but the first, over the logarithm of what it may see."""


class FaultyDecoder(Decoder):
    """The gates' float64 decoder, with other mathematics. With the default ones it computes the same."""

    def __init__(self, facts: ModelFacts, checkpoint: Path, dtype: Dtype, other: Mathematics | None = None):
        super().__init__(facts, checkpoint, dtype)
        self.other = other or Mathematics()
        self.seen = Seen()

    def logits(self, sequences: list[list[int]]) -> Array:
        """Exact logits of every position, [sum of lengths, vocab]."""
        self._length = sum(map(len, sequences))
        return self._logits(sequences)

    def with_rounding(self, sequences: list[list[int]]) -> tuple[Array, Array]:
        """Exact logits, and those with activations rounded to the compute dtype after each operator."""
        self._length = sum(map(len, sequences))
        exact, shadow = np.split(self._logits([*sequences, *sequences]), 2)
        return exact, shadow

    def _layer(self, x: Array, prefix: str, bounds: Array) -> Array:
        normed = self._norm(x, prefix + "input_layernorm.weight")
        mixed = self._rounded(np.concatenate(list(self._attend(normed, prefix + "self_attn.", bounds))))
        added = self._linear(mixed, prefix + "self_attn.o_proj")
        x = self._rounded(x + added if self.other.residual else added)
        normed = self._norm(x, prefix + "post_attention_layernorm.weight")
        gate, up = (self._linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
        down = self._linear(self._rounded(formulas.silu(gate) * up), prefix + "mlp.down_proj")
        return self._rounded(x + self.other.down * down)

    def _attend(self, x: Array, prefix: str, bounds: Array) -> Iterator[Array]:
        """The mixed values of each sequence."""
        facts, other = self.facts, self.other
        sizes = {"q": facts.heads, "k": facts.kv_heads, "v": facts.kv_heads}
        heads = {
            name: self._linear(x, f"{prefix}{name}_proj").reshape(len(x), count, facts.head_dim)
            for name, count in sizes.items()
        }
        if facts.qk_norm and other.head_norms:
            heads |= {name: self._norm(heads[name], f"{prefix}{name}_norm.weight") for name in "qk"}
        for name, shift in (("q", other.query_shift), ("k", 0)):
            turned = [
                formulas.rope(heads[name][a:b], shift, facts.rope_theta * other.theta) for a, b in pairwise(bounds)
            ]
            heads[name] = self._rounded(np.concatenate(turned))
        for a, b in pairwise(bounds):
            yield self._mix(*(heads[name][a:b] for name in "qkv"))

    def _mix(self, q: Array, k: Array, v: Array) -> Array:
        """Attention of one sequence: q [M, heads, d], k and v [M, kv_heads, d]; [M, heads * d]."""
        facts, length = self.facts, len(q)
        group = facts.heads // facts.kv_heads
        of = np.arange(facts.heads) // group
        if self.other.groups == "interleaved":
            of = np.arange(facts.heads) % facts.kv_heads
        scores = np.einsum("mhd,thd->hmt", q, k[:, of]) * (self.other.scores * facts.head_dim**-0.5)
        hidden = np.arange(length)[None, :] > np.arange(length)[:, None] + self.other.ahead
        weights = np.exp(np.where(hidden, -np.inf, scores - scores.max(-1, keepdims=True)))
        weights /= weights.sum(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(weights * np.log(weights), axis=-1)
        self.seen.shares.append(entropy[:, 1:] / np.log(np.arange(2, length + 1)))
        mixed: Array = np.einsum("hmt,thd->mhd", weights, v[:, of]).reshape(length, -1)
        return mixed

    def _norm(self, x: Array, name: str) -> Array:
        weight = self.weights.tensor(name)
        match self.other.norm_weights:
            case "plus one":
                weight = 1.0 + weight
            case "ones":
                weight = np.ones_like(weight)
        return self._rounded(formulas.rms_norm(x, weight, self.facts.norm_eps * self.other.eps))


# --- what a checkpoint shows of them ----------------------------------------------------------------------------------


class Effect(Frozen):
    """What one standard fault does to the logits of this checkpoint."""

    fault: str
    error: float
    """Root mean square of the change over that of the logits."""
    kl: float
    """Mean over positions of KL(right || wrong), in nats."""


class Measures(Frozen):
    """Taken on real text by the float64 decoder."""

    tokens: int
    entropy: float
    """Median over layers, heads and positions of attention's entropy over the logarithm of what it may see."""
    repeats: float
    """Share of positions whose best token is the one that was just read."""
    outside: dict[Dtype, float]
    """Compute dtype -> share of positions whose best logit leads by more than the tie band of that dtype."""
    effects: tuple[Effect, ...] = Field(min_length=10)


def texts(folder: Path, facts: ModelFacts) -> list[list[int]]:
    return prompts.cut(folder, [min(length, facts.max_positions) for length in TEXTS], seed=0)


def attention_entropy(folder: Path, facts: ModelFacts) -> float:
    """Median over layers, heads and positions, in units of the largest that each position allows."""
    decoder = FaultyDecoder(facts, folder, "float32")
    decoder.logits(texts(folder, facts))
    return float(np.median(np.concatenate([share.ravel() for share in decoder.seen.shares])))


def measured(folder: Path, facts: ModelFacts, entropy: float) -> Measures:
    """Raises UserError if rounding alone could change the best token of too many positions."""
    asked = texts(folder, facts)
    outside: dict[Dtype, float] = {}
    dtypes: tuple[Dtype, ...] = ("float32", "bfloat16")
    for dtype in dtypes:
        right, shadow = FaultyDecoder(facts, folder, dtype).with_rounding(asked)
        best = np.partition(right, -2, axis=-1)[:, -2:]
        outside[dtype] = float((best[:, 1] - best[:, 0] > MARGIN * np.abs(right - shadow).max(-1)).mean())
        if outside[dtype] < LEAST_OUTSIDE:
            raise UserError(f"{folder}: {outside[dtype]:.0%} of the positions lie outside the tie band of {dtype}, at "
                            f"least {LEAST_OUTSIDE:.0%} must: use another seed, or less sharpness")  # fmt: skip
    repeats = float((right.argmax(-1) == np.concatenate(asked)).mean())
    if repeats > MOST_REPEATS:
        raise UserError(
            f"{folder}: {repeats:.0%} of the positions repeat their own token, at most {MOST_REPEATS:.0%} may"
        )
    effects = tuple(
        effect(name, right, FaultyDecoder(facts, folder, "float32", other).logits(asked))
        for name, other in standard(facts).items()
    )
    return Measures(tokens=len(right), entropy=entropy, repeats=repeats, outside=outside, effects=effects)


def effect(fault: str, right: Array, wrong: Array) -> Effect:
    logs = [rows - rows.max(-1, keepdims=True) for rows in (right, wrong)]
    p, q = (rows - np.log(np.exp(rows).sum(-1, keepdims=True)) for rows in logs)
    kl = float((np.exp(p) * (p - q)).sum(-1).mean())
    return Effect(fault=fault, error=rms(wrong - right) / rms(right), kl=kl)
