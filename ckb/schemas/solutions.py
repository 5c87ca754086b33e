"""Table `solutions`: implementations of a definition, as FlashInfer-Trace Solutions."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row
from ckb.schemas.arrow import schema_of


class SourceFile(Frozen):
    """One source file of a solution."""

    path: str
    """Relative, without `..`."""
    content: str


class Solution(Row):
    """One implementation; the id is its unique name."""

    layer: Layer = "parallelism"
    definition: str
    author: str
    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: tuple[str, ...]
    entry_point: str
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    binding: Literal["tvm-ffi", "torch"] | None = None
    sources: tuple[SourceFile, ...]
    description: str = ""


SCHEMA = schema_of(Solution)
