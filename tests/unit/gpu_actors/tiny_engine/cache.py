import torch

from .facts import DTYPE, HEAD_DIM, KV_HEADS, LAYERS


class KVCache:
    def __init__(self, capacity: int):
        self.held = torch.empty(2, LAYERS, KV_HEADS, capacity, HEAD_DIM, dtype=DTYPE)
        self.bytes = self.held.nbytes

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor, start: int) -> None:
        capacity = self.held.shape[3]
        if start + len(k) > capacity:
            raise ValueError(f"position {start + len(k)} is past the capacity of {capacity}")
        self.held[0, layer, :, start : start + len(k)] = k.transpose(0, 1)
        self.held[1, layer, :, start : start + len(v)] = v.transpose(0, 1)

    def keys(self, layer: int, length: int) -> torch.Tensor:
        return self.held[0, layer, :, :length]

    def values(self, layer: int, length: int) -> torch.Tensor:
        return self.held[1, layer, :, :length]
