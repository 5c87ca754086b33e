# ---
# contract: layer-norms
# title: Two norms a layer and one each for the heads of q and k
# applies_to: model.qk_norm
# constants: [HIDDEN, HEAD_DIM]
# ---
NORMS = {
    "input_norm": ("input_layernorm", HIDDEN),
    "post_norm": ("post_attention_layernorm", HIDDEN),
    "q_norm": ("self_attn.q_norm", HEAD_DIM),
    "k_norm": ("self_attn.k_norm", HEAD_DIM),
}
"""Norm of a layer -> its name in the checkpoint and its length."""
