# ---
# contract: engine
# title: Prefill in chunks, then one step a token
# applies_to: workload.kind == 'single_stream'
# parameters:
#   PREFILL_CHUNK: [1024, 256, 4096]
# constants: [VOCAB, MAX_CONTEXT, EOS_TOKENS]
# affects: [prefill]
# ---
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch

from .cache import KVCache
from .kernels import setup
from .model import Model
from .sampler import Sampler
from .weights import load_weights


class Engine:
    """Generates from one checkpoint, one sequence at a time."""

    def __init__(self, checkpoint: Path, model: Model):
        self.checkpoint, self.model = checkpoint, model

    @classmethod
    def load(cls, checkpoint: str | Path) -> "Engine":
        """Build or load the operators, then the weights. Raises ValueError for a checkpoint of another model."""
        setup()
        return cls(Path(checkpoint), Model(load_weights(str(checkpoint))))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.checkpoint)

    def check(self, prompt: list[int], max_new_tokens: int) -> None:
        """Raise ValueError for a prompt that is empty, too long or no list of token ids of this model."""
        if not 1 <= len(prompt) <= MAX_CONTEXT - max_new_tokens:
            most = f"at most {max(0, MAX_CONTEXT - max_new_tokens)} as {max_new_tokens} new ones follow"
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit: it has at least 1, {most}")
        if min(prompt) < 0 or max(prompt) >= VOCAB:
            raise ValueError(f"token ids lie between 0 and {VOCAB - 1}, not {min(prompt)} and {max(prompt)}")

    def generate(self, prompts: list[list[int]], max_new_tokens: int, ignore_eos: bool = False) -> list[list[int]]:
        """The new tokens of each prompt, an end token included."""
        return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]

    def stream(
        self, prompt: list[int], max_new_tokens: int, ignore_eos: bool = False, sampler: Sampler | None = None
    ) -> Iterator[int]:
        """Yield each new token as soon as it is known. Raises ValueError at once for a prompt that does not fit."""
        self.check(prompt, max_new_tokens)
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        return self._tokens(prompt, max_new_tokens, () if ignore_eos else EOS_TOKENS, sampler or Sampler())

    def _tokens(self, prompt: list[int], count: int, ends: tuple[int, ...], sampler: Sampler) -> Iterator[int]:
        cache = KVCache(len(prompt) + count)
        *_, hidden = self._prefill(prompt, cache)
        token = sampler(self.model.head(hidden[-1:])[0])
        yield token
        for position in range(len(prompt), len(prompt) + count - 1):
            if token in ends:
                return
            token = sampler(self.model.step(token, cache, position))
            yield token

    def _prefill(self, prompt: list[int], cache: KVCache) -> Iterator[torch.Tensor]:
        for start in range(0, len(prompt), PREFILL_CHUNK):
            yield self.model.forward(torch.tensor(prompt[start : start + PREFILL_CHUNK]), cache, start)

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """Teacher-forced logits [T, VOCAB] in float32: position i predicts token i + 1."""
        self.check(tokens, 0)
        return torch.cat([self.model.head(hidden) for hidden in self._prefill(tokens, KVCache(len(tokens)))])
