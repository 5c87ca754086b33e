# ---
# contract: decoder
# title: Pre-norm decoder layers with residual sums, on the device
# applies_to: platform.accelerator == 'cuda'
# constants: [LAYERS]
# ---
import torch
import torch.nn.functional as F

from .cache import KVCache
from .kernels import DEVICE, DTYPE, linear, rms_norm
from .weights import NORMS, PROJECTIONS, Weights


class Decoder:
    """The layers between token ids and logits."""

    def __init__(self, weights: Weights):
        tensors, parts = weights.tensors, (*NORMS, *PROJECTIONS)
        self.embedding, self.norm, self.output = tensors["embedding"], tensors["norm"], tensors["head"]
        self.layers = [{part: tensors[f"layers.{index}.{part}"] for part in parts} for index in range(LAYERS)]

    def forward(self, tokens: torch.Tensor, cache: KVCache, start: int) -> torch.Tensor:
        """Hidden states [M, HIDDEN] after the final norm, of tokens [M] at positions start .. start + M - 1."""
        x = F.embedding(tokens.to(DEVICE), self.embedding).to(DTYPE)
        for index, layer in enumerate(self.layers):
            x = x + attend(layer, rms_norm(x, layer["input_norm"]), cache, index, start)
            x = x + mlp(layer, rms_norm(x, layer["post_norm"]))
        return rms_norm(x, self.norm)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [M, VOCAB] in float32 of hidden [M, HIDDEN]."""
        return linear(hidden, self.output).float()
