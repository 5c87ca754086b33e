"""Table `runs`: where an engine came from."""

from typing import Literal

from pydantic import Field

from ckb.facts import Frozen
from ckb.records import Choice, Layer, Row
from ckb.schemas.platforms import TriedOperator
from ckb.violations import Violation


class Median(Frozen):
    """One benchmark median of the final paired run."""

    arm: str
    """Candidate id, `incumbent` or `huggingface`."""
    prompt_tokens: int
    new_tokens: int
    metric: str
    """Name in the metric registry: tpot_ms, ttft_ms, decode_tok_s, ..."""
    value: float


class Run(Row):
    """The provenance of one engine; the id is the run's id."""

    layer: Layer = "experience"
    target: str
    """Name of the Target."""
    engine: str
    """Name of the engine package."""
    model_type: str
    """`model_type` of the checkpoint's config.json."""
    platform: str
    """Device name."""
    knowledge: int
    """Version of the store that the run generated from."""
    plan: str
    """sha256 of the Plan."""
    tree: str
    """sha256 of the engine's tree (ckb.hashing.tree_sha256)."""
    verdict: str
    """sha256 of the Verdict that accepted it."""
    commit: str
    """Git commit of the run's repository."""
    author: str
    """Who wrote it: composer, a model's name, ..."""
    sources: Literal["off", "on"] = "off"
    """Whether sources of other frameworks could be read (only inside evolution)."""
    choices: dict[str, Choice] = Field(default_factory=dict)
    """The engine's decisions and parameters."""
    fragments: tuple[str, ...] = ()
    """Ids of the fragments in the engine's bill of materials."""
    metric: str
    """The objective's metric."""
    value: float | None
    """What the engine reached of it; None when nothing was measured."""
    medians: tuple[Median, ...] = ()
    """The final paired benchmark."""
    candidates: int = 0
    """Candidates that the run tried."""
    violations: tuple[Violation, ...] = ()
    """Of the zero-reference rule, by candidates that were discarded: a run of one that was merged has no row here."""
    operators: tuple[TriedOperator, ...] = ()
    """The operator libraries as a small run found them on the machine that the run was planned on."""
