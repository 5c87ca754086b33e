# ---
# contract: weights
# title: Each tensor to the device by itself, packed there
# applies_to: platform.accelerator == 'cuda'
# constants: [LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB]
# ---
from pathlib import Path
from typing import Any

import torch

from .kernels import DEVICE, DTYPE, pack

SHAPES = {
    "q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "gate_proj": (INTERMEDIATE, HIDDEN),
    "up_proj": (INTERMEDIATE, HIDDEN),
    "down_proj": (HIDDEN, INTERMEDIATE),
}


def load_weights(checkpoint: str) -> Weights:
    """Bring a checkpoint folder to the device tensor by tensor, so that the host never holds a copy of the weights.

    Raises ValueError for a tensor that is missing, unknown or of another shape.
    """
    source = Checkpoint(Path(checkpoint))
    tensors: dict[str, Any] = {"embedding": pack(source.take("model.embed_tokens.weight", VOCAB, HIDDEN))}
    for layer in range(LAYERS):
        for part, (name, length) in NORMS.items():
            norm = source.take(f"model.layers.{layer}.{name}.weight", length)
            tensors[f"layers.{layer}.{part}"] = norm.to(DEVICE, DTYPE, copy=True)
        for part, names in PROJECTIONS.items():
            joined = [
                source.take(f"model.layers.{layer}.{name}.weight", *SHAPES[name.rpartition(".")[2]]).to(DEVICE)
                for name in names
            ]
            tensors[f"layers.{layer}.{part}"] = pack(torch.cat(joined))
    tensors["norm"] = source.take("model.norm.weight", HIDDEN).to(DEVICE, DTYPE, copy=True)
    tensors["head"] = load_head(source, tensors["embedding"])
    return source.finish(tensors, IGNORED)
