# ---
# contract: request
# title: A sequence to generate, and its state
# ---
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .sampler import Sampler

State = Literal["waiting", "running", "finished", "cancelled", "failed"]


class QueueFull(Exception):
    """So many requests wait already that one more would only time out."""


@dataclass(eq=False)
class Request:
    """One sequence to generate. `emit` is called by the worker thread with each token, and with None at the end."""

    prompt: list[int]
    max_new_tokens: int
    emit: Callable[[int | None], None]
    sampler: Sampler = field(default_factory=Sampler)
    state: State = "waiting"
