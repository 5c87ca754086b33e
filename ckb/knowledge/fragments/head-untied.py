# ---
# contract: head-weights
# title: An output projection of its own
# applies_to: not model.tied_head
# constants: [VOCAB, HIDDEN]
# ---
from typing import Any

from .kernels import pack

IGNORED = ("rotary_emb.inv_freq",)
"""Endings of tensors that some checkpoints hold and no computation needs."""


def load_head(checkpoint: Checkpoint, embedding: Any) -> Any:
    """The packed output projection [VOCAB, HIDDEN]."""
    return pack(checkpoint.take("lm_head.weight", VOCAB, HIDDEN))
