"""What measuring the verifier finds: of a checkpoint with random weights, and of verdicts. Written as JSON by the
scripts of this folder; docs/verification.md is made of them."""

from pydantic import Field

from ckb.facts import Dtype, Frozen


class Effect(Frozen):
    """What one standard fault does to the logits of a checkpoint."""

    fault: str
    error: float
    """Root mean square of the change over that of the logits."""
    kl: float
    """Mean over positions of KL(right || wrong), in nats."""


class Measures(Frozen):
    """How much a checkpoint shows. Taken on real text by the float64 decoder."""

    tokens: int
    entropy: float
    """Median over layers, heads and positions of attention's entropy over the logarithm of what it may see."""
    repeats: float
    """Share of positions whose best token is the one that was just read."""
    outside: dict[Dtype, float]
    """Compute dtype -> share of positions whose best logit leads by more than the tie band of that dtype."""
    effects: tuple[Effect, ...] = Field(min_length=10)


class Made(Frozen):
    """A checkpoint that was written."""

    shape: str
    bytes: int
    seconds: float
    """Of writing; what was measured is not in it."""
    sha256: str
    sharpness: float | None = None
    """Factor on queries and keys. None in records that are older than the field."""
    measuring_s: float | None = None
    measures: Measures | None = None
    """None: not taken."""


class GateRow(Frozen):
    """One gate of a verdict."""

    gate: str
    level: str
    status: str
    seconds: float
    summary: str


class Judged(Frozen):
    """One verdict."""

    name: str
    """`engine`, or the name of the edit."""
    passed: bool
    seconds: float
    """Wall time of the verdict, processes included."""
    rejected_by: str
    """The first gate that failed, or empty."""
    gates: tuple[GateRow, ...]
    sandbox: str
    seed: int


class Found(Frozen):
    """What one step found, and where."""

    step: str
    device: str
    machine: str
    versions: dict[str, str]
    commit: str
    at: str
    """ISO 8601, UTC."""
    checkpoint: Made | None = None
    judged: tuple[Judged, ...] = ()
    outside_the_band: float | None = None
    """Share of the acceptance's positions whose two best logits lie further apart than the tie band."""
