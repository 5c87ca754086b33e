"""The interface of an outer-loop policy: given what is known, what to try next.

A policy does nothing itself: it is shown frozen data, may ask the loop for the answers of two roles and for what a
change would amount to, and returns issues. The same data, answers and seed give the same issues, so that a resumed run
decides as the first one did (docs/design/020).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ckb.records import Choice
from roles.briefs import Hypothesis, OrchestratorAnswer, PolicyTool, RoleName
from swarm.events import Issue

Assignment = Mapping[str, Choice]
Standing = Literal["gain", "no gain", "failed", "not measured"]
"""What was found out about a tree: it was better than the incumbent of its time; it was not; its implementation failed
(which says nothing against the idea); nothing (a busy machine, a tree that was known)."""


@dataclass(frozen=True)
class Tree:
    """A whole engine that was tried: the one that the stages made, or a candidate of a round."""

    candidate: str
    commit: str
    """On its branch, or on main where it was merged: what may be started from."""
    choices: Assignment
    standing: Standing
    round: int = 0
    island: int | None = None
    parents: tuple[str, ...] = ()
    objectives: tuple[float, ...] = ()
    """Larger is better, the Target's own objective first, each the log of a ratio to the first accepted engine: of
    different runs only ratios can be compared, so they are chained over the incumbents. Empty if not measured."""


@dataclass(frozen=True)
class Known:
    """What a policy is shown before a round."""

    round: int
    """From 1."""
    width: int
    """Most issues of a round."""
    seed: int
    metric: str
    space: Mapping[str, tuple[Choice, ...]]
    """Open decisions and parameters with their values."""
    incumbent: Tree
    """What is on main."""
    trees: tuple[Tree, ...]
    """All that was tried, in order: the engine of the stages first, the incumbent among them."""
    asked: tuple[Assignment, ...]
    """Assignments that need not be tried again."""
    memory: str = ""
    """MEMORY.md."""
    backlog: tuple[Hypothesis, ...] = ()
    """Ideas that roles filed during their work, which can be tried here and weren't yet, oldest first."""


@dataclass(frozen=True)
class Next:
    """What a policy decides for a round."""

    issues: tuple[Issue, ...]
    memory: str
    """MEMORY.md after the round was opened."""
    stop: bool = False
    """Whether this round is the last one. A round without an issue is, too."""
    reason: str = ""
    """Why the search ends here, in words; empty unless it does."""


class Counsel(Protocol):
    """What a policy may ask of the loop. Answers of roles cost money and time, so a policy asks for what it uses."""

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The evaluator's ideas about the incumbent, which is profiled first; at most as many as a round is wide."""
        ...

    def order(self, hypotheses: Sequence[Hypothesis]) -> OrchestratorAnswer:
        """Which of them the orchestrator dispatches, best first, with its new memory."""
        ...

    def completed(self, change: Assignment, start: Assignment) -> dict[str, Choice] | None:
        """The whole assignment of a tree with the choices `start` after a change; None where that contradicts itself
        or lacks a fragment. Costs nothing."""
        ...


class Policy(Protocol):
    """An outer-loop policy."""

    @property
    def tools(self) -> Mapping[PolicyTool, tuple[RoleName, ...]]:
        """Which tools of the policy's own the roles get for their work, and which roles: nobody else sees them."""
        ...

    def next(self, known: Known, counsel: Counsel) -> Next: ...
