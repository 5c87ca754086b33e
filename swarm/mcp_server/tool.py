"""One tool of the server: typed arguments in, a typed answer out, and what it does to the world."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio.from_thread
import anyio.to_thread
import mcp_types as types

from ckb.facts import Frozen
from gpu_actors.say import Say

A = TypeVar("A", bound=Frozen)
R = TypeVar("R", bound=Frozen)
Report = Callable[[str], Coroutine[Any, Any, None]]
"""Tells the client in a line what is being waited for."""
Does = Callable[[A, Report], Coroutine[Any, Any, R]]

READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
"""It changes nothing that anybody else sees: what was found out of the machine is kept in the cache."""
ADDS = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
"""It makes something new each time: a verdict with its evidence."""
STARTS = ADDS.model_copy(update={"open_world_hint": True})
"""It starts what goes on without it, and may ask a provider of language models."""
RENEWS = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
"""It writes something that follows from what is there: twice is as good as once."""


@dataclass(frozen=True)
class Tool(Generic[A, R]):
    """A function with its types. Its docstring is what the client's model reads."""

    name: str
    arguments: type[A]
    answer: type[R]
    does: Does[A, R]
    effect: types.ToolAnnotations

    def described(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            description=inspect.getdoc(self.does),
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.answer.model_json_schema(mode="serialization"),
            annotations=self.effect,
        )


AnyTool = Tool[Any, Any]


def in_thread(does: Callable[[A, Say], R]) -> Does[A, R]:
    """A function that computes, beside the server's loop. What it says on the way is reported."""

    @functools.wraps(does)
    async def called(asked: A, report: Report) -> R:
        def say(words: str) -> None:
            anyio.from_thread.run(report, words)

        return await anyio.to_thread.run_sync(does, asked, say)

    return called
