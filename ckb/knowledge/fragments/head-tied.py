# ---
# contract: head-weights
# title: The embedding table is the output projection
# applies_to: model.tied_head
# ---
from typing import Any

IGNORED = ("rotary_emb.inv_freq", "lm_head.weight")
"""Endings of tensors that some checkpoints hold and no computation needs."""


def load_head(checkpoint: Checkpoint, embedding: Any) -> Any:
    """The packed output projection: the embedding table itself."""
    return embedding
