"""The rows of the knowledge base that generation reads. Their Arrow schemas are in ckb.schemas."""

from typing import Literal

from pydantic import Field

from ckb.facts import Frozen

Layer = Literal["contract", "framework", "model", "parallelism", "experience", "test"]
"""Layers of the knowledge base (MetaInfer, Table 8)."""
Stage = Literal["execution", "model", "integration", "acceptance"]
STAGES: tuple[Stage, ...] = ("execution", "model", "integration", "acceptance")
"""Construction order of an engine (MetaInfer, Table 6; performance optimisation is the loop after them)."""
Status = Literal["draft", "verified", "deprecated"]
Choice = str | int | float | bool
"""A value of a decision or of a fragment's parameter."""


class Provenance(Frozen):
    """Where a row came from."""

    source: Literal["seed", "run", "human"]
    """seed: written by hand from papers, configs and documents; run: learned by a run; human: an operator's answer."""
    run: str | None = None
    issue: str | None = None
    candidate: str | None = None
    verdict: str | None = None
    """Hash of the Verdict that the row rests on."""
    references: tuple[str, ...] = ()
    """Papers, configuration classes and documents that a person can look up."""


class Row(Frozen):
    """What every row of every table has."""

    id: str
    """Unique in its table."""
    layer: Layer
    """Which part of the knowledge base it belongs to."""
    applies_to: str = ""
    """Predicate (ckb.predicate) over model, platform and workload facts and the candidate's choices."""
    status: Status = "verified"
    """draft and deprecated rows are stored, and never used in generation."""
    provenance: Provenance = Provenance(source="seed")
    """Where it came from."""
    created: str = ""
    """ISO date of the first version that held the row."""


class Tensor(Frozen):
    """One tensor (or scalar) of an interface."""

    name: str
    shape: tuple[str, ...] | None = None
    """Axis names or numbers; None is a Python scalar or object, () a 0-D tensor."""
    dtype: str
    """float32, bfloat16, int64; `compute` is the engine's DTYPE, `weights` the checkpoint's; or a Python type."""
    placement: str = "host"
    """Where it lives: host, device, either."""


class Function(Frozen):
    """One function, class or method that a contract demands of a module."""

    name: str
    """`linear`, or `KVCache.append` for a method."""
    takes: tuple[Tensor, ...] = ()
    returns: tuple[Tensor, ...] = ()
    does: str
    """One sentence."""


class Contract(Row):
    """One piece of knowledge: what a part of an engine must do, and the test that checks it."""

    title: str
    """What the part is, in a few words."""
    stage: Stage
    """The stage of construction that fulfils it."""
    module: str
    """File of the engine that fulfils it: kernels.py, cache.py, model.py, ..."""
    order: int
    """Place among the contracts of the same module."""
    interface: tuple[Function, ...]
    """What the module must offer."""
    requires: tuple[str, ...] = ()
    """Contracts whose interfaces this one builds on."""
    decisions: dict[str, tuple[Choice, ...]] = Field(default_factory=dict)
    """Architecture decisions that this contract leaves open, each with its options; the first is the default."""
    decision_requires: dict[str, str] = Field(default_factory=dict)
    """`decision=option` -> predicate that must hold for the option to be open to a Target."""
    state: tuple[str, ...] = ()
    """State transitions and invariants."""
    errors: tuple[str, ...] = ()
    """Error boundaries: what is refused, and how."""
    failure_modes: tuple[str, ...] = ()
    """What goes wrong in practice, with its symptom."""
    test: str
    """Id of the test contract that checks it."""
    text: str
    """The explanation that an implementer reads."""


class Fragment(Row):
    """A short code example filed under one contract, with a checkable condition of use and a parameter space."""

    contract: str
    """Id of the contract that it serves."""
    title: str
    """The idea, in a few words."""
    rank: int = 0
    """Among fragments whose conditions hold, the highest rank is used."""
    parameters: dict[str, tuple[Choice, ...]] = Field(default_factory=dict)
    """Constants that the composer writes above the code, with their values to try; the first is the default."""
    parameter_requires: dict[str, str] = Field(default_factory=dict)
    """`NAME=value` -> predicate that must hold for the value to be open to a Target."""
    constants: tuple[str, ...] = ()
    """Facts that the composer writes above the code as constants: HIDDEN, HEADS, DTYPE, ... (ckb.constants)."""
    affects: tuple[str, ...] = ()
    """Which measured shares of a step (prefill, linear, attention, ...) the parameters can change."""
    imports: tuple[str, ...] = ()
    """Import lines of the module that the code needs, as written; relative ones name modules of the engine."""
    code: str
    """Python, at most 80 lines with its front matter; C++ stands in string constants."""


class Claim(Frozen):
    """What is said to have been learned, whoever says it."""

    title: str
    """The claim, in a few words."""
    kind: Literal["optimisation", "failure_mode", "debugging"]
    """optimisation: a measured effect; failure_mode: what goes wrong; debugging: how it was found."""
    change: dict[str, Choice] = Field(default_factory=dict)
    """Decisions and parameters that were changed."""
    metric: str = ""
    """What the effect is an effect on; empty: on any measure of speed."""
    effect: float | None = None
    """Relative change of the metric, positive is better; None when nothing was measured."""
    interval: tuple[float, float] | None = None
    """Interval of the effect, low and high."""
    signal: Literal["confirmed", "probable", "tentative"]
    """Tentative rows are stored as drafts and never used in generation."""
    text: str
    """The claim in full, with its evidence."""
