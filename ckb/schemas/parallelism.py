"""Table `parallelism`: how tensors are partitioned over devices, and what they then must exchange."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row


class Partition(Frozen):
    """How one kind of tensor is split."""

    tensor: str
    """Name pattern as in the models table."""
    axis: Literal["rows", "columns", "heads", "kv_heads", "vocab", "experts", "replicated"]
    """rows: outputs of a matrix [N, K], or a vector's entries; columns: its inputs; heads: rows by whole query (or
    value) heads; kv_heads: rows by whole key and value heads, copied to several devices where there are fewer heads
    than devices; vocab: rows by token, padded to a multiple of the devices; experts: whole experts; replicated: all of
    it everywhere."""
    collective: Literal["none", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"] = "none"
    """What the devices exchange after the tensor's product."""


class Parallelism(Row):
    """One way to spread a model over devices; `applies_to` names the models and machines for which it is sound."""

    layer: Layer = "parallelism"
    title: str
    """The way, in a few words."""
    kind: Literal["tensor", "expert", "pipeline", "sequence"]
    """What is spread: parts of tensors, experts, layers or positions."""
    degree: str
    """Predicate text on the number of devices: `platform.count in [2, 4, 8]`."""
    divides: tuple[str, ...] = ()
    """Facts of the model that the number of devices must divide: `heads`, `intermediate`."""
    divides_or_copies: tuple[str, ...] = ()
    """Facts of the model that it must divide or be a multiple of: `kv_heads`, which are copied in the second case."""
    partitions: tuple[Partition, ...]
    """How each kind of tensor is split."""
    text: str = ""
    """The explanation that an implementer reads."""
