"""A command that works in a folder, as an author sees it: what it is given, and how it ended."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Command:
    """One run of a command line."""

    argv: tuple[str, ...]
    folder: Path
    """Where it starts, and all that it may write beside its own home and `write`."""
    deadline_s: float
    variables: dict[str, str] = field(default_factory=dict)
    """Of its environment, beside what every command gets. They may hold keys: nobody writes them down."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finished:
    """How a command ended. No process of its is left."""

    status: int | None
    """Exit status, negative for a signal; None if it was ended from outside."""
    output: str
    """What it wrote to stdout, up to a limit."""
    errors: str
    """The last of what it wrote to stderr."""
    ended: str
    """Why it was ended from outside; empty if it ended by itself."""
    isolation: str
    """The confinement that was in force, in words."""


class Shell(Protocol):
    def run(self, command: Command) -> Finished:
        """Runs a command without a terminal, in an environment of its own, and ends it at its deadline with all that it
        started. Raises UserError for a program that isn't there or can't be confined."""
        ...
