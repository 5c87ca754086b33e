"""Decode steps for the profile: a number of them in one call, which the parent times, and the shares of one by part.

The shares are this process's own word and its own clock's: hints for whoever looks for what to change. They decide
nothing, and no criterion can name one (ckb.criteria).
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from .honest import settle
from .stages import PARTS, module, result

TIMED = ("linear", "attention", "rms_norm", "rope", "silu_mul")


def prefilled(prompt: list[int], capacity: int) -> dict[str, Any]:
    """Feeds the loaded model a prompt and keeps its cache for the steps below."""
    PARTS["decoding"] = module("cache").KVCache(capacity)
    PARTS["model"].forward(torch.tensor(prompt, dtype=torch.int64), PARTS["decoding"], 0)
    settle()
    return {}


def decode_steps(tokens: list[int], start: int) -> dict[str, Any]:
    """A step for each token, from position `start` on. Answers with the last one's logits [1, VOCAB]: whoever has them
    has waited for all that led to them."""
    model, cache = PARTS["model"], PARTS["decoding"]
    for position, token in enumerate(tokens, start):
        row = model.step(token, cache, position)
    settle()
    return {"rows": result(row).reshape(1, -1), "dtype": str(row.dtype)}


def last_logits(tokens: list[int]) -> dict[str, Any]:
    """The same by prefill, in a cache of its own."""
    model, cache = PARTS["model"], module("cache").KVCache(len(tokens))
    rows = model.head(model.forward(torch.tensor(tokens, dtype=torch.int64), cache, 0)[-1:])
    return {"rows": result(rows), "dtype": str(rows.dtype)}


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
            settle()  # a device may still be at what came before
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                settle()
                self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
                self._busy = False

        return timed


def shares(tokens: list[int], start: int) -> dict[str, Any]:
    """Share of these steps by the kernels that they call by name. A part that an engine fused into something else does
    not appear; what is in no part is `rest`. The last thing that a process is asked: the kernels stay wrapped."""
    clock, kernels, package = Clock(), module("kernels"), PARTS["package"]
    originals = {name: getattr(kernels, name) for name in TIMED}
    for name, held in list(sys.modules.items()):
        for part in TIMED:
            if name.startswith(f"{package}.") and getattr(held, part, None) is originals[part]:
                setattr(held, part, clock.wrap(part, originals[part]))
    model = PARTS["model"]
    model.head = clock.wrap("head", model.head)
    begin = time.perf_counter()
    decode_steps(tokens, start)
    whole = time.perf_counter() - begin
    found = {part: spent / whole for part, spent in clock.seconds.items()}
    return {"shares": found | {"rest": max(0.0, 1.0 - sum(found.values()))}}


OPERATIONS = {
    "prefilled": prefilled,
    "decode_steps": decode_steps,
    "last_logits": last_logits,
    "shares": shares,
}
