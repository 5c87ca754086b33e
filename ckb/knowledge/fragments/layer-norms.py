# ---
# contract: layer-norms
# title: Two norms a layer
# applies_to: not model.qk_norm
# constants: [HIDDEN]
# ---
NORMS = {"input_norm": ("input_layernorm", HIDDEN), "post_norm": ("post_attention_layernorm", HIDDEN)}
"""Norm of a layer -> its name in the checkpoint and its length."""
