"""Small experiments on single parts: what a contract says that they refuse, and how it says that their state changes.

Each returns what was seen; whether that is right is the parent's to say. One that should be refused just raises.
"""

import importlib
import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .stages import PARTS, module, result

UNWRITTEN = 7168.0
"""What an experiment fills a cache with, to see which positions are written: a number of every dtype."""


def setup_again(environment: dict[str, str], tree_dir: str) -> dict[str, Any]:
    """Sets up a fresh copy of the operators, with nothing built, in a changed environment."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as place:
        name = "set_up_again"
        copy = Path(place) / name
        shutil.copytree(tree_dir, copy, ignore=shutil.ignore_patterns("__pycache__"))
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(copy)]
        sys.modules[name] = module_from_spec(spec)
        try:
            os.environ.update(environment, XDG_CACHE_HOME=place)
            importlib.import_module(f"{name}.kernels").setup()
        finally:
            os.environ.clear()
            os.environ.update(before)
            for held in [held for held in sys.modules if held.partition(".")[0] == name]:
                del sys.modules[held]
    return {}


def threads(other: int) -> dict[str, Any]:
    """Compute threads after set-up, and after it once more, from another number."""
    found = []
    torch.set_num_threads(other)
    for _ in range(2):
        module("kernels").setup()
        found.append(torch.get_num_threads())
    return {"threads": found}


def take(folder: str, tensors: list[tuple[str, list[int]]], ignored: list[str] | None) -> dict[str, Any]:
    """Takes tensors of a checkpoint by name and shape; finishes with those that may be ignored, unless None."""
    checkpoint = module("weights").Checkpoint(Path(folder))
    for name, shape in tensors:
        checkpoint.take(name, *shape)
    if ignored is None:
        return {}
    weights = checkpoint.finish({}, tuple(ignored))
    return {"consumed": list(weights.consumed), "ignored": list(weights.ignored)}


def written(layers: int, tokens: list[int], pieces: list[int], step: bool) -> dict[str, Any]:
    """Which positions each layer's keys and values hold after each of the pieces, the last by `step` if asked for; and
    whether those that were there before are the same bits."""
    model, room = PARTS["model"], len(tokens) + 2
    kv = module("cache").KVCache(room)
    rows = kv.keys(0, 1).shape
    for layer in range(layers):
        blank = torch.full((room, rows[0], rows[2]), UNWRITTEN).to(PARTS["device"], module("kernels").DTYPE)
        kv.append(layer, blank, blank, 0)
    start, seen, kept, before = 0, [], True, list[torch.Tensor]()
    for index, length in enumerate(pieces):
        if step and index == len(pieces) - 1:
            model.step(tokens[start], kv, start)
        else:
            model.forward(torch.tensor(tokens[start : start + length], dtype=torch.int64), kv, start)
        held = [part(layer, room).float() for layer in range(layers) for part in (kv.keys, kv.values)]
        seen.append([(one != UNWRITTEN).any(2).all(0).nonzero().flatten().tolist() for one in held])
        kept &= all(torch.equal(a[:, :start], b[:, :start]) for a, b in zip(before, held, strict=False))
        before, start = [one.clone() for one in held], start + length
    return {"positions": seen, "kept": bool(kept)}


def step_at(position: int, capacity: int) -> dict[str, Any]:
    PARTS["model"].step(0, module("cache").KVCache(capacity), position)
    return {}


def sampler_of(body: dict[str, Any]) -> dict[str, Any]:
    module("sampler").Sampler.from_request(body)
    return {}


def called(prompt: list[int], max_new_tokens: int) -> dict[str, Any]:
    """Calls `stream` and asks for no token."""
    PARTS["engine"].stream(prompt, max_new_tokens)
    return {}


def side_by_side(prompts: list[list[int]], count: int) -> dict[str, Any]:
    """The tokens of several streams, each asked for one token in turn; None for one that refuses while others are
    open."""
    streams = [PARTS["engine"].stream(prompt, count, ignore_eos=True) for prompt in prompts]
    said: list[list[int] | None] = [[] for _ in prompts]
    for _ in range(count):
        for number, stream in enumerate(streams):
            if (held := said[number]) is None:
                continue
            try:
                held += [int(token) for token in itertools.islice(stream, 1)]
            except RuntimeError:
                said[number] = None
    return {"said": said}


def stream_logits(prompt: list[int], count: int, taken: int) -> dict[str, Any]:
    """The first tokens of one stream of `count`, and the logits that its sampler was given for them [calls, VOCAB]:
    none of an engine that takes its tokens another way."""
    kind, rows = module("sampler").Sampler, list[np.ndarray]()
    original = kind.__call__

    def seen(self: Any, logits: Any) -> Any:
        rows.append(result(logits).reshape(-1))
        return original(self, logits)

    kind.__call__ = seen
    try:
        stream = PARTS["engine"].stream(prompt, count, ignore_eos=True)
        tokens = [int(token) for token in itertools.islice(stream, taken)]
    finally:
        kind.__call__ = original
    rows = rows[:taken]  # one that works ahead has been given more
    return {"tokens": tokens, "rows": np.stack(rows) if rows else np.zeros((0, 0), np.float32)}


def sequence(prompt: list[int], count: int) -> dict[str, Any]:
    """The model's work by the time each token of a stream is known: ["forward", start, length], ["step", token,
    position]; first before any is asked for, last after the end."""
    kind, work = module("model").Model, []
    forward, step = kind.forward, kind.step

    def fed(self: Any, tokens: Any, cache: Any, start: int) -> Any:
        work.append(["forward", start, len(tokens)])
        return forward(self, tokens, cache, start)

    def stepped(self: Any, token: int, cache: Any, position: int) -> Any:
        work.append(["step", int(token), position])
        kind.forward = forward  # an eager step runs forward itself
        try:
            return step(self, token, cache, position)
        finally:
            kind.forward = fed

    own = "forward" in vars(kind)
    kind.forward, kind.step = fed, stepped
    try:
        tokens, moments = [], []
        stream = PARTS["engine"].stream(prompt, count, ignore_eos=True)
        moments.append(list(work))
        for token in stream:
            tokens.append(int(token))
            moments.append(list(work))
        moments.append(list(work))
    finally:
        kind.step = step
        if own:
            kind.forward = forward
        else:
            del kind.forward
    return {"tokens": tokens, "moments": moments}


def states() -> dict[str, Any]:
    """A request's state before and after each thing that may happen to it."""
    scheduling = module("scheduler")
    hold, started = threading.Event(), threading.Event()
    seen: dict[int, list[str]] = {}

    def run(request: Any) -> Iterator[int]:
        seen.setdefault(request.prompt[0], []).append(request.state)
        started.set()
        hold.wait(10)
        yield 1
        if request.prompt[0] == 3:
            raise RuntimeError("this request was made to fail")
        yield 2

    scheduler = scheduling.Scheduler(run, 8)
    requests = [scheduling.Request([i], 2, lambda token: None) for i in range(5)]
    found = {"taken": [requests[0].state]}
    scheduler.submit(requests[0])
    started.wait(10)
    found["taken"].append(requests[0].state)
    found["cancelled running"] = [requests[0].state]
    for request in requests[1:]:
        scheduler.submit(request)
    found["cancelled waiting"] = [requests[1].state]
    scheduler.cancel(requests[1])
    scheduler.cancel(requests[0])
    found["cancelled waiting"].append(requests[1].state)
    found["cancelled running"].append(requests[0].state)
    hold.set()
    scheduler.close()
    found["last token"] = [seen[2][0], requests[2].state]
    found["exception"] = [seen[3][0], requests[3].state]
    return {"states": found, "served": list(seen), "ended": requests[4].state}


