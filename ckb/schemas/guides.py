"""Table `guides`: knowledge that no interface holds: methods, libraries, tools, crafts and the roles' procedures."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import FailureMode, Function, Layer, Reader, Row

Kind = Literal["algorithm", "library", "tool", "kernel_authoring", "procedure"]


class Compatibility(Frozen):
    """How far a method or library goes with one backend on some platforms."""

    backend: str
    """Name of an operator of these platforms: torch, triton, avx2 (C++ on a CPU), mlx, flashinfer, ..."""
    platforms: tuple[str, ...]
    """Ids of platforms rows."""
    state: Literal["yes", "partial", "no", "untried"]
    """yes: shown to work; partial: parts of it, `why` says which; no: it can't; untried: nobody has shown either."""
    condition: str = ""
    """Predicate (ckb.predicate) under which the state is meant; empty: always."""
    why: str
    """What makes it so, and what to do instead where it is not `yes`."""
    source: str = ""
    """Who showed it; empty only where nobody has."""


class Step(Frozen):
    """One step of a procedure."""

    role: Reader
    """Who takes it."""
    does: str
    hands_over: str
    """What is there afterwards that was not there before, and for whom; fields of an answer in backticks."""
    ends_when: str
    """What shows that the step is done."""


class Guide(Row):
    """One piece of knowledge that is the interface of nothing."""

    layer: Layer = "framework"
    title: str
    """The subject, in a few words."""
    kind: Kind
    """algorithm: a method of serving; library: what may be called; tool: what measures; kernel_authoring: how kernels
    are written; procedure: how a role works."""
    roles: tuple[Reader, ...]
    """Whose work it serves: their briefs name it."""
    contracts: tuple[str, ...] = ()
    """Ids of the contracts that it speaks of."""
    compatibility: tuple[Compatibility, ...] = ()
    """Backend by platform. Of an algorithm it covers every platform."""
    calls: tuple[Function, ...] = ()
    """What a library or tool offers to call, with layouts and dtypes."""
    steps: tuple[Step, ...] = ()
    """The steps of a procedure, in order."""
    limits: tuple[str, ...] = ()
    """Where it ends: what it can't do, and what it costs."""
    failures: tuple[FailureMode, ...] = ()
    """What goes wrong in practice."""
    text: str
    """The knowledge itself: how it works and what to look at, exactly enough to act on."""
