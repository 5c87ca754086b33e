"""Table `definitions`: operators to be computed, as FlashInfer-Trace Definitions."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row


class Axis(Frozen):
    """One axis: constant in the definition, or variable and given by each workload."""

    name: str
    type: Literal["const", "var"]
    value: int | None = None
    """Of a constant axis."""
    description: str = ""


class TensorSpec(Frozen):
    """One input or output, in the order of the reference's arguments or results."""

    name: str
    shape: tuple[str, ...] | None
    """Axis names; None is a Python scalar, () a 0-D tensor."""
    dtype: str
    description: str = ""


class Definition(Row):
    """What one operator computes; the id is its globally unique name."""

    layer: Layer = "parallelism"
    op_type: str
    """gemm, rmsnorm, rope, gqa_paged, ..."""
    axes: tuple[Axis, ...]
    """All axes of its shapes."""
    inputs: tuple[TensorSpec, ...]
    """In the order of `run`'s parameters."""
    outputs: tuple[TensorSpec, ...]
    """In the order of `run`'s results."""
    reference: str
    """Python source with a top-level function `run`."""
    tags: tuple[str, ...] = ()
    """`stage:decode`, `model:...`, `fused`, ..."""
    description: str = ""
    """For people."""
    constraints: tuple[str, ...] = ()
    """Python expressions over axes and inputs that hold for every workload."""
