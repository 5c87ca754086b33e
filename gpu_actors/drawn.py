"""Tensors of random numbers in safetensors files, drawn and written in blocks by all cores: 16 GB need no memory, and
about the time that a disk takes for them.

Each block has a stream of random numbers of its own, whatever else the checkpoint holds and whichever thread draws it:
equal seeds give equal files.
"""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 1 << 22
"""Elements that are drawn at a time."""
SHARD_BYTES = 4 << 30
"""Of one file; a checkpoint that is larger has several, and an index."""


@dataclass(frozen=True)
class Tensor:
    """One tensor to draw: normal values around `mean`, or rows of such."""

    name: str
    shape: tuple[int, ...]
    spread: float
    mean: float = 0.0
    lengths: float = 0.0
    """Spread of the logarithm of the rows' lengths."""
    first: float = 1.0
    """Factor on the first row, which is the end token's: texts must end now and then."""
    signs: bool = False
    """Half of the values, drawn, are negative."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def starts(self) -> range:
        """The first row of each block."""
        columns = self.shape[-1]
        return range(0, self.size // columns, max(1, BLOCK // columns))

    def rows(self, start: int, seed: int) -> Array:
        """The block that starts at a row of `starts`, float32 [rows, columns]."""
        columns = self.shape[-1]
        count = min(self.starts.step, self.size // columns - start)
        # streams of one tensor lie 2**127 numbers apart
        stream = np.random.PCG64([seed, *self.name.encode()]).jumped(start // self.starts.step)
        rng = np.random.Generator(stream)
        values = rng.standard_normal((count, columns), dtype=np.float32)
        values *= np.float32(self.spread)
        if self.lengths:
            values *= np.exp(self.lengths * rng.standard_normal((count, 1), dtype=np.float32))
        if not start:
            values[0] *= np.float32(self.first)
        values += np.float32(self.mean)
        if self.signs:
            values *= rng.choice(np.array([-1.0, 1.0], np.float32), values.shape)
        return values


@dataclass(frozen=True)
class Place:
    """Where a tensor lies."""

    tensor: Tensor
    file: str
    start: int
    """Byte of its file's data, which begins behind the header."""


def placed(drawn: list[Tensor], width: int, shard_bytes: int) -> list[Place]:
    """Each tensor's place, `width` bytes an element; a tensor is in one file."""
    shards: list[list[Tensor]] = [[]]
    for tensor in drawn:
        if shards[-1] and width * sum(t.size for t in (*shards[-1], tensor)) > shard_bytes:
            shards.append([])
        shards[-1].append(tensor)
    places = []
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        start = 0
        for tensor in shard:
            places.append(Place(tensor, file, start))
            start += width * tensor.size
    return places


def write_tensors(folder: Path, drawn: list[Tensor], seed: int, *, half: bool, shard_bytes: int = SHARD_BYTES) -> None:
    """All of them, `half`: as bfloat16 numbers, else as float32. One file, or several and their index."""
    width = 2 if half else 4
    places = placed(drawn, width, shard_bytes)
    files = list(dict.fromkeys(place.file for place in places))
    for file in files:
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        for place in (place for place in places if place.file == file):
            tensor, end = place.tensor, place.start + width * place.tensor.size
            stored = {"dtype": "BF16" if half else "F32", "shape": list(tensor.shape)}
            header[tensor.name] = stored | {"data_offsets": [place.start, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file).open("wb") as opened:
            opened.write(len(text).to_bytes(8, "little") + text)
            opened.truncate(8 + len(text) + end)
    if len(files) > 1:
        index = {"metadata": {"total_size": sum(width * tensor.size for tensor in drawn)},
                 "weight_map": {place.tensor.name: place.file for place in places}}  # fmt: skip
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    fill(folder, places, seed, half=half)


def rewrite(
    folder: Path, drawn: list[Tensor], before: list[Tensor], seed: int, *, half: bool, shard_bytes: int = SHARD_BYTES
) -> None:
    """Those of `drawn` anew that are not as they were `before`, in the files that `write_tensors` made of these."""
    places = placed(drawn, 2 if half else 4, shard_bytes)
    fill(folder, [p for p, old in zip(places, before, strict=True) if p.tensor != old], seed, half=half)


def fill(folder: Path, places: list[Place], seed: int, *, half: bool) -> None:
    """Draws and writes on all cores: numpy and the kernel both let other threads run meanwhile."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file in dict.fromkeys(place.file for place in places):
            with (folder / file).open("r+b") as opened:
                base = 8 + int.from_bytes(opened.read(8), "little")
                blocks = ((place, row) for place in places if place.file == file for row in place.tensor.starts)
                work = [pool.submit(_put, opened.fileno(), base, *block, seed, half) for block in blocks]
                for done in work:
                    done.result()


def _put(fd: int, base: int, place: Place, row: int, seed: int, half: bool) -> None:
    values = place.tensor.rows(row, seed)
    data = memoryview((bfloat16(values) if half else values).tobytes())
    offset = base + place.start + row * place.tensor.shape[-1] * (2 if half else 4)
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def bfloat16(values: Array) -> Array:
    """The nearest bfloat16 numbers of float32 values, ties to even, as their 16 bits. `values` are used up."""
    bits = values.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    bits >>= 16
    half: Array = bits.astype(np.uint16)
    return half
