"""What the knowledge base lacks for a Target, by kind: the result of coverage, and the way a checkpoint is refused."""

from typing import Literal

from ckb.errors import UserError
from ckb.facts import Frozen

GapKind = Literal[
    "model structure", "weight mapping", "parallel partition", "platform backend", "operator", "test", "weight format"
]


class Gap(Frozen):
    """One thing that is missing."""

    kind: GapKind
    subject: str
    """What has no knowledge: a contract id, a model_type, a tensor name, a format."""
    detail: str
    """What was looked for, and what is there."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.detail}"


class GapError(UserError):
    """The knowledge base doesn't cover the Target: exit status 2, or the way into evolution."""

    def __init__(self, gaps: tuple[Gap, ...]):
        self.gaps = gaps
        super().__init__("the knowledge base does not cover this: " + "; ".join(map(str, gaps)))
