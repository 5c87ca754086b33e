# ---
# contract: checkpoint
# title: One tensor at a time from mapped safetensors
# ---
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


@dataclass(frozen=True)
class Weights:
    """What the model computes with, and what became of each tensor of the checkpoint."""

    tensors: dict[str, Any]
    consumed: tuple[str, ...]
    ignored: tuple[str, ...]


class Checkpoint:
    """The tensors of a checkpoint folder. Each is taken once; its file is mapped only while that happens."""

    def __init__(self, folder: Path):
        self.folder = folder
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if index.is_file():
            self.files: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        else:
            with safe_open(single, "pt") as file:
                self.files = dict.fromkeys(file.keys(), single.name)
        self.consumed: list[str] = []

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor of that name, which must have that shape. Raises ValueError otherwise."""
        if name not in self.files or name in self.consumed:
            raise ValueError(f"{self.folder} has no {'second ' * (name in self.consumed)}tensor {name}")
        with safe_open(self.folder / self.files[name], "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} is {tuple(tensor.shape)} in {self.folder}, this engine is made for {shape}")
        self.consumed.append(name)
        return tensor

    def finish(self, tensors: dict[str, Any], ignored: tuple[str, ...]) -> Weights:
        """The weights, once every tensor was taken or ends in one of `ignored`. Raises ValueError for another."""
        left = sorted(self.files.keys() - set(self.consumed))
        if unknown := [name for name in left if not name.endswith(ignored)]:
            raise ValueError(f"{self.folder} has tensors that this engine does not know: {', '.join(unknown)}")
        return Weights(tensors, tuple(self.consumed), tuple(left))
