"""Table `solutions`: implementations of a definition, as FlashInfer-Trace Solutions."""

from typing import Literal

from ckb.facts import Frozen
from ckb.records import Layer, Row


class SourceFile(Frozen):
    """One source file of a solution."""

    path: str
    """Relative, without `..`."""
    content: str


class Solution(Row):
    """One implementation; the id is its unique name."""

    layer: Layer = "parallelism"
    definition: str
    """Id of the definition that it implements."""
    author: str
    """Who wrote it: composer, a model's name, a person."""
    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    """What its sources are written in."""
    target_hardware: tuple[str, ...]
    """Devices that it is made for."""
    entry_point: str
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    """Libraries that it imports."""
    destination_passing_style: bool = True
    """The outputs are arguments, after the inputs."""
    binding: Literal["tvm-ffi", "torch"] | None = None
    """How compiled code is called; None is tvm-ffi for C++ and CUDA."""
    sources: tuple[SourceFile, ...]
    """The entry point's file among them."""
    description: str = ""
    """For people."""
