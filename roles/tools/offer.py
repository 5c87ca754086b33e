"""A tool of one conversation: what a model is told of it, and what a call of it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ckb.facts import Frozen
from roles.author import Answer
from roles.completion import Tool
from roles.replies import FormatError, parse, tool
from roles.table import ToolName

M = TypeVar("M", bound=Frozen)


class OutOfScope(FormatError):
    """A call that wanted to write what its role may not."""

    def __init__(self, path: str, allowed: Sequence[str]):
        super().__init__(f"{path!r} is none of the engine's files: {', '.join(allowed)}")
        self.path = path


@dataclass(frozen=True)
class Offer(Generic[M]):
    """`do` gives the text that the model is told, or the answer that ends the work. It raises FormatError."""

    name: ToolName
    description: str
    arguments: type[M]
    do: Callable[[M], str | Answer]

    @property
    def shown(self) -> Tool:
        return tool(self.name, self.description, self.arguments)

    def call(self, arguments: str) -> str | Answer:
        """Takes the arguments as the model wrote them. Raises FormatError with every field that is wrong."""
        return self.do(parse(self.arguments, arguments))


Offers = Sequence[Offer[Any]]
