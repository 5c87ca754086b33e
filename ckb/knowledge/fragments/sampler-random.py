# ---
# contract: sampler
# title: Temperature, top-k and top-p
# applies_to: platform.accelerator == 'cpu' and workload.decoding == 'sample'
# ---
from collections.abc import Mapping
from typing import Any

import torch


class Sampler:
    """Draws from the distribution that temperature, top-k and top-p leave; temperature 0 takes the most likely."""

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None):
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> "Sampler":
        """The sampler that an API request asks for. Raises ValueError for a value out of range."""
        ranges = {"temperature": (float, 1.0, 0, 2), "top_k": (int, 0, 0, 1 << 30), "top_p": (float, 1.0, 1e-6, 1)}
        values: dict[str, Any] = {"seed": body.get("seed")}
        if not isinstance(values["seed"], int | None):
            raise ValueError(f"seed must be an integer, not {values['seed']!r}")
        for name, (kind, default, least, most) in ranges.items():
            given = body.get(name)
            values[name] = default if given is None else given
            if isinstance(given, bool) or not isinstance(values[name], kind | int) or not least <= values[name] <= most:
                raise ValueError(f"{name} must be a number from {least} to {most}, not {given!r}")
        return cls(**values)

    def __call__(self, logits: torch.Tensor) -> int:
        """The next token after logits [VOCAB]."""
        if self.temperature == 0:
            return int(logits.argmax())
        chances, tokens = torch.softmax(logits / self.temperature, dim=-1).sort(descending=True, stable=True)
        if self.top_k:
            chances, tokens = chances[: self.top_k], tokens[: self.top_k]
        above = chances.cumsum(0) - chances  # what lies above each token: the first always stays
        chances = chances.where(above < self.top_p * chances.sum(), 0.0)
        return int(tokens[torch.multinomial(chances, 1, generator=self.generator)])
