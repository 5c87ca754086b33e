"""The tensors of a checkpoint, from the headers of its safetensors files alone."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckb.errors import UserError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1} | {
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1
}  # fmt: skip
MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""


class CheckpointError(UserError):
    """A checkpoint that can't be read as it is: the message names the file and the numbers."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as its file's header states it."""

    name: str
    dtype: str
    """safetensors name: F32, BF16, ..."""
    shape: tuple[int, ...]
    bytes: int
    file: str


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Name -> tensor for a single file or for the shards of an index. Raises CheckpointError for any fault."""
    if (folder / INDEX).exists():
        return _read_shards(folder)
    if (folder / SINGLE).exists():
        return {tensor.name: tensor for tensor in read_header(folder / SINGLE)}
    others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".gguf", ".pth", ".safetensors"))
    raise CheckpointError(
        f"{folder} has neither {SINGLE} nor {INDEX} (weights that are there: {', '.join(others) or 'none'}); "
        "model.path must hold a Hugging Face checkpoint in safetensors"
    )


def _read_shards(folder: Path) -> dict[str, StoredTensor]:
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise CheckpointError(f"{folder / INDEX}: weight_map is missing or is no mapping of tensors to files")
    files = sorted(set(index.values()))
    if missing := [name for name in files if not (folder / name).is_file()]:
        raise CheckpointError(f"{folder}: {len(missing)} of {len(files)} shards are missing: {', '.join(missing)}")
    tensors: dict[str, StoredTensor] = {}
    for tensor in (tensor for name in files for tensor in read_header(folder / name)):
        if tensor.name in tensors:
            raise CheckpointError(f"{folder}: {tensor.name} is in both {tensors[tensor.name].file} and {tensor.file}")
        tensors[tensor.name] = tensor
    if absent := [name for name in index if name not in tensors or tensors[name].file != index[name]]:
        raise CheckpointError(
            f"{folder / INDEX}: {len(absent)} of {len(index)} tensors are not in the shard that it names: {absent[0]}"
        )
    return tensors


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file, whose length is checked against what the header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, MAX_HEADER):
            raise CheckpointError(f"{path} is no whole safetensors file: its header says {length} bytes, it has {size}")
        header = _parse(path, file.read(length))
    header.pop("__metadata__", None)
    tensors = [_tensor(path, name, entry) for name, entry in header.items()]
    end = 8 + length + max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    if end != size:
        what = "truncated" if size < end else "longer than its header says"
        raise CheckpointError(f"{path} is {what}: the header says {end} bytes, the file has {size}")
    return tensors


def _tensor(path: Path, name: str, entry: Any) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        first, last = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the header's entry of {name} is malformed: {error!r}") from error
    expected = math.prod(shape) * DTYPE_BYTES[dtype] if dtype in DTYPE_BYTES else last - first
    if last - first != expected:
        raise CheckpointError(f"{path}: {name} {dtype}{list(shape)} needs {expected} bytes, it has {last - first}")
    return StoredTensor(name, dtype, shape, last - first, path.name)


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if repeated := {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set():
            raise CheckpointError(f"{path}: the header has {', '.join(sorted(repeated))} twice")
        return dict(pairs)

    try:
        header = json.loads(data, object_pairs_hook=unique)
    except ValueError as error:
        raise CheckpointError(f"{path}: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is no JSON object")
    return header


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError if it is missing, unreadable or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}: model.path must be a Hugging Face folder") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is no JSON object but a {type(value).__name__}")
    return value
