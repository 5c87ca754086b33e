from collections.abc import Iterator
from pathlib import Path

import torch

from .cache import KVCache
from .facts import EOS_TOKENS, MAX_CONTEXT
from .kernels import setup
from .model import Model
from .sampler import Sampler
from .tokenizer import Tokenizer
from .weights import load_weights


class Engine:
    def __init__(self, checkpoint: Path, model: Model):
        self.model = model
        self.tokenizer = Tokenizer(checkpoint)

    @classmethod
    def load(cls, checkpoint: str | Path) -> "Engine":
        setup()
        return cls(Path(checkpoint), Model(load_weights(str(checkpoint))))

    def generate(self, prompts: list[list[int]], max_new_tokens: int, ignore_eos: bool = False) -> list[list[int]]:
        return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]

    def stream(self, prompt: list[int], max_new_tokens: int, ignore_eos: bool = False) -> Iterator[int]:
        limit = MAX_CONTEXT - max_new_tokens
        if not 1 <= len(prompt) <= limit:
            raise ValueError(f"a prompt may have 1 to {limit} tokens, this one has {len(prompt)}")
        return self.tokens(prompt, max_new_tokens, () if ignore_eos else EOS_TOKENS)

    def tokens(self, prompt: list[int], count: int, ends: tuple[int, ...]) -> Iterator[int]:
        cache, sampler = KVCache(len(prompt) + count), Sampler()
        logits = self.model.head(self.model.forward(torch.tensor(prompt), cache, 0)[-1:])[0]
        for position in range(len(prompt), len(prompt) + count):
            token = sampler(logits)
            yield token
            if token in ends or position == len(prompt) + count - 1:
                return
            logits = self.model.step(token, cache, position)

    def logits(self, tokens: list[int]) -> torch.Tensor:
        return self.model.head(self.model.forward(torch.tensor(tokens), KVCache(len(tokens)), 0))
