"""Reads a Hugging Face directory without torch and without transformers: its facts, and the tensors behind them.

How a family's config.json and tensor names are to be read is knowledge: rows of the models table. A checkpoint that is
broken raises CheckpointError; one that is sound but that no row describes raises GapError and names what is missing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ckb.expression import evaluate
from ckb.facts import WEIGHT_BYTES, ModelFacts, Scalar
from ckb.gaps import Gap, GapError
from ckb.predicate import Predicate
from ckb.schemas.models import ConfigField, ModelFamily, TensorPattern
from ckb.shards import CheckpointError, StoredTensor, read_json, read_tensors

FORMATS = {"F32": "fp32", "BF16": "bf16"}
POSITIVE = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "max_positions")


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
    config = read_json(path / "config.json")
    family = find_family(config, families)
    if not (path / "tokenizer.json").is_file():
        raise CheckpointError(f"{path} has no tokenizer.json: an engine can't be made without its tokenizer")
    if (path / "generation_config.json").exists():
        config = {**config, "generation_config": read_json(path / "generation_config.json")}
    stored = read_tensors(path)
    facts = _facts(path, family, config, _weight_format(config, stored.values()))
    ignored = tuple(n for n in stored if any(fnmatchcase(n, p) for p in _names(family.ignored, facts, layer="*")))
    expected = {name: pattern for pattern in family.tensors for name in _expand(pattern, facts)}
    if facts.weights in WEIGHT_BYTES:
        _check_tensors(path, facts, expected, stored)
    tensors = {name: tensor for name, tensor in stored.items() if name not in ignored}
    count = sum(math.prod(tensor.shape) for tensor in tensors.values())
    return Checkpoint(
        path=path,
        facts=facts.model_copy(update={"parameters": count}),
        tensors=tensors,
        ignored=ignored,
        unmapped=tuple(name for name in tensors if name not in expected),
    )


def find_family(config: Mapping[str, Any], families: Iterable[ModelFamily]) -> ModelFamily:
    """The models row for a config.json. Raises GapError, naming what was found, when no row describes it."""
    rows = {family.model_type: family for family in families if family.status != "deprecated"}
    known = ", ".join(sorted(rows)) or "none"
    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    gaps = []
    if not isinstance(model_type, str) or not isinstance(architectures, list):
        raise CheckpointError(f"config.json: model_type is {model_type!r} and architectures {architectures!r}")
    if "text_config" in config:
        inner = config["text_config"].get("model_type") if isinstance(config["text_config"], dict) else None
        detail = f"config.json nests the language model (model_type {inner}) in text_config, which no models row reads"
        gaps.append(Gap(kind="model structure", subject=f"{model_type}.text_config", detail=detail))
    if model_type not in rows:
        detail = f"no row of the models table has this model_type; there are {known}"
        gaps.append(Gap(kind="model structure", subject=model_type, detail=detail))
    elif strangers := [name for name in architectures if name not in rows[model_type].architectures]:
        detail = f"the row of {model_type} describes {', '.join(rows[model_type].architectures)}"
        gaps.append(Gap(kind="model structure", subject=", ".join(map(str, strangers)), detail=detail))
    if gaps:
        raise GapError(tuple(gaps))
    return rows[model_type]


def _facts(path: Path, family: ModelFamily, config: Mapping[str, Any], weights: str) -> ModelFacts:
    """The facts of config.json, `parameters` left at 0."""
    file = path / "config.json"
    fields, missing = {}, []
    for name, source in family.config.items():
        fields[name] = _look_up(source, config)
        if fields[name] is None and source.required:
            missing.append(f"{' or '.join(source.keys)} ({name})")
    if missing:
        raise CheckpointError(f"{file} lacks {', '.join(missing)}")
    for name, source in family.config.items():
        if fields[name] is None and source.derive:
            fields[name] = evaluate(source.derive, fields)
        elif fields[name] is None:
            fields[name] = source.default
    ends = fields.get("eos_tokens")
    fields["eos_tokens"] = ends if isinstance(ends, list) else [] if ends is None else [ends]
    architecture = (config.get("architectures") or [family.architectures[0]])[0]
    given = {"model_type": family.model_type, "architecture": architecture, "weights": weights, "parameters": 0}
    try:
        facts = ModelFacts.model_validate(fields | given)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors()]
        raise CheckpointError(f"{file}: {'; '.join(faults)}") from error
    _check_facts(file, facts)
    return facts


def _look_up(source: ConfigField, config: Mapping[str, Any]) -> Any:
    if source.only_if and not config.get(source.only_if):
        return None
    for key in source.keys:
        value: Any = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _check_facts(file: Path, facts: ModelFacts) -> None:
    for name in POSITIVE:
        if getattr(facts, name) < 1:
            raise CheckpointError(f"{file}: {name} is {getattr(facts, name)}, it must be at least 1")
    if facts.heads % facts.kv_heads:
        raise CheckpointError(f"{file}: {facts.heads} query heads can't share {facts.kv_heads} key and value heads")


def _weight_format(config: Mapping[str, Any], tensors: Iterable[StoredTensor]) -> str:
    """bf16, fp32, the safetensors name of another dtype, `mixed: ...`, or the name of a quantisation method."""
    quantisation = config.get("quantization_config")
    if isinstance(quantisation, dict):
        return str(quantisation.get("quant_method", "quantised"))
    dtypes = {tensor.dtype for tensor in tensors if len(tensor.shape) > 1}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        return FORMATS.get(dtype, dtype)
    return f"mixed: {', '.join(sorted(dtypes))}" if dtypes else "none"


@dataclass(frozen=True)
class _ModelOnly:
    """Facts of the model alone, for the predicates of the models table."""

    model: ModelFacts

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        section, _, name = path.partition(".")
        if section != "model" or name not in ModelFacts.model_fields:
            raise KeyError(path)
        value: Scalar | tuple[Scalar, ...] = getattr(self.model, name)
        return value


def _names(patterns: Iterable[TensorPattern], facts: ModelFacts, layer: str) -> list[str]:
    here = (pattern for pattern in patterns if Predicate(pattern.when).holds(_ModelOnly(facts)))
    return [pattern.name.replace("{layer}", layer) for pattern in here]


def _expand(pattern: TensorPattern, facts: ModelFacts) -> Iterator[str]:
    for layer in range(facts.layers) if "{layer}" in pattern.name else range(1):
        yield from _names([pattern], facts, str(layer))


def _check_tensors(
    path: Path, facts: ModelFacts, expected: Mapping[str, TensorPattern], stored: Mapping[str, StoredTensor]
) -> None:
    if missing := [name for name in expected if name not in stored]:
        raise CheckpointError(
            f"{path}: {len(missing)} of the {len(expected)} tensors of a {facts.model_type} with {facts.layers} layers "
            f"are missing: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}"
        )
    sizes = facts.model_dump()
    for name, pattern in expected.items():
        shape = tuple(evaluate(axis, sizes) for axis in pattern.shape)
        if stored[name].shape != shape:
            raise CheckpointError(
                f"{path}: {name} is {list(stored[name].shape)}, config.json makes it {list(shape)} "
                f"[{', '.join(pattern.shape)}]"
            )
