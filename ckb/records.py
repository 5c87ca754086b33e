"""The rows of the knowledge base that generation reads. Their Arrow schemas are in ckb.schemas."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ckb.facts import Frozen

Layer = Literal["contract", "framework", "model", "parallelism", "experience", "test"]
"""Layers of the knowledge base (MetaInfer, Table 8)."""
Stage = Literal["execution", "model", "integration", "acceptance"]
STAGES: tuple[Stage, ...] = ("execution", "model", "integration", "acceptance")
"""Construction order of an engine (MetaInfer, Table 6; performance optimisation is the loop after them)."""
Reader = Literal[
    "orchestrator",
    "implementer",
    "reviewer",
    "judge",
    "verifier",
    "evaluator",
    "explorer",
    "analyst",
    "consolidator",
    "summariser",
]
"""Who reads a guide: the roles of authors (roles.briefs.RoleName), the verifier, which is a process, and the two roles
of evolution and of its experience, which no author answers for so far."""
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

    @property
    def usable(self) -> bool:
        """Whether generation may see the row."""
        return self.status == "verified"

    retired: ClassVar[tuple[str, ...]] = ()
    """Columns of older versions of the table that are fields no more; `from_older` knows what becomes of them."""

    @classmethod
    def from_older(cls, fields: dict[str, Any], retired: dict[str, Any]) -> dict[str, Any]:
        """The fields of a row that was stored with retired columns, whose values that are not null are `retired`."""
        return fields


class Tensor(Frozen):
    """One tensor (or scalar) of an interface."""

    name: str
    shape: tuple[str, ...] | None = None
    """Axis names or numbers; None is a Python scalar or object, () a 0-D tensor."""
    dtype: str
    """float32, int64; `compute` is the engine's DTYPE, `weights` the checkpoint's; or a type of Python or C++."""
    placement: Literal["host", "device", "either"] = "host"
    """Whose memory it lies in: the process's own, that of the processor that computes (a CPU has one for both), or
    whichever the caller has it in."""


class Function(Frozen):
    """One function, class, method or constant that a contract demands of a module."""

    name: str
    """`linear`, `KVCache.append` for a method, `NORMS` for a constant, which takes nothing and returns what it is."""
    takes: tuple[Tensor, ...] = ()
    returns: tuple[Tensor, ...] = ()
    does: str
    """One sentence."""


class Transition(Frozen):
    """One change of what outlives a call."""

    subject: str
    """What changes: `Request.state`, `KVCache`."""
    before: str
    """The state that it starts from, in a word or as a condition."""
    event: str
    """What makes it change: a call, with its arguments, or something that happens."""
    after: str
    """The state that it is in then."""


class ErrorCase(Frozen):
    """One thing that a part refuses, and how."""

    function: str
    """Whose caller is refused: a name of the contract's interface."""
    condition: str
    """When it refuses."""
    exception: str
    """What the caller meets: `ValueError`, `HTTP 400`, `exit status 2`."""
    message: tuple[str, ...] = ()
    """What the message must hold, each in a few words: the prompt's length, the tensor's name."""


class FailureMode(Frozen):
    """One thing that goes wrong in practice, seen from both sides."""

    symptom: str
    """What is seen."""
    cause: str
    """What was done, or left undone."""


class Contract(Row):
    """One piece of knowledge: what a part of an engine must do, and the test that checks it."""

    retired: ClassVar[tuple[str, ...]] = ("errors", "failure_modes")

    title: str
    """What the part is, in a few words."""
    stage: Stage
    """The stage of construction that fulfils it."""
    module: str
    """File of the engine that fulfils it: kernels.py, cache.py, model.py, ..."""
    order: int
    """Place among the contracts of the same module."""
    requires: tuple[str, ...] = ()
    """Contracts whose interfaces this one builds on."""
    interface: tuple[Function, ...]
    """What the module must offer to Python."""
    native: tuple[Function, ...] = ()
    """C++ functions, types and constants that the module's one C++ unit must offer to what builds on it."""
    decisions: dict[str, tuple[Choice, ...]] = Field(default_factory=dict)
    """Architecture decisions that this contract leaves open, each with its options; the first is the default."""
    decision_requires: dict[str, str] = Field(default_factory=dict)
    """`decision=option` -> predicate that must hold for the option to be open to a Target."""
    state: tuple[str, ...] = ()
    """What always holds of the state that outlives a call."""
    transitions: tuple[Transition, ...] = ()
    """How that state changes."""
    error_cases: tuple[ErrorCase, ...] = ()
    """Error boundaries: what is refused, and how."""
    failures: tuple[FailureMode, ...] = ()
    """What goes wrong in practice."""
    test: str
    """Id of the test contract that checks it."""
    text: str
    """The explanation that an implementer reads: what no column above can hold."""

    @model_validator(mode="after")
    def every_refusal_is_of_its_own_interface(self) -> "Contract":
        names = {function.name for function in (*self.interface, *self.native)}
        if strangers := sorted({case.function for case in self.error_cases} - names):
            raise ValueError(f"error cases of {', '.join(strangers)}, which the interface does not offer")
        return self

    @classmethod
    def from_older(cls, fields: dict[str, Any], retired: dict[str, Any]) -> dict[str, Any]:
        """Versions of before error cases and failures were columns said them in sentences: these become text."""
        titles = {"errors": "Errors", "failure_modes": "What goes wrong"}
        said = (f"\n{titles[name]}:\n" + "".join(f"- {line}\n" for line in retired[name]) for name in retired)
        return fields | {"text": fields["text"] + "".join(said)}


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
    fixed: str = ""
    """The failing test that it fixed, as `issue/gate`; empty: it rests on a measured effect."""
    signal: Literal["confirmed", "probable", "tentative"]
    """Tentative rows are stored as drafts and never used in generation."""
    text: str
    """The claim in full, with its evidence."""

    @model_validator(mode="after")
    def the_interval_holds_the_effect(self) -> "Claim":
        if self.interval and not (self.effect is not None and self.interval[0] <= self.effect <= self.interval[1]):
            raise ValueError(f"an effect of {self.effect} does not lie in its interval {self.interval}")
        return self
