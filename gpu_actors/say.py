"""What is being done at this moment, in words, for whoever waits."""

from collections.abc import Callable

Say = Callable[[str], None]


def silent(message: str) -> None:
    """Says nothing."""
