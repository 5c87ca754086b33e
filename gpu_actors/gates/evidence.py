"""What a gate leaves as evidence beside its summary: one schema a gate, checked before anything is written.

A field that a gate doesn't fill in is one that its outcome left open: what it found before it stopped is evidence too.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from ckb.facts import Frozen
from gpu_actors.child import Kind

Outcome = Literal["at work", "not at work", "not shown"]
"""Of a mechanism. Not shown: nothing here could tell, and nobody fails for it."""


class Evidence(Frozen):
    """Of a gate that says everything in its summary."""


class Ended(Evidence):
    """Of any gate during which the candidate's process ended, or raised what nobody had asked for."""

    kind: Kind
    trace: str


class Compared(Evidence):
    """Arrays against what was expected, one entry a case."""

    comparisons: list[dict[str, Any]]
    """case, passed; worst: largest error over its tolerance; rms: root mean square error over its bound; note."""


class Streamed(Evidence):
    """Logits of a stream against the model's."""

    comparisons: list[dict[str, Any]] = Field(default_factory=list)
    shown: bool = True
    """Whether the stream gave any to a sampler."""


class Counted(Evidence):
    """How many numbers differ that should be equal."""

    different: int | None = None
    digest: str = ""
    """Of the numbers that were compared."""


class Said(Evidence):
    """New tokens of each request, in the order in which they were asked."""

    tokens: list[list[int]] = Field(default_factory=list)


class Text(Evidence):
    """The tree as text."""

    lines: int | None = None


class Told(Evidence):
    """Violations, each as file:line and what was done."""

    violations: list[str] = Field(default_factory=list)


class Watched(Told):
    """What the process did since it began."""

    imports: list[str] = Field(default_factory=list)
    loaded: list[str] = Field(default_factory=list)
    started: list[str] = Field(default_factory=list)


class Objects(Told):
    """Shared objects that a candidate's folders held."""

    objects: list[str] = Field(default_factory=list)
    """Names of those that were read."""


class Spans(Evidence):
    """Copied spans, in words."""

    spans: list[str] = Field(default_factory=list)


class Modules(Evidence):
    """The tree's own modules that were imported."""

    modules: list[str] = Field(default_factory=list)


class Dtype(Evidence):
    """The compute dtype that the tree names."""

    dtype: str


class Faults(Evidence):
    """Tensors of the checkpoint by what is wrong with how they were used."""

    faults: dict[str, list[str]] = Field(default_factory=dict)


class Executed(Evidence):
    """Contracts that were executed, and where the tree deviates from them."""

    ckb_version: int
    contracts: dict[str, str]
    """Contract -> hash of its row."""
    deviations: list[str] = Field(default_factory=list)
    states: list[list[str]] = Field(default_factory=list)
    """Contract, what changes, event, state before, state after."""
    refusals: list[list[Any]] = Field(default_factory=list)
    """Contract, function, condition, and how it was refused."""
    calls: dict[str, list[Any]] = Field(default_factory=dict)
    """Function -> its different calls, described."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Constant -> its description."""


class Distances(Evidence):
    """Logits against the oracle, over the reference's own error."""

    sequences: list[dict[str, float]]
    top1_agreement: float
    margin: float


class Tokens(Evidence):
    """Greedy tokens against the reference's."""

    equal: int
    in_band: int
    out_of_band: int
    sequences: int


class BestTokens(Evidence):
    """The best token at each position against the oracle's."""

    positions: int
    outside: int
    """Positions outside the tie band."""
    equal: int
    wrong: list[tuple[int, int]]
    """Prompt length and position of the first that differ outside the band."""


class Divergence(Evidence):
    """Mean divergence from the oracle, in nats, over the samples."""

    engine: float
    reference: float
    upper: float
    """Upper end of the interval of the difference of the two."""
    allowed: float


class Walked(Evidence):
    """Log-probabilities of decoding against those of prefill, in nats."""

    k3: float
    allowed: float
    largest: float
    allowed_each: float
    positions: int


class Followed(Evidence):
    """Logits with changed weights against float64."""

    comparisons: list[dict[str, Any]] = Field(default_factory=list)
    effects: dict[str, float] = Field(default_factory=dict)
    """First tensor of a group -> how far changing the group moves the logits, root mean square."""


class InFloat32(Evidence):
    """The tree with its compute dtype replaced."""

    tree: str = ""
    """Hash of the copy that passed."""
    comparisons: list[dict[str, Any]] = Field(default_factory=list)
    """Of the first check that failed."""
    dtype: str = ""
    violations: list[str] = Field(default_factory=list)


class Asked(Evidence):
    """Requests as they were seen from outside: tokens, positions fed, processor time in ms."""

    firsts: list[dict[str, Any]] = Field(default_factory=list)
    agains: list[dict[str, Any]] = Field(default_factory=list)
    in_turn: list[list[dict[str, Any]]] = Field(default_factory=list)
    """[again, fresh], where the first costs said too little."""


class Rested(Evidence):
    """Milliseconds of work after and between requests."""

    after_ms: list[float]
    settled_ms: list[float]
    idle_ms: float
    allowed_ms: float


class Claims(Evidence):
    """Whether each mechanism that the choices claim was seen at work."""

    claims: dict[str, Outcome]
    """decision=option -> outcome; what was measured of it is in the summary."""


class Stated(Evidence):
    """A criterion of the issue, and all that its command told."""

    criterion: dict[str, Any]
    metrics: dict[str, float]


class UserChecked(Evidence):
    """Of the user's own checker."""

    watched: bool = False
    """Whether the engine could be watched while it ran."""


def checked(schema: type[Evidence], data: Mapping[str, Any]) -> dict[str, Any]:
    """The data, if it is of the gate's schema or of a process that ended. Raises AssertionError: the gate is ours."""
    for kind in (schema, Ended):
        try:
            return kind.model_validate(dict(data)).model_dump(mode="json", exclude_defaults=True)
        except ValidationError as error:
            first = error
    raise AssertionError(f"evidence is not of the schema {schema.__name__}: {first}")
