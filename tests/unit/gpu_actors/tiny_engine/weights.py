from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from .facts import LAYERS, QK_NORM, TIED
from .kernels import DTYPE, pack

LAYER = ["input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
LAYER += [f"self_attn.{name}_proj" for name in "qkvo"] + ["self_attn.q_norm", "self_attn.k_norm"] * QK_NORM


@dataclass
class Weights:
    tensors: dict[str, torch.Tensor]
    consumed: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def load_weights(checkpoint: str) -> Weights:
    stored = load_file(Path(checkpoint) / "model.safetensors")
    wanted = ["model.embed_tokens", "model.norm"] + ["lm_head"] * (not TIED)
    wanted += [f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in LAYER]
    names = {f"{name}.weight" for name in wanted}
    if different := sorted(names ^ stored.keys()):
        raise ValueError(f"missing or unknown tensors: {', '.join(different)}")
    tensors = {name: t.to(DTYPE) if t.ndim == 1 else pack(t) for name, t in stored.items()}
    return Weights(tensors, tuple(stored))
