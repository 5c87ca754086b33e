"""A checkpoint of Qwen3's form with random weights, written by all cores: 16 GB in the time that a disk needs for them.

Random weights make a harsh model, unless three things are as in a trained one. Attention is sharp: the norms of queries
and keys are scaled so that scores have a standard deviation of three, which leaves less than half of the entropy of a
uniform mixture up to some thousand positions. The residual stream keeps about half of its variance from the embedding,
so that rounding grows with the square root of the depth and not with its exponential. And one logit stands out at most
positions: each row of the head holds a little of another token's embedding.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks import prompts

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 1 << 22
"""Elements that are drawn at a time, each block by a generator of its own: the outcome does not depend on threads."""
SHARD_BYTES = 4 << 30
SHARP = 1.75
"""Mean weight of the norms over heads of queries and keys."""
STANDS_OUT = 5.0
"""Where the likely token's logit lies, in standard deviations of all logits."""
HEAD_STD = 3.0
"""Standard deviation of the logits."""
SHIFT = 7
"""The likely token after token t is t + SHIFT."""
WORDS = 2048
"""Most tokens that real text is cut into; the rest of the vocabulary is there to be said."""


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model of the Qwen3 family, and its context."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int


SHAPES = {
    "qwen3-8b": Shape(36, 4096, 12288, 32, 8, 128, 151_936, 40_960),
    "tiny": Shape(4, 64, 96, 4, 2, 16, 1024, 512),
}


@dataclass(frozen=True)
class Drawn:
    """One tensor: normal values of a scale round a mean."""

    name: str
    shape: tuple[int, ...]
    scale: float
    mean: float = 0.0

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def tensors(shape: Shape) -> Iterator[Drawn]:
    """Every tensor but the head, which depends on the first of them."""
    s = shape
    wide, narrow = s.heads * s.head_dim, s.kv_heads * s.head_dim
    outward = s.layers**-0.5  # of what each layer adds to the residual stream
    yield Drawn("model.embed_tokens.weight", (s.vocab, s.hidden), 1.0)
    for layer in range(s.layers):
        for name, rows, columns, gain in (
            ("self_attn.q_proj", wide, s.hidden, 1.0),
            ("self_attn.k_proj", narrow, s.hidden, 1.0),
            ("self_attn.v_proj", narrow, s.hidden, 1.0),
            ("self_attn.o_proj", s.hidden, wide, outward),
            ("mlp.gate_proj", s.intermediate, s.hidden, 1.0),
            ("mlp.up_proj", s.intermediate, s.hidden, 1.0),
            ("mlp.down_proj", s.hidden, s.intermediate, outward),
        ):
            yield Drawn(f"model.layers.{layer}.{name}.weight", (rows, columns), gain * columns**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield Drawn(f"model.layers.{layer}.{name}.weight", (s.hidden,), 0.1, 1.0)
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            yield Drawn(f"model.layers.{layer}.{name}.weight", (s.head_dim,), 0.1 * SHARP, SHARP)
    yield Drawn("model.norm.weight", (s.hidden,), 0.1, 1.0)


def bfloat16(values: Array) -> Array:
    """The nearest bfloat16 numbers, ties to even, as their 16 bits."""
    bits = values.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    half: Array = (bits >> 16).astype(np.uint16)
    return half


def write_checkpoint(folder: Path, shape: Shape, seed: int) -> int:
    """Writes a Hugging Face directory and returns its bytes; equal seeds give equal files. `folder` must not exist."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(shape)))
    write_tokenizer(folder / "tokenizer.json", shape.vocab)
    head = Drawn("lm_head.weight", (shape.vocab, shape.hidden), HEAD_STD * shape.hidden**-0.5)
    shards = list(_shards([*tensors(shape), head]))
    where: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, shard in enumerate(shards, 1):
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            where |= {tensor.name: name for tensor in shard}
            _write_shard(folder / name, shard, head, seed, pool)
    index = {"metadata": {"total_size": sum(2 * t.size for s in shards for t in s)}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return sum(path.stat().st_size for path in folder.iterdir())


def _shards(every: list[Drawn]) -> Iterator[list[Drawn]]:
    shard: list[Drawn] = []
    for tensor in every:
        if shard and 2 * sum(t.size for t in (*shard, tensor)) > SHARD_BYTES:
            yield shard
            shard = []
        shard.append(tensor)
    yield shard


def _write_shard(path: Path, shard: list[Drawn], head: Drawn, seed: int, pool: ThreadPoolExecutor) -> None:
    header: dict[str, dict[str, Any]] = {}
    end = 0
    for tensor in shard:
        header[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [end, end + 2 * tensor.size]}
        end += 2 * tensor.size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        file.flush()
        base = 8 + len(text)
        work = []
        for tensor in shard:
            at = base + header[tensor.name]["data_offsets"][0]
            make = _head_block if tensor is head else _block
            starts = range(0, tensor.size, BLOCK)
            work += [pool.submit(_put, file.fileno(), at + 2 * n, make, tensor, n, seed) for n in starts]
        for done in work:
            done.result()


def _put(fd: int, offset: int, make: Any, tensor: Drawn, start: int, seed: int) -> None:
    data = memoryview(bfloat16(make(tensor, start, seed)).tobytes())
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _normal(name: str, block: int, count: int, seed: int) -> Array:
    generator = np.random.Generator(np.random.SFC64([seed, block, *name.encode()]))
    return generator.standard_normal(count, dtype=np.float32)


def _block(tensor: Drawn, start: int, seed: int) -> Array:
    values = _normal(tensor.name, start // BLOCK, min(BLOCK, tensor.size - start), seed)
    values *= np.float32(tensor.scale)
    values += np.float32(tensor.mean)
    return values


def _head_block(tensor: Drawn, start: int, seed: int) -> Array:
    """A block of the head: noise, and of the embedding of the token that comes SHIFT before each row's."""
    values = _normal(tensor.name, start // BLOCK, min(BLOCK, tensor.size - start), seed)
    size, hidden = tensor.size, tensor.shape[1]
    first = (start - SHIFT * hidden) % size
    kept = 0.73  # cosine between the last hidden state and the embedding of the token that it is of
    part = np.float32(STANDS_OUT / (kept * hidden**0.5))
    values += part * _embedded(first, len(values), size, seed)
    values *= np.float32(tensor.scale)
    return values


def _embedded(first: int, count: int, size: int, seed: int) -> Array:
    """`count` elements of the embedding table of `size`, from `first` on and round its end."""
    parts, at = [], first
    while count:
        block = at // BLOCK
        here = _normal("model.embed_tokens.weight", block, min(BLOCK, size - block * BLOCK), seed)
        piece = here[at - block * BLOCK :][:count]
        parts.append(piece)
        count -= len(piece)
        at = (at + len(piece)) % size
    return np.concatenate(parts)


def config(shape: Shape) -> dict[str, object]:
    """config.json, with the rotary base and epsilon of Qwen3."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def write_tokenizer(path: Path, vocab: int) -> None:
    """A tokenizer with a text for every id of the vocabulary: a model with random weights says all of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab, WORDS), special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([prompts.text(name) for name in prompts.languages()], trainer)
    stored = json.loads(tokenizer.to_str())
    words = stored["model"]["vocab"]
    words |= {f"Ġw{id}": id for id in range(len(words), vocab)}
    path.write_text(json.dumps(stored), encoding="utf-8")
