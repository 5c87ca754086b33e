# ---
# contract: model
# title: One call of the compiled decode program
# applies_to: choice.step == 'compiled'
# constants: [VOCAB]
# affects: [linear, attention, rms_norm, rope, silu_mul, head, rest]
# ---
import torch

from .cache import KVCache
from .kernels import LAYER_PARTS, call, rope_table
from .weights import NORMS, Weights


class Model(Decoder):
    """The decoder, with a decode step that is one call of a compiled program."""

    def __init__(self, weights: Weights):
        super().__init__(weights)
        self.rope = [table.float() for table in rope_table()]
        self.final_norm = self.norm.float()
        self.parts = [layer | {part: layer[part].float() for part in NORMS} | matrices(layer) for layer in self.layers]
        self.addresses = torch.tensor([[part[name].data_ptr() for name in LAYER_PARTS] for part in self.parts])

    def step(self, token: int, cache: KVCache, position: int) -> torch.Tensor:
        """Logits [VOCAB] in float32 after `token` at `position`; the cache is extended."""
        if position >= cache.capacity:
            raise ValueError(f"position {position} is past the cache's capacity of {cache.capacity}")
        logits = torch.empty(VOCAB)
        weights = (self.addresses, self.embedding, self.final_norm, self.output, *self.rope)
        call("decode", *weights, cache.k, cache.v, *cache.k.stride()[:3], token, position, logits)
        return logits
