"""Operations on the parts of an engine, one stage after the other: kernels and cache, then weights and model.

The engine's folder is loaded as a package of the same name, as its user would import it.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from . import watch

Arrays = dict[str, np.ndarray]
BLOCK = 64
"""Rows of logits that are widened to float64 at a time."""
PARTS: dict[str, Any] = {}
"""What is loaded in this process: the package's name, the device that it computes on, the model, the engine."""


def open_tree(tree_dir: str, threads: int, device: str) -> dict[str, Any]:
    """Makes the folder importable as a package. Nothing of it runs yet. device: where inputs are placed of which a
    contract says that they lie on the device; the parent names it, whatever the tree says of itself."""
    name = Path(tree_dir).name
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [tree_dir]
    sys.modules[name] = module_from_spec(spec)
    PARTS["package"], PARTS["device"] = name, device
    for held in watch.CURRENT:
        held.open_tree(tree_dir)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return {}


def module(name: str) -> ModuleType:
    """A module of the engine, imported at its first use."""
    return importlib.import_module(f"{PARTS['package']}.{name}")


def setup() -> dict[str, Any]:
    """Builds or loads the kernels, twice: the second time must be harmless."""
    kernels = module("kernels")
    kernels.setup()
    kernels.setup()
    return {"dtype": str(kernels.DTYPE).removeprefix("torch.")}


def compute(array: np.ndarray) -> torch.Tensor:
    """An input in the engine's compute dtype, on its device. The parent has rounded it: nothing is lost here."""
    return torch.from_numpy(array).to(PARTS["device"], module("kernels").DTYPE)


def result(tensor: Any) -> np.ndarray:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, found {type(tensor).__name__}")
    array: np.ndarray = tensor.detach().to(torch.float32).cpu().contiguous().numpy()
    return array


def linear(weight: np.ndarray, weights: str, **rows: np.ndarray) -> Arrays:
    """x0, x1, ... by one packed matrix, as y0, y1, ... `weights` is the checkpoint's format: the packed matrix starts
    from a tensor of that dtype."""
    kernels = module("kernels")
    packed = kernels.pack(torch.from_numpy(weight).to({"bf16": torch.bfloat16, "fp32": torch.float32}[weights]))
    return {f"y{i}": result(kernels.linear(compute(rows[f"x{i}"]), packed)) for i in range(len(rows))}


def rms_norm(x: np.ndarray, weight: np.ndarray) -> Arrays:
    return {"y": result(module("kernels").rms_norm(compute(x), compute(weight)))}


def rope(x: np.ndarray, start: int) -> Arrays:
    return {"y": result(module("kernels").rope(compute(x), start))}


def silu_mul(gate_up: np.ndarray) -> Arrays:
    return {"y": result(module("kernels").silu_mul(compute(gate_up)))}


def attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray, start: int, poison: int = 0) -> Arrays:
    """With `poison`, keys and values are views into a longer buffer whose rows behind them hold 1e4."""
    held = []
    for array in (keys, values):
        buffer = torch.full((array.shape[0], array.shape[1] + poison, array.shape[2]), 1e4)
        buffer[:, : array.shape[1]] = torch.from_numpy(array)
        held.append(buffer.to(PARTS["device"], module("kernels").DTYPE)[:, : array.shape[1]])
    return {"y": result(module("kernels").attention(compute(q), held[0], held[1], start))}


def cache(capacity: int, appends: list[list[int]], reads: list[list[int]], **rows: np.ndarray) -> dict[str, Any]:
    """Appends k0, v0, k1, v1, ... at [layer, start] in turn, then reads [layer, length] as keys0, values0, ..."""
    held = module("cache").KVCache(capacity)
    for i, (layer, start) in enumerate(appends):
        held.append(layer, compute(rows[f"k{i}"]), compute(rows[f"v{i}"]), start)
    found: dict[str, Any] = {"bytes": int(held.bytes)}
    for i, (layer, length) in enumerate(reads):
        found[f"keys{i}"] = result(held.keys(layer, length))
        found[f"values{i}"] = result(held.values(layer, length))
    return found


def load_model(checkpoint: str) -> dict[str, Any]:
    """Loads the weights and the model from a checkpoint, and keeps the model for the operations below."""
    setup()
    weights = module("weights").load_weights(checkpoint)
    PARTS["consumption"] = {"consumed": list(weights.consumed), "ignored": list(weights.ignored)}
    PARTS["model"] = module("model").Model(weights)
    return {}


def consumption() -> dict[str, Any]:
    """Which tensors of the checkpoint the loaded model was made of, and which it left out."""
    return dict(PARTS["consumption"])


