# ---
# contract: matrices
# title: Views into the joined matrices
# applies_to: choice.weight_fusion == 'fused'
# constants: [HEADS, KV_HEADS, HEAD_DIM]
# ---
from typing import Any


def matrices(layer: dict[str, Any]) -> dict[str, Any]:
    """The seven packed matrices of a layer by name, as views."""
    q, k, v = layer["qkv"].split((HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM))
    gate, up = layer["gate_up"].chunk(2)
    return {"q": q, "k": k, "v": v, "o": layer["o"], "gate": gate, "up": up, "down": layer["down"]}
