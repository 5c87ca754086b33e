"""Draws of an engine's sampler: alone, through its stream, and through its server without a socket."""

from typing import Any

import numpy as np
import torch

from . import serving
from .stages import PARTS, module

Body = dict[str, Any]


def sampler_of(body: Body) -> Any:
    """The sampler that a request body asks for."""
    return module("sampler").Sampler.from_request(body)


def draws(logits: np.ndarray, bodies: list[Body], count: int) -> dict[str, Any]:
    """`count` tokens of each body's sampler from one row of logits [VOCAB], the samplers taking turns: [bodies, count].
    What they share, as a generator, shows in each other's draws."""
    samplers = [sampler_of(body) for body in bodies]
    row = torch.from_numpy(logits).to(PARTS["device"])
    found = np.empty((len(bodies), count), dtype=np.int64)
    for at in range(count):
        for i, sampler in enumerate(samplers):
            found[i, at] = int(sampler(row))
    return {"tokens": found}


def sampled(prompt: list[int], bodies: list[Body], max_new_tokens: int, ignore_eos: bool) -> dict[str, Any]:
    """The tokens that the engine streams after one prompt, with the sampler of each body in turn."""
    engine, found = PARTS["engine"], []
    for body in bodies:
        stream = engine.stream(prompt, max_new_tokens, ignore_eos=ignore_eos, sampler=sampler_of(body))
        found.append([int(token) for token in stream])
    return {"tokens": found}


def served(bodies: list[Body], name: str) -> dict[str, Any]:
    """The answers of one application to bodies that come one after the other; a body with messages is a chat."""
    app = module("server").application(PARTS["engine"], name)
    paths = ("/v1/chat/completions" if "messages" in body else "/v1/completions" for body in bodies)
    return {
        "answers": [serving.run(serving.ask(app, body, path=path)) for body, path in zip(bodies, paths, strict=True)]
    }


OPERATIONS = {"draws": draws, "sampled": sampled, "served": served}
