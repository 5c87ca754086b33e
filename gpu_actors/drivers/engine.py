"""Operations on a whole engine: load, generate, stream, logits, its HTTP server, and where a step's time goes."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import experiments, honest, record, sampling, scheduling, serve, serving, stages, trace
from .stages import PARTS, module, result

Emit = Callable[[Any], None]
TIMED = ("linear", "attention", "rms_norm", "rope", "silu_mul")


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


class Clock:
    """Time by part. What one part calls of another is charged to the outer one: the head's product is the head's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._busy = False

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._busy:
                return function(*args, **kwargs)
            self._busy = True
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
                self._busy = False

        return timed


def profile(checkpoint: str, prompt: list[int], steps: int, capacity: int) -> dict[str, Any]:
    """Share of a decode step by the kernels it calls by name, and the step's time in milliseconds (timed bare).

    A part that an engine fused into something else does not appear; what is in no part is `rest`.
    """
    stages.load_model(checkpoint)
    model, cache = PARTS["model"], module("cache").KVCache(capacity)
    model.forward(torch.tensor(prompt, dtype=torch.int64), cache, 0)
    run = range(len(prompt), len(prompt) + steps)
    model.step(prompt[-1], cache, len(prompt))
    start = time.perf_counter()
    for position in run:
        model.step(prompt[-1], cache, position)
    bare = time.perf_counter() - start
    clock = Clock()
    package = PARTS["package"]
    kernels = module("kernels")
    originals = {name: getattr(kernels, name) for name in TIMED}
    for name, held in list(sys.modules.items()):
        for part in TIMED:
            if name.startswith(f"{package}.") and getattr(held, part, None) is originals[part]:
                setattr(held, part, clock.wrap(part, originals[part]))
    model.head = clock.wrap("head", model.head)
    start = time.perf_counter()
    for position in run:
        model.step(prompt[-1], cache, position)
    whole = time.perf_counter() - start
    shares = {part: spent / whole for part, spent in clock.seconds.items()}
    return {"shares": shares | {"rest": max(0.0, 1.0 - sum(shares.values()))}, "step_ms": 1000 * bare / steps}


def ceiling(bytes_: int, seconds: float, threads: int) -> dict[str, Any]:
    """Best streaming read of main memory over several simple readers, in GB/s.

    One stream a thread reaches about three quarters of what several reach, and a good engine reads several.
    """
    torch.set_num_threads(threads)
    data = torch.ones(bytes_ // 8 * 2)
    halves, quarters = data.view(2, -1), data.view(4, -1)
    vector = torch.ones(quarters.shape[1])
    readers: list[tuple[Callable[[], object], int]] = [
        (data.sum, data.nbytes),
        (lambda: torch.dot(halves[0], halves[1]), data.nbytes),
        (lambda: quarters @ vector, data.nbytes + vector.nbytes),
    ]
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for read, moved in readers:
            start = time.perf_counter()
            read()
            best = max(best, moved / (time.perf_counter() - start) / 1e9)
    return {"gb_s": best}


PLAIN = (
    stages.OPERATIONS
    | honest.OPERATIONS
    | trace.OPERATIONS
    | record.OPERATIONS
    | experiments.OPERATIONS
    | serving.OPERATIONS
    | serve.OPERATIONS
    | scheduling.OPERATIONS
    | sampling.OPERATIONS
)
OPERATIONS = PLAIN | {
    "load_engine": load_engine,
    "generate": generate,
    "stream": stream,
    "logits": logits,
    "tokenizer": tokenizer,
    "chat": chat,
    "decode": decode,
    "sample": sample,
    "profile": profile,
    "ceiling": ceiling,
}
