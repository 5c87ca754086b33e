# ---
# contract: model
# title: The decoder on one token, operator by operator
# applies_to: choice.step == 'eager'
# affects: [linear, attention, rms_norm, rope, silu_mul, head, rest]
# ---
import torch

from .cache import KVCache


class Model(Decoder):
    """The decoder, with a decode step that runs operator by operator."""

    def step(self, token: int, cache: KVCache, position: int) -> torch.Tensor:
        """Logits [VOCAB] in float32 after `token` at `position`; the cache is extended."""
        return self.head(self.forward(torch.tensor([token]), cache, position))[0]
