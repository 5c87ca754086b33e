# ---
# contract: projections
# title: Each projection by itself
# applies_to: choice.weight_fusion == 'separate'
# affects: [linear, rest]
# ---
PROJECTIONS = {
    "q": ("self_attn.q_proj",),
    "k": ("self_attn.k_proj",),
    "v": ("self_attn.v_proj",),
    "o": ("self_attn.o_proj",),
    "gate": ("mlp.gate_proj",),
    "up": ("mlp.up_proj",),
    "down": ("mlp.down_proj",),
}
"""Matrix of a layer -> the checkpoint's matrices whose rows it joins."""
