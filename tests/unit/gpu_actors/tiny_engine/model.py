import torch

from .cache import KVCache
from .facts import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, QK_NORM, TIED, VOCAB
from .kernels import attention, linear, rms_norm, rope, silu_mul
from .weights import Weights


class Model:
    def __init__(self, weights: Weights):
        self.weights = weights.tensors

    def forward(self, tokens: torch.Tensor, cache: KVCache, start: int) -> torch.Tensor:
        x = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(LAYERS):
            x = self.block(x, layer, cache, start)
        return rms_norm(x, self.weights["model.norm.weight"])

    def block(self, x: torch.Tensor, layer: int, cache: KVCache, start: int) -> torch.Tensor:
        def w(name: str) -> torch.Tensor:
            return self.weights[f"model.layers.{layer}.{name}.weight"]

        normed = rms_norm(x, w("input_layernorm"))
        q = linear(normed, w("self_attn.q_proj")).view(-1, HEADS, HEAD_DIM)
        k = linear(normed, w("self_attn.k_proj")).view(-1, KV_HEADS, HEAD_DIM)
        v = linear(normed, w("self_attn.v_proj")).view(-1, KV_HEADS, HEAD_DIM)
        if QK_NORM:
            q, k = rms_norm(q, w("self_attn.q_norm")), rms_norm(k, w("self_attn.k_norm"))
        cache.append(layer, rope(k, start), v, start)
        length = start + len(x)
        mixed = attention(rope(q, start), cache.keys(layer, length), cache.values(layer, length), start)
        x = x + linear(mixed, w("self_attn.o_proj"))
        normed = rms_norm(x, w("post_attention_layernorm"))
        gate_up = torch.cat((linear(normed, w("mlp.gate_proj")), linear(normed, w("mlp.up_proj"))), dim=-1)
        return x + linear(silu_mul(gate_up), w("mlp.down_proj"))

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        table = self.weights["model.embed_tokens.weight" if TIED else "lm_head.weight"]
        logits = linear(hidden, table).float()
        assert logits.shape[1] == VOCAB
        assert hidden.shape[1] == HIDDEN
        return logits

    def step(self, token: int, cache: KVCache, position: int) -> torch.Tensor:
        return self.head(self.forward(torch.tensor([token]), cache, position))[0]
