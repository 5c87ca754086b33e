# ---
# contract: sampler
# title: The most likely token
# applies_to: workload.decoding == 'greedy'
# ---
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sampler:
    """Picks the most likely token, the lowest id among equals."""

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> "Sampler":
        """The sampler that an API request asks for. Raises ValueError for one that this engine can't give."""
        if body.get("temperature"):
            raise ValueError(f"this engine decodes greedily: temperature must be 0, not {body['temperature']!r}")
        return cls()

    def __call__(self, logits: torch.Tensor) -> int:
        """The next token after logits [VOCAB]."""
        return int(logits.argmax())