def crowded(max_waiting: int) -> dict[str, Any]:
    """Submits one request more than may wait."""
    scheduling = module("scheduler")
    hold, started = threading.Event(), threading.Event()

    def run(request: Any) -> Iterator[int]:
        started.set()
        hold.wait(10)
        yield 1

    scheduler = scheduling.Scheduler(run, max_waiting)
    try:
        for number in range(max_waiting + 2):
            scheduler.submit(scheduling.Request([number], 1, lambda token: None))
            started.wait(10)
    finally:
        hold.set()
        scheduler.close()
    return {}


def chat_at(folder: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A conversation by the tokenizer of another folder."""
    module("engine").Tokenizer(Path(folder)).chat(messages)
    return {}


def fed(text: str, stop: list[str]) -> dict[str, Any]:
    """What each token of a text gives out, whether a stop string is complete after it, and what is left at the end."""
    engine = module("engine")
    stream = engine.TextStream(PARTS["engine"].tokenizer, tuple(stop))
    ids, pieces, stopped = PARTS["engine"].tokenizer.encode(text), [], []
    for token in ids:
        stopped.append(bool(stream.stopped))
        pieces.append(stream.feed(token))
        if stream.stopped:
            break
    return {"pieces": pieces, "stopped": [*stopped, bool(stream.stopped)], "end": stream.end(), "tokens": len(ids)}


OPERATIONS = {
    "setup_again": setup_again,
    "threads": threads,
    "take": take,
    "written": written,
    "step_at": step_at,
    "sampler_of": sampler_of,
    "called": called,
    "sequence": sequence,
    "side_by_side": side_by_side,
    "stream_logits": stream_logits,
    "states": states,
    "crowded": crowded,
    "chat_at": chat_at,
    "fed": fed,
}
