"""Table `workloads`: concrete inputs of a definition, as FlashInfer-Trace Workloads."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row


class InputSpec(Frozen):
    """Where one input comes from."""

    type: Literal["random", "scalar", "safetensors"]
    value: int | float | bool | None = None
    """Of a scalar."""
    path: str | None = None
    """Of a safetensors input, below the root of the trace set."""
    tensor_key: str | None = None


class Workload(Row):
    """One point at which a definition is evaluated; the id is the workload's uuid."""

    layer: Layer = "parallelism"
    definition: str
    """Id of the definition."""
    axes: dict[str, int]
    """Value of each variable axis."""
    inputs: dict[str, InputSpec]
    """Input -> where it comes from."""
