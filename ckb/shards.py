"""The tensors of a checkpoint, from the headers of its safetensors files alone."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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
MAX_BYTES = 2**63 - 1
"""Of one tensor, and so of each of its axes: no file is longer."""
MAX_NAME = 255
"""Bytes of a file's name."""


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
    for file in (INDEX, SINGLE):
        if (folder / file).exists():
            tensors = _read_shards(folder) if file == INDEX else {t.name: t for t in read_header(folder / SINGLE)}
            if not tensors:
                raise CheckpointError(f"{folder / file}: there is no tensor in it")
            return tensors
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
    if strangers := [name for name in files if not _is_file_name(name)]:
        raise CheckpointError(
            f"{folder / INDEX}: weight_map names {len(strangers)} shard(s) that can't be files of this folder: "
            f"{strangers[0][:80]!a}"
        )
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


def _is_file_name(name: str) -> bool:
    """Whether a shard's name names a file of the folder itself. That file may be a link: downloads have such."""
    encoded = name.encode("utf-8", "surrogatepass")
    return name not in ("", ".", "..") and not set(name) & set("/\\\0") and len(encoded) <= MAX_NAME and _is_text(name)


def _is_text(name: str) -> bool:
    """Whether a name from JSON can be written down: half of a surrogate pair can't."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file.

    Raises CheckpointError unless they fill the file from the header's end to its own, each byte once.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > min(size - 8, MAX_HEADER):
                what = f"its header says {length} bytes, it has {size}"
                raise CheckpointError(f"{path} is no whole safetensors file: {what}")
            data = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    header = _parse(path, data)
    header.pop("__metadata__", None)
    places = {name: _place(path, name, entry) for name, entry in header.items()}
    tensors = [_tensor(path, name, entry, places[name]) for name, entry in header.items()]
    end = 8 + length + max((last for _, last in places.values()), default=0)
    if end != size:
        what = "truncated" if size < end else "longer than its header says"
        raise CheckpointError(f"{path} is {what}: the header says {end} bytes, the file has {size}")
    _check_places(path, places)
    return tensors


def _check_places(path: Path, places: Mapping[str, tuple[int, int]]) -> None:
    """Raises CheckpointError for a byte between the tensors that belongs to none of them, or to two."""
    end, before = 0, "the header"
    for name, (first, last) in sorted(places.items(), key=lambda item: item[1]):
        if first != end:
            what = f"overlaps {before}, which ends" if first < end else f"leaves a hole behind {before}, which ends"
            raise CheckpointError(f"{path}: {name} starts at byte {first} and {what} at byte {end}")
        end, before = last, name


def _place(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """First byte of a tensor and the one behind its last, counted from the header's end."""
    offsets: Any = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _malformed(path, name, f"data_offsets is {offsets!r}, it must be where the tensor starts and ends")
    return offsets[0], offsets[1]


def _tensor(path: Path, name: str, entry: Mapping[str, Any], place: tuple[int, int]) -> StoredTensor:
    dtype, shape, size = entry.get("dtype"), entry.get("shape"), place[1] - place[0]
    if not isinstance(dtype, str):
        raise _malformed(path, name, f"dtype is {dtype!r}, it must be a name")
    if not isinstance(shape, list) or not _sizes(shape):
        raise _malformed(path, name, f"shape is {shape!r}, it must be a list of whole numbers from 0 to {MAX_BYTES}")
    elements = _product(shape)
    if elements > MAX_BYTES:
        raise _malformed(path, name, f"its shape is that of more than {MAX_BYTES} elements")
    expected = elements * DTYPE_BYTES[dtype] if dtype in DTYPE_BYTES else size
    if size != expected:
        raise CheckpointError(f"{path}: {name} {dtype}{shape} needs {expected} bytes, it has {size}")
    return StoredTensor(name, dtype, tuple(shape), size, path.name)


def _sizes(values: Any) -> bool:
    """Whether these are whole numbers as a shape holds them: JSON's true, 1.0 and -1 are none."""
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= MAX_BYTES for n in values)


def _product(shape: Iterable[int]) -> int:
    """Elements of a tensor; of one that no file can hold, some number above MAX_BYTES and not the whole product."""
    product = 1
    for axis in sorted(shape):  # a 0 comes first
        product *= axis
        if product == 0 or product > MAX_BYTES:
            break
    return product


def _malformed(path: Path, name: str, why: str) -> CheckpointError:
    return CheckpointError(f"{path}: the header's entry of {name} is malformed: {why[:200]}")


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            repeated = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            names = ", ".join(ascii(name)[1:-1] for name in repeated[:3])
            raise CheckpointError(f"{path}: the header has {names} twice ({len(repeated)} such names)")
        return found

    try:
        header = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is no JSON object")
    if strangers := [name for name in header if not _is_text(name)]:
        raise CheckpointError(f"{path}: the header has a tensor whose name is no text: {strangers[0][:80]!a}")
    return header


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError if it is missing, unreadable or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}: model.path must be a Hugging Face folder") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is no JSON object but a {type(value).__name__}")
    return value
