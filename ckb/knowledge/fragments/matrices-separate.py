# ---
# contract: matrices
# title: They are separate already
# applies_to: choice.weight_fusion == 'separate'
# ---
from typing import Any


def matrices(layer: dict[str, Any]) -> dict[str, Any]:
    """The seven packed matrices of a layer by name."""
    return {part: layer[part] for part in ("q", "k", "v", "o", "gate", "up", "down")}
