"""The decoder of exact.py with a fault: what each of several faults does to a checkpoint's logits, in one pass.

All copies of the rows go through the layers together, each with mathematics of its own (fields of gpu_actors.faults,
Mathematics), so a checkpoint of 16 GB is read once for all of them. Runs in a child process without generated code.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from .exact import Decoder, Stored, rope, shares

Fault = dict[str, Any]
"""gpu_actors.faults.Mathematics, and `dtype`: what activations are rounded to after each operator, or None."""
PLUS = {"stored": 0.0, "plus one": 1.0, "ones": 1.0}
"""What is added to a norm's weights; of `ones` nothing else is left."""


class FaultyDecoder(Decoder):
    """One pass over the layers for all copies of some sequences. Without a fault a copy is what exact.py computes."""

    def __init__(self, stored: Stored, facts: dict[str, Any], copies: list[Fault], lengths: list[int]):
        super().__init__(stored, facts, [], sum(lengths))
        self.copies, self.count = copies, len(lengths)
        self.entropy: list[list[torch.Tensor]] = [[] for _ in copies]
        """By copy: of each head's attention at each position but the first, over the logarithm of what it may see."""

    def rows(self, field: Callable[[Fault], float], like: torch.Tensor) -> torch.Tensor:
        """A number of each copy, for each of its rows, broadcast over the other axes of `like`."""
        numbers = torch.tensor([float(field(copy)) for copy in self.copies], dtype=like.dtype, device=like.device)
        return numbers.repeat_interleave(self.length).view(-1, *[1] * (like.dim() - 1))

    def layer(self, x: torch.Tensor, prefix: str, bounds: list[int]) -> torch.Tensor:
        mixed = self.attended(self.norm(x, prefix + "input_layernorm.weight"), prefix, bounds)
        x = self.rounded(x * self.rows(lambda copy: copy["residual"], x) + mixed)
        added = self.mlp(self.norm(x, prefix + "post_attention_layernorm.weight"), prefix)
        return self.rounded(x + self.rows(lambda copy: copy["down"], x) * added)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        eps = self.facts["norm_eps"] * self.rows(lambda copy: copy["eps"], x)
        kept = self.rows(lambda copy: copy["norm_weights"] != "ones", x)
        plus = self.rows(lambda copy: PLUS[copy["norm_weights"]], x)
        normed = x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * (self.stored.tensor(name) * kept + plus)
        if x.dim() == 3:  # heads of q or k
            normed = torch.where(self.rows(lambda copy: copy["head_norms"], x) > 0, normed, x)
        return self.rounded(normed)

    def of_each(self, bounds: list[int]) -> list[tuple[int, Fault, slice]]:
        """Each sequence: number and mathematics of its copy, and its rows."""
        places = [slice(a, b) for a, b in pairwise(bounds)]
        return [(i // self.count, self.copies[i // self.count], place) for i, place in enumerate(places)]

    def turned(self, q: torch.Tensor, k: torch.Tensor, bounds: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        base = self.facts["rope_theta"]
        each = self.of_each(bounds)
        late = [rope(q[place], base * copy["theta"], copy["query_shift"]) for _, copy, place in each]
        return self.rounded(torch.cat(late)), self.rounded(
            torch.cat([rope(k[place], base * copy["theta"]) for _, copy, place in each])
        )

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: list[int]) -> torch.Tensor:
        heads, kv_heads = q.shape[1], k.shape[1]
        every = torch.arange(heads, device=q.device)
        of = {"consecutive": every // (heads // kv_heads), "interleaved": every % kv_heads}
        found = []
        for number, copy, place in self.of_each(bounds):
            own = of[copy["groups"]]
            taken = shares(q[place] * copy["scores"], k[place][:, own], copy["ahead"])
            seen = torch.arange(2, taken.shape[1] + 1, dtype=q.dtype, device=q.device)
            self.entropy[number].append((torch.special.entr(taken).sum(-1)[:, 1:] / seen.log()).flatten())
            found.append(torch.einsum("hmt,thd->mhd", taken, v[place][:, own]).reshape(taken.shape[1], -1))
        return self.rounded(torch.cat(found))

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        for part, copy in zip(x.split(self.length), self.copies, strict=True):
            if copy["dtype"]:
                part.copy_(part.float().to(getattr(torch, copy["dtype"])))
        return x

    def median_entropy(self) -> list[float]:
        """Of each copy, over layers, heads and positions, as numpy has it: between the middle two."""
        return [float(torch.cat(parts).quantile(0.5)) for parts in self.entropy]


def decoder(
    checkpoint: str, facts: dict[str, Any], sequences: list[list[int]], copies: list[Fault], device: str
) -> FaultyDecoder:
    torch.set_grad_enabled(False)
    return FaultyDecoder(Stored(Path(checkpoint), device), facts, copies, list(map(len, sequences)))


def entropies(
    checkpoint: str, facts: dict[str, Any], sequences: list[list[int]], copies: list[Fault], device: str
) -> dict[str, Any]:
    """`entropies`: median of attention's entropy, by copy."""
    held = decoder(checkpoint, facts, sequences, copies, device)
    held.hidden(sequences * len(copies))
    return {"entropies": held.median_entropy()}


def measured(
    checkpoint: str, facts: dict[str, Any], sequences: list[list[int]], copies: list[Fault], margin: float, device: str
) -> dict[str, Any]:
    """The first copy is right; `entropy` and `repeats` are its own. By copy: `outside`, the share of positions where
    the best logit leads by over `margin` times this copy's error, at the position or in the root mean square over its
    sequence; `errors`, the root mean square of the change over that of the logits; `kl`, the mean of KL(right || copy)
    in nats."""
    held = decoder(checkpoint, facts, sequences, copies, device)
    right, *others = held.logits(sequences * len(copies)).chunk(len(copies))
    best = right.topk(2).values
    read = torch.tensor([token for sequence in sequences for token in sequence], device=right.device)
    logs = right.log_softmax(-1)
    lengths = list(map(len, sequences))
    outside, errors, kl = [], [], []
    for other in others:
        change = other - right
        bands = [torch.maximum(one, one.square().mean().sqrt()) for one in change.abs().amax(-1).split(lengths)]
        outside.append(float((best[:, 0] - best[:, 1] > margin * torch.cat(bands)).double().mean()))
        errors.append(float(change.square().mean().sqrt() / right.square().mean().sqrt()))
        kl.append(float((logs.exp() * (logs - other.log_softmax(-1))).sum(-1).mean()))
    repeats = float((right.argmax(-1) == read).double().mean())
    return {"entropy": held.median_entropy()[0], "repeats": repeats, "outside": outside, "errors": errors, "kl": kl}


OPERATIONS = {"entropies": entropies, "measured": measured}
