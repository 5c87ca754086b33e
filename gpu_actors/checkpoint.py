"""Reads safetensors without torch, and names a checkpoint by the hash of its content."""

import json
import mmap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ckb.errors import UserError
from ckb.hashing import sha256_file, sha256_json

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
HASHED = ("*.safetensors", "config.json", "tokenizer.json")


class Checkpoint:
    """The tensors of a Hugging Face directory, read on demand from memory-mapped files."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._where: dict[str, tuple[mmap.mmap, int, dict[str, Any]]] = {}
        for path in files(folder):
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            header.pop("__metadata__", None)
            self._where |= {name: (data, 8 + length, entry) for name, entry in header.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._where))

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def tensor(self, name: str) -> Array:
        """One tensor as float64 (bfloat16 and float16 convert exactly)."""
        return self.rows(name, slice(None))

    def rows(self, name: str, where: slice | Array) -> Array:
        """Some rows of a tensor as float64: of an embedding table of gigabytes only what is asked for is widened."""
        data, base, entry = self._where[name]
        start, end = entry["data_offsets"]
        raw = memoryview(data)[base + start : base + end]
        if entry["dtype"] == "BF16":
            stored = np.frombuffer(raw, np.uint16).reshape(entry["shape"])[where]
            wide = (stored.astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] in NAMES:
            wide = np.frombuffer(raw, NAMES[entry["dtype"]]).reshape(entry["shape"])[where]
        else:
            raise UserError(f"{self.folder}: tensor {name} has the format {entry['dtype']}, which no gate can read")
        return wide.astype(np.float64)


def files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint. Raises UserError when there is none."""
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise UserError(f"{folder} holds no *.safetensors file; model.path must be a Hugging Face directory")
    return found


def content_sha256(folder: Path) -> str:
    """Hash of what a checkpoint computes with: weights, configuration and tokenizer."""
    paths = sorted(path for pattern in HASHED for path in folder.glob(pattern))
    return sha256_json([[p.name, _file_sha256(p, p.stat().st_size, p.stat().st_mtime_ns)] for p in paths])


@cache
def _file_sha256(path: Path, size: int, mtime_ns: int) -> str:
    # size and time are part of the key alone: a file that changed is hashed again
    return sha256_file(path)


def truncated(source: Path, target: Path) -> None:
    """Writes a copy of a checkpoint whose last weight file ends early."""
    last = _linked(source, target)
    with last.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        file.seek(0)
        (target / last.name).write_bytes(file.read(8 + length + 4096))


def renamed(source: Path, target: Path, tensor: str) -> None:
    """Writes a copy of a checkpoint where `tensor` goes by another name of the same length, and all weights are 0."""
    for path in files(source):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length)
        if f'"{tensor}"'.encode() in header:
            break
    _linked(source, target, path)
    other = f"{tensor[:-1]}_"
    header = header.replace(f'"{tensor}"'.encode(), f'"{other}"'.encode())
    with (target / path.name).open("wb") as file:
        file.write(length.to_bytes(8, "little") + header)
        file.truncate(path.stat().st_size)  # a hole: costs no disk
    _listed(target, {tensor: None, other: path.name})


def _linked(source: Path, target: Path, changed: Path | None = None) -> Path:
    """A folder of links to every file of `source` but the one that is about to be written; returns that one."""
    changed = changed or files(source)[-1]
    target.mkdir()
    for path in source.iterdir():
        if path.is_file() and path != changed:
            (target / path.name).symlink_to(path.resolve())
    return changed


def extended(source: Path, target: Path, tensor: str) -> None:
    """Writes a copy of a checkpoint with one more tensor, of one float32, and all weights 0."""
    last = files(source)[-1]
    _linked(source, target, last)
    with last.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    end = last.stat().st_size - 8 - length
    header[tensor] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (target / last.name).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end + 4)  # a hole: costs no disk
    _listed(target, {tensor: last.name})


def _listed(folder: Path, changes: dict[str, str | None]) -> None:
    """Writes tensor -> file into the index of a checkpoint of several files, None for one that is gone: an index that
    names what no file holds is another fault than a tensor that is missing."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        listed = json.loads(index.read_text(encoding="utf-8"))
        where = listed["weight_map"] | changes
        listed["weight_map"] = {name: file for name, file in where.items() if file}
        index.unlink()  # a link to the original
        index.write_text(json.dumps(listed), encoding="utf-8")
