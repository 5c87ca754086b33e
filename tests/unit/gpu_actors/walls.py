"""A sandbox with some of its layers left out although they work here: to see what the others contain."""

from collections.abc import Iterable
from typing import Any

from gpu_actors.confinement import Confinement


def without(left_out: Iterable[str], **fields: Any) -> Confinement:
    """A confinement without these layers."""
    return type("Without", (Confinement,), {"without": frozenset(left_out)})(**fields)
