"""Reads a Hugging Face directory without torch and without transformers: its facts, and the tensors behind them.

How a family's config.json and tensor names are to be read is knowledge: rows of the models table. A checkpoint that is
broken raises CheckpointError; one that is sound but that no row describes raises GapError and names what is missing.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ckb.facts import WEIGHT_BYTES, ModelFacts
from ckb.gaps import Gap, GapError
from ckb.model_config import find_model, model_facts, quantisation
from ckb.schemas.models import ModelFamily
from ckb.shards import CheckpointError, StoredTensor, read_json, read_tensors
from ckb.tensor_names import Expected, expected_tensors, ignored_names, outer_names, parameters

FORMATS = {"F32": "fp32", "BF16": "bf16"}


@dataclass(frozen=True)
class Checkpoint:
    """One model directory, as far as its headers tell."""

    path: Path
    facts: ModelFacts
    tensors: dict[str, StoredTensor]
    """Every tensor that an engine must consume."""
    ignored: tuple[str, ...]
    """Tensors that are there and that the family's row says no engine needs."""
    unmapped: tuple[str, ...]
    """Tensors that the family's row does not know: gaps of weight mapping."""


def read_checkpoint(path: Path, families: Iterable[ModelFamily]) -> Checkpoint:
    """Facts and tensors of the model in a directory. Raises CheckpointError or GapError."""
    if not path.is_dir():
        raise CheckpointError(f"model.path: {path} is {'no directory' if path.exists() else 'not there'}")
    file = path / "config.json"
    config = read_json(file)
    model = find_model(config, families)
    if not (path / "tokenizer.json").is_file():
        raise CheckpointError(f"{path} has no tokenizer.json: an engine can't be made without its tokenizer")
    if (path / "generation_config.json").exists():
        model = model.with_generation(read_json(path / "generation_config.json"))
    stored = read_tensors(path)
    facts = model_facts(file, model, _stored_format(model.config, stored.values()))
    names = outer_names(model.wrapper, stored)
    passed = ignored_names(model.family, model.wrapper, facts, names)
    ignored = tuple(name for name in stored if any(fnmatchcase(name, pattern) for pattern in passed))
    wanted = expected_tensors(model.family, facts)
    expected = {_name(name, tensor, names, stored): tensor for name, tensor in wanted.items()}
    tensors = {name: tensor for name, tensor in stored.items() if name not in ignored}
    unmapped = tuple(name for name in tensors if name not in expected)
    if facts.weights in WEIGHT_BYTES:
        _check_names(path, facts, list(expected), stored, unmapped)
        _check_shapes(path, expected, stored)
    count = sum(math.prod(tensor.shape) for tensor in tensors.values())
    return Checkpoint(
        path=path,
        facts=facts.model_copy(update={"parameters": count}),
        tensors=tensors,
        ignored=ignored,
        unmapped=unmapped,
    )


def read_config(file: Path, families: Iterable[ModelFamily]) -> Checkpoint:
    """A checkpoint that is not here, as far as its config.json tells: `parameters` are those of the family's row (0 for
    packed weights), and no tensor was seen. Raises CheckpointError or GapError."""
    model = find_model(read_json(file), families)
    facts = model_facts(file, model)
    count = parameters(model.family, facts) if facts.weights in WEIGHT_BYTES else 0
    return Checkpoint(file.parent, facts.model_copy(update={"parameters": count}), {}, (), ())


def _name(name: str, tensor: Expected, outer: Callable[[str], str], stored: Collection[str]) -> str:
    """The name, of those that a tensor may have, under which it is stored; its first one if it isn't."""
    names = [outer(choice) for choice in (name, *tensor.also)]
    return next((choice for choice in names if choice in stored), names[0])


def _stored_format(config: Mapping[str, Any], tensors: Iterable[StoredTensor]) -> str:
    """bf16, fp32, the safetensors name of another dtype, `mixed: ...`, or the name of a quantisation method."""
    if method := quantisation(config):
        return method
    dtypes = {tensor.dtype for tensor in tensors if len(tensor.shape) > 1}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        return FORMATS.get(dtype, dtype)
    return f"mixed: {', '.join(sorted(dtypes))}" if dtypes else "none"


def _check_names(
    path: Path, facts: ModelFacts, expected: list[str], stored: Collection[str], unmapped: Sequence[str]
) -> None:
    """Raises CheckpointError for missing tensors, and GapError where others are there that may be the same ones."""
    missing = [name for name in expected if name not in stored]
    if not missing:
        return
    what = (
        f"{len(missing)} of the {len(expected)} tensors of a {facts.model_type} with {facts.layers} layers are "
        f"missing: {_first(missing)}"
    )
    if unmapped:
        detail = f"{what}; and its models row does not know {len(unmapped)} that are there: {_first(unmapped)}"
        raise GapError((Gap(kind="weight mapping", subject=missing[0], detail=detail),))
    raise CheckpointError(f"{path}: {what}")


def _first(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"


def _check_shapes(path: Path, expected: Mapping[str, Expected], stored: Mapping[str, StoredTensor]) -> None:
    for name, (shape, axes, _) in expected.items():
        if stored[name].shape != shape:
            raise CheckpointError(
                f"{path}: {name} is {list(stored[name].shape)}, config.json makes it {list(shape)} [{axes}]"
            )
