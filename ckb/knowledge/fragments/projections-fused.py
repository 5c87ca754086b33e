# ---
# contract: projections
# title: Projections of the same input joined
# applies_to: choice.weight_fusion == 'fused'
# affects: [linear, rest]
# ---
PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Matrix of a layer -> the checkpoint's matrices whose rows it joins."""