def load_weights(checkpoint: str) -> dict[str, Any]:
    """Loads the weights only. For checkpoints that must be refused."""
    setup()
    module("weights").load_weights(checkpoint)
    return {}


def forward(sequences: list[list[int]], chunks: list[int], capacity: int, reuse: bool) -> Arrays:
    """Logits of every position of each sequence, [sum of lengths, VOCAB].

    chunks: lengths of the pieces that the prompt is fed in (the last takes the rest); [] feeds it whole. reuse: one
    cache for all sequences, so that each later one finds the rows of those before it beyond its own positions.
    """
    model, rows = PARTS["model"], []
    kv = module("cache").KVCache(capacity)
    for sequence in sequences:
        kv = kv if reuse else module("cache").KVCache(capacity)
        start = 0
        for length in [*chunks, len(sequence)]:
            piece = torch.tensor(sequence[start : start + length], dtype=torch.int64)
            if len(piece):
                rows.append(result(model.head(model.forward(piece, kv, start))))
                start += len(piece)
    return {"logits": np.concatenate(rows)}


def steps(sequence: list[int], prompt: int, capacity: int, layers: int = 0, poison: float = 0.0) -> Arrays:
    """Logits of positions prompt-1 .. end: the prompt by `forward`, each later token by `step`.

    poison: before each of these, all positions from the next one on hold this number in every layer, its sign in turn.
    """
    model, kv = PARTS["model"], module("cache").KVCache(capacity)

    def spoil(start: int) -> None:
        heads, _, size = kv.keys(0, 1).shape
        rows = torch.full((capacity - start, heads, size), poison)
        rows[::2] *= -1
        placed = rows.to(PARTS["device"], module("kernels").DTYPE)
        for layer in range(layers * bool(poison) * (start < capacity)):
            kv.append(layer, placed, placed, start)

    spoil(0)
    hidden = model.forward(torch.tensor(sequence[:prompt], dtype=torch.int64), kv, 0)
    rows = [result(model.head(hidden[-1:]))[0]]
    for position in range(prompt, len(sequence)):
        spoil(position)
        rows.append(result(model.step(sequence[position], kv, position)).reshape(-1))
    return {"logits": np.stack(rows)}


def walk(sequence: list[int], pieces: list[list[int]]) -> dict[str, Any]:
    """A sequence in one cache, [prefilled, decoded] tokens in turn. For each decoded token but the last of the sequence
    its position, and the logarithm of the probability that it gives to the token behind it."""
    model, kv = PARTS["model"], module("cache").KVCache(len(sequence))
    at, positions, found = 0, [], [np.zeros(0)]
    for fed, steps in pieces:
        model.forward(torch.tensor(sequence[at : at + fed], dtype=torch.int64), kv, at)
        for position in range(at + fed, at + fed + steps):
            row = model.step(sequence[position], kv, position)
            if position + 1 < len(sequence):
                positions.append(position)
                found.append(following(row.reshape(1, -1), sequence[position + 1 : position + 2]))
        at += fed + steps
    return {"positions": positions, "following": np.concatenate(found)}


def following(rows: torch.Tensor, tokens: list[int]) -> np.ndarray:
    """The logarithm of each token's probability by its row of logits [len(tokens), VOCAB]."""
    after = torch.tensor(tokens, dtype=torch.int64, device=rows.device)[:, None]
    blocks = zip(rows.split(BLOCK), after.split(BLOCK), strict=True)
    found = [row.gather(1, token)[:, 0].double() - row.double().logsumexp(-1) for row, token in blocks]
    return np.concatenate([part.cpu().numpy() for part in found]) if found else np.zeros(0)


def drop() -> dict[str, Any]:
    """Lets go of the model or the engine that is loaded."""
    for part in ("model", "engine"):
        PARTS.pop(part, None)
    if torch.cuda.is_initialized():  # other processes need what this one would keep for itself: its own server, too
        torch.cuda.empty_cache()
    return {}


def loaded() -> dict[str, Any]:
    """Every imported module by name, with the file it came from."""
    files = {name: getattr(m, "__file__", None) or "" for name, m in list(sys.modules.items())}
    return {"package": PARTS["package"], "modules": files}


OPERATIONS = {
    "open": open_tree,
    "setup": setup,
    "linear": linear,
    "rms_norm": rms_norm,
    "rope": rope,
    "silu_mul": silu_mul,
    "attention": attention,
    "cache": cache,
    "load_model": load_model,
    "consumption": consumption,
    "load_weights": load_weights,
    "forward": forward,
    "steps": steps,
    "walk": walk,
    "drop": drop,
    "loaded": loaded,
}
