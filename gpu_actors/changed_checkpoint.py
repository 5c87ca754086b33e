"""Copies of a checkpoint in which some tensors are others: an engine's answers must follow its weights."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_actors.checkpoint import files

Bits = np.ndarray[Any, np.dtype[Any]]
Edit = Callable[["Stored", Bits], Bits | None]
WORDS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "F64": np.uint64}
MANTISSA = {"BF16": 7, "F16": 10, "F32": 23, "F64": 52}


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies in its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def stored(path: Path) -> Iterator[Stored]:
    """The tensors of one safetensors file, in their order there."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        yield Stored(name, entry["dtype"], tuple(entry["shape"]), start, end)


def changed(source: Path, target: Path, edit: Edit) -> list[str]:
    """Writes a copy in the folder `target`, anew: what `edit` makes of a tensor's bits stands in place of it, None
    leaves it. Files in which nothing changes are links. Returns the names of the tensors that were changed."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).symlink_to(path.resolve())
    names = []
    for path in files(source):
        place = target / path.name
        for tensor in stored(path):
            if tensor.dtype not in WORDS:
                continue
            bits = np.memmap(path, WORDS[tensor.dtype], "r", tensor.start, tensor.shape or (1,))
            if (other := edit(tensor, bits)) is None:
                continue
            if place.is_symlink():
                place.unlink()
                shutil.copyfile(path, place)
            with place.open("r+b") as file:
                file.seek(tensor.start)
                file.write(np.ascontiguousarray(other).data)
            names.append(tensor.name)
    return names


def noise(rng: np.random.Generator) -> Callable[[Stored, Bits], Bits]:
    """An edit that changes a drawn half of all elements by an eighth to a quarter of their size. It flips one bit of
    the mantissa, so it needs no arithmetic, and what comes out is a number of the stored format."""
    pattern = rng.integers(0, 2, size=8191).astype(np.uint64)

    def edit(tensor: Stored, bits: Bits) -> Bits:
        flips = (pattern << np.uint64(MANTISSA[tensor.dtype] - 2)).astype(bits.dtype)
        return bits ^ np.resize(flips, bits.shape)

    return edit


def scaled(tensor: Stored, bits: Bits, halvings: int) -> Bits:
    """Every element divided by 2 to the power of `halvings`, exactly; what would be too small becomes 0."""
    mantissa, word = MANTISSA[tensor.dtype], bits.dtype.type
    width = 8 * bits.dtype.itemsize
    exponents = word((1 << (width - 1)) - (1 << mantissa))
    held = bits & exponents
    step = word(halvings << mantissa)
    smaller: Bits = np.where(held > step, bits - step, word(0))
    return smaller


def rounded_to_bfloat16(tensor: Stored, bits: Bits) -> Bits | None:
    """float32 weights as an engine holds them that computes in bfloat16; others stay as they are."""
    if tensor.dtype != "F32":
        return None
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: Bits = (bits + up) & np.uint32(0xFFFF0000)
    return rounded
