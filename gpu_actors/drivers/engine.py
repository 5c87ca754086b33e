"""Operations on a whole engine: load, generate, stream, logits, and its HTTP server."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from . import experiments, honest, profiling, record, sampling, scheduling, serve, serving, stages, trace
from .stages import PARTS, module, result

Emit = Callable[[Any], None]


def load_engine(checkpoint: str) -> dict[str, Any]:
    start = time.perf_counter()
    PARTS["engine"] = module("engine").Engine.load(checkpoint)
    return {"seconds": time.perf_counter() - start}


def generate(prompts: list[list[int]], max_new_tokens: int, ignore_eos: bool) -> dict[str, Any]:
    tokens = PARTS["engine"].generate(prompts, max_new_tokens, ignore_eos=ignore_eos)
    return {"tokens": [[int(t) for t in sequence] for sequence in tokens]}


def stream(prompt: list[int], max_new_tokens: int, ignore_eos: bool, emit: Emit) -> dict[str, Any]:
    """Events are token ids, each sent the moment the engine yields it."""
    for token in PARTS["engine"].stream(prompt, max_new_tokens, ignore_eos=ignore_eos):
        emit(int(token))
    return {}


def logits(tokens: list[int], positions: list[int]) -> dict[str, Any]:
    """Teacher-forced logits at some positions, [len(positions), VOCAB]; at every position [T] the arg max and the
    logarithm of the probability of the token that follows (0 for the last)."""
    rows = PARTS["engine"].logits(tokens)
    best = rows.argmax(dim=-1).to(torch.int64).cpu().numpy()
    after = np.append(stages.following(rows[:-1], tokens[1:]), 0.0)
    asked = result(rows[torch.tensor(positions, dtype=torch.int64)])
    return {"rows": asked, "best": best, "following": after, "dtype": str(rows.dtype)}


def tokenizer(text: str) -> dict[str, Any]:
    held = PARTS["engine"].tokenizer
    ids = [int(t) for t in held.encode(text)]
    return {"ids": ids, "text": held.decode(ids)}


def chat(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"ids": [int(t) for t in PARTS["engine"].tokenizer.chat(messages)]}


def decode(ids: list[int]) -> dict[str, Any]:
    return {"text": PARTS["engine"].tokenizer.decode(ids)}


def sample(logits: np.ndarray, body: dict[str, Any] | None, count: int) -> dict[str, Any]:
    """`count` draws from one row of logits, by the sampler that a request body asks for; None: the default one."""
    kind = module("sampler").Sampler
    sampler = kind() if body is None else kind.from_request(body)
    row = torch.from_numpy(logits).to(PARTS["device"])
    return {"tokens": [int(sampler(row)) for _ in range(count)]}


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """The operations of several drivers. Raises ValueError for a name that two of them have."""
    found: dict[str, Any] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise ValueError(f"two drivers have the operations {sorted(twice)}")
        found |= table
    return found


OWN = {
    "load_engine": load_engine,
    "generate": generate,
    "stream": stream,
    "logits": logits,
    "tokenizer": tokenizer,
    "chat": chat,
    "decode": decode,
    "sample": sample,
}
OPERATIONS = merged(
    OWN,
    stages.OPERATIONS,
    honest.OPERATIONS,
    trace.OPERATIONS,
    record.OPERATIONS,
    experiments.OPERATIONS,
    serving.OPERATIONS,
    serve.OPERATIONS,
    scheduling.OPERATIONS,
    profiling.OPERATIONS,
    sampling.OPERATIONS,
)
