"""A violation of the rule that an engine is made without any framework's source, as a row."""

from typing import Literal

from ckb.facts import Frozen

ViolationKind = Literal["static", "runtime", "copied", "read"]
"""static: what the tree's source says; runtime: what its process tried; copied: a span of a release; read: a source
that was opened, or was to be."""
LASTING: frozenset[ViolationKind] = frozenset({"copied", "read"})
"""Kinds after which another attempt of the same candidate proves nothing: what was taken over, or looked up, can be
reworded. An import that was refused gave nothing away."""


class Violation(Frozen):
    """One violation of one candidate."""

    candidate: str
    gate: str
    """The gate that found it, or `benchmark`."""
    kind: ViolationKind
    file: str
    """Of the tree; empty where it is not known."""
    line: int
    """First line, from 1; 0 where it is not known."""
    what: str
