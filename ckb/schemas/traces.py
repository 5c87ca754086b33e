"""Table `traces`: FlashInfer-Trace evaluation records: Definition x Workload x Solution x Evaluation."""

from typing import Literal

from pydantic import Field, model_validator

from ckb.facts import Frozen
from ckb.records import Layer, Row

TraceStatus = Literal[
    "PASSED",
    "INCORRECT_SHAPE",
    "INCORRECT_NUMERICAL",
    "INCORRECT_DTYPE",
    "RUNTIME_ERROR",
    "COMPILE_ERROR",
    "TIMEOUT",
]


class Environment(Frozen):
    """Where an evaluation ran."""

    hardware: str
    """Device name."""
    libs: dict[str, str] = Field(default_factory=dict)
    """Library -> version."""


class Correctness(Frozen):
    """How far a solution's outputs were from the reference's; None: nobody measured that."""

    max_relative_error: float | None = None
    max_absolute_error: float | None = None
    extra: dict[str, float] = Field(default_factory=dict)


class Performance(Frozen):
    """How fast it was; the reference ran on the same inputs."""

    latency_ms: float = Field(ge=0)
    reference_latency_ms: float = Field(ge=0)
    speedup_factor: float = Field(ge=0)
    """reference_latency_ms / latency_ms."""


class Trace(Row):
    """One evaluation of one solution."""

    layer: Layer = "experience"
    definition: str
    """Id of the definition."""
    workload: str
    """uuid of the workload."""
    axes: dict[str, int]
    """Value of each variable axis of the workload."""
    solution: str
    """Id of the solution."""
    evaluation: TraceStatus
    """The evaluation's status (`status` is the row's own, as of every table)."""
    environment: Environment
    """Where it ran."""
    timestamp: str
    """ISO 8601."""
    correctness: Correctness | None = None
    """Of a trace that is PASSED or INCORRECT_NUMERICAL."""
    performance: Performance | None = None
    """Of a trace that is PASSED."""
    log: str = ""
    """What the evaluation printed, or why it failed."""

    @model_validator(mode="after")
    def results_fit_the_status(self) -> "Trace":
        want = (self.evaluation in ("PASSED", "INCORRECT_NUMERICAL"), self.evaluation == "PASSED")
        if (self.correctness is not None, self.performance is not None) != want:
            raise ValueError(
                f"a trace that is {self.evaluation} has "
                f"{'a' if want[0] else 'no'} correctness and {'a' if want[1] else 'no'} performance"
            )
        return self
