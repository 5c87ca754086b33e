# ---
# contract: kv-cache
# title: All heads of one position lie together
# applies_to: platform.accelerator == 'cpu' and choice.kv_layout == 'token_major'
# constants: [LAYERS, KV_HEADS, HEAD_DIM]
# affects: [attention]
# ---
import torch

from .kernels import DTYPE


class KVCache:
    """Keys and values of one sequence, [LAYERS, KV_HEADS, capacity, HEAD_DIM]; the heads of a position lie together."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        stored = (torch.empty(LAYERS, capacity, KV_HEADS, HEAD_DIM, dtype=DTYPE) for _ in range(2))
        self.k, self.v = (tensor.transpose(1, 2) for tensor in stored)

    @property
    def bytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor, start: int) -> None:
        """Store k and v [M, KV_HEADS, HEAD_DIM] at positions start .. start + M - 1."""
        end = start + len(k)
        if end > self.capacity:
            raise ValueError(f"position {end - 1} is past the cache's capacity of {self.capacity}")
        self.k[layer, :, start:end] = k.transpose(0, 1)
        self.v[layer, :, start:end] = v.transpose(0, 1)

    def keys(self, layer: int, length: int) -> torch.Tensor:
        """A view [KV_HEADS, length, HEAD_DIM] of the first positions."""
        return self.k[layer, :, :length]

    def values(self, layer: int, length: int) -> torch.Tensor:
        """A view [KV_HEADS, length, HEAD_DIM] of the first positions."""
        return self.v[layer, :, :length]
