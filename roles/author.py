"""Who answers for a role. An author is chosen by configuration; the rest of the system sees only this."""

from typing import Protocol

from pydantic import Field

from ckb.errors import UserError
from ckb.facts import Frozen
from roles import briefs as b

Answer = (
    b.ImplementerAnswer
    | b.ReviewerAnswer
    | b.JudgeAnswer
    | b.EvaluatorAnswer
    | b.OrchestratorAnswer
    | b.AnalystAnswer
    | b.ConsolidatorAnswer
)
AnyBrief = (
    b.ImplementerBrief
    | b.ReviewerBrief
    | b.JudgeBrief
    | b.EvaluatorBrief
    | b.OrchestratorBrief
    | b.AnalystBrief
    | b.ConsolidatorBrief
)


class Usage(Frozen):
    """What one answer cost, and what was done for it."""

    author: str
    """composer, litellm, replay, cli."""
    model: str = ""
    calls: int = 1
    prompt_tokens: int | None = 0
    """None: the author doesn't tell, which is not the same as none."""
    completion_tokens: int | None = 0
    usd: float | None = 0.0
    """None: not known."""
    seconds: float = 0.0
    device_seconds: float = 0.0
    """For which its tests held a device."""
    tools: dict[str, int] = Field(default_factory=dict)
    """Tool -> calls of it."""
    outside: tuple[str, ...] = ()
    """Paths that it wrote or wanted to write and its role may not: refused, or put back."""
    isolation: str = ""
    """How a command that worked as author was confined, in words; empty for other authors."""


class AuthorError(UserError):
    """An author that can't answer: no key, no credit, a format error too often, a replay that ran out."""

    def __init__(self, message: str, usage: Usage | None = None):
        super().__init__(message)
        self.usage = usage
        """What the attempt cost all the same."""


class NoAnswer(AuthorError):
    """An author that works, and failed at this one brief: it never kept to the format, never came to an end, or was
    asked for what contradicts the Target. Another brief may go well."""


class Author(Protocol):
    """Answers a role's brief. Raises AuthorError when it can't; it never returns an empty success instead."""

    name: str

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]: ...
