# ---
# contract: weights
# title: Packed matrix by matrix
# applies_to: platform.accelerator == 'cpu'
# constants: [LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB]
# ---
from pathlib import Path
from typing import Any

import torch

from .kernels import DTYPE, pack

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
    """Pack a checkpoint folder matrix by matrix, so that no second copy of the weights ever exists.

    Raises ValueError for a tensor that is missing, unknown or of another shape.
    """
    source = Checkpoint(Path(checkpoint))
    tensors: dict[str, Any] = {"embedding": pack(source.take("model.embed_tokens.weight", VOCAB, HIDDEN))}
    for layer in range(LAYERS):
        for part, (name, length) in NORMS.items():
            norm = source.take(f"model.layers.{layer}.{name}.weight", length)
            tensors[f"layers.{layer}.{part}"] = norm.to(DTYPE, copy=True)
        for part, names in PROJECTIONS.items():
            joined = [
                source.take(f"model.layers.{layer}.{name}.weight", *SHAPES[name.rpartition(".")[2]]) for name in names
            ]
            tensors[f"layers.{layer}.{part}"] = pack(torch.cat(joined))
    tensors["norm"] = source.take("model.norm.weight", HIDDEN).to(DTYPE, copy=True)
    tensors["head"] = load_head(source, tensors["embedding"])
    return source.finish(tensors, IGNORED)
