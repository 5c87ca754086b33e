"""What the honesty gates ask a child to do or to count of itself.

Positions fed and functions compiled are compared with what the kernel says from outside: a candidate that lies there
has to do the work all the same. The operators of a stream and what a profiler saw of the device have no such second,
since nobody outside can count them. They are asked of choices only, beside the shared objects whose code the kernel saw
run (gates/claims.py), and decide over no time.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import watch
from .stages import PARTS, module

Emit = Callable[[Any], None]
QUESTIONS = {"data_ptr", "stride", "size", "dim", "numel", "element_size", "is_contiguous", "__get__", "__len__"}
"""What asks a tensor about itself and computes nothing."""


@contextmanager
def fed() -> Iterator[Counter[str]]:
    """Counts what is fed to the model meanwhile: `positions`, one for each token of a prompt and for each step."""
    kind, counted = module("model").Model, Counter[str]()
    originals = {name: getattr(kind, name) for name in ("forward", "step") if hasattr(kind, name)}
    own = originals.keys() & vars(kind).keys()
    inner = {"busy": False}

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, tokens: Any, *args: Any, **kwargs: Any) -> Any:
            if inner["busy"]:  # an eager step runs forward itself
                return function(self, tokens, *args, **kwargs)
            counted["positions"] += len(tokens) if name == "forward" else 1
            inner["busy"] = True
            try:
                return function(self, tokens, *args, **kwargs)
            finally:
                inner["busy"] = False

        return wrapped

    try:
        for name, function in originals.items():
            setattr(kind, name, wrap(name, function))
        yield counted
    finally:
        for name, function in originals.items():
            if name in own:
                setattr(kind, name, function)
            else:
                delattr(kind, name)


def counted_stream(prompt: list[int], max_new_tokens: int, emit: Emit) -> dict[str, Any]:
    """`stream` with end tokens ignored; how many positions the model was fed, 0 for an engine that goes round it."""
    with fed() as counted:
        for token in PARTS["engine"].stream(prompt, max_new_tokens, ignore_eos=True):
            emit(int(token))
    return {"positions": counted["positions"]}


def compiled() -> dict[str, Any]:
    """How many functions torch.compile was given, and how many programs were started, since the process began."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    frames = sum(dynamo.counters["frames"].values()) if dynamo else 0
    return {"frames": int(frames), "started": sum(held.starts for held in watch.CURRENT)}


def settle() -> dict[str, Any]:
    """Returns when everything that was given to a device has been done."""
    if torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
    return {}


class Operators(TorchFunctionMode):  # type: ignore[misc]
    """Counts calls of torch that compute or allocate."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "__name__", "") not in QUESTIONS
        return func(*args, **(kwargs or {}))


def operators_of_stream(prompt: list[int], max_new_tokens: int) -> dict[str, Any]:
    """Torch operators of one whole stream, in the thread that asks for its tokens."""
    with Operators() as operators:
        for _ in PARTS["engine"].stream(prompt, max_new_tokens, ignore_eos=True):
            pass
    return {"operators": operators.count}


def device_events(prompt: list[int], max_new_tokens: int) -> dict[str, Any]:
    """What a profiler in this process saw of the device during one stream: event name -> how many times."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        list(PARTS["engine"].stream(prompt, max_new_tokens, ignore_eos=True))
        settle()
    return {"events": {event.key[:200]: int(event.count) for event in profiler.key_averages()}}


OPERATIONS = {
    "counted_stream": counted_stream,
    "compiled": compiled,
    "settle": settle,
    "operators_of_stream": operators_of_stream,
    "device_events": device_events,
}
