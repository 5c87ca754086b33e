"""From a config.json to the facts of a model: which row of the models table reads it, and what that row makes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ckb.errors import UserError
from ckb.expression import evaluate
from ckb.facts import ModelFacts
from ckb.gaps import Gap, GapError
from ckb.predicate import Predicate
from ckb.schemas.models import TEXT_CONFIG, ConfigField, LayerPattern, ModelFamily, Wrapper
from ckb.shards import CheckpointError
from ckb.tensor_names import Place

POSITIVE = (
    "layers",
    "hidden",
    "intermediate",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "max_positions",
    "expert_step",
)
MOST = {"layers": 10_000, "experts": 100_000}
"""More than any model has: a config that says more is broken, and would fill the memory with names."""
MOST_EXPERTS = 200_000
"""Routed experts of all layers together, for the same reason: each of them has tensors of its own names."""
MOST_INT = 2**63 - 1
"""What a number of the knowledge base's tables can be."""
KINDS = ("full_attention", "sliding_attention", "linear_attention")
FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "F16"}
OUTSIDE = ("tie_word_embeddings",)
"""Keys of which a nested config says nothing against the one around it: the head belongs to the outer model."""
SILENT = object()
"""What a config says of a key that is not there."""


@dataclass(frozen=True)
class ModelConfig:
    """A config.json with the row that reads it."""

    family: ModelFamily
    config: Mapping[str, Any]
    """Its keys; of a nested one those of the language model, with the outer ones behind them."""
    architecture: str
    """First of `architectures`, outside."""
    wrapper: Wrapper | None = None
    """The multimodal model around it."""

    def with_generation(self, generation: Mapping[str, Any]) -> "ModelConfig":
        """The same with the keys of generation_config.json under `generation_config`."""
        return replace(self, config={**self.config, "generation_config": generation})


def find_model(config: Mapping[str, Any], families: Iterable[ModelFamily]) -> ModelConfig:
    """The models row for a config.json.

    Raises CheckpointError for one that is broken, GapError, naming what was found, when no row describes it.
    """
    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    names = isinstance(architectures, list) and all(isinstance(name, str) for name in architectures)
    if not isinstance(model_type, str) or not names:
        raise CheckpointError(f"config.json: model_type is {model_type!r} and architectures {architectures!r}")
    rows = [family for family in families if family.status != "deprecated"]
    if config.get("text_config") is None:
        return _flat(config, model_type, architectures, rows)
    if not isinstance(config["text_config"], dict):
        raise CheckpointError(f"config.json: text_config is {config['text_config']!r}, no JSON object")
    return _nested(config, model_type, architectures, rows)


def _flat(config: Mapping[str, Any], model_type: str, architectures: list[str], rows: list[ModelFamily]) -> ModelConfig:
    family = next((row for row in rows if row.model_type == model_type), None)
    if family is None and any(wrapper.model_type == model_type for row in rows for wrapper in row.wrappers):
        detail = f"a {model_type} holds its language model in text_config, and this config.json has none"
        raise _refused(f"{model_type}.text_config", detail)
    if family is None:
        raise _refused(model_type, _unknown(rows))
    _refuse_strangers(model_type, architectures, family.architectures)
    return ModelConfig(family, config, (architectures or family.architectures)[0])


def _nested(
    config: Mapping[str, Any], model_type: str, architectures: list[str], rows: list[ModelFamily]
) -> ModelConfig:
    inner = config["text_config"]
    inside = inner.get("model_type")
    subject = f"{model_type}.text_config"
    around = [(row, wrapper) for row in rows for wrapper in row.wrappers if wrapper.model_type == model_type]
    found = [(row, wrapper) for row, wrapper in around if inside in (None, row.model_type)]
    if not around:
        detail = f"config.json nests the language model (model_type {inside}) in text_config, which no models row reads"
        known = any(row.model_type == model_type for row in rows)
        raise _refused(subject, detail, *(() if known else ((model_type, _unknown(rows)),)))
    if not found:
        known_inside = ", ".join(row.model_type for row, _ in around)
        raise _refused(subject, f"the language model inside is a {inside}; the rows know {known_inside} there")
    family, wrapper = found[0]
    _refuse_strangers(model_type, architectures, wrapper.architectures)
    outside = {key: config[key] for key in OUTSIDE if config.get(key) is not None}
    merged = {**config, **inner, **outside}
    return ModelConfig(family, merged, (architectures or wrapper.architectures)[0], wrapper)


def _refuse_strangers(model_type: str, architectures: list[str], known: tuple[str, ...]) -> None:
    if strangers := [name for name in architectures if name not in known]:
        raise _refused(", ".join(strangers), f"the row of {model_type} describes {', '.join(known)}")


def _refused(subject: str, detail: str, *more: tuple[str, str]) -> GapError:
    gaps = ((subject, detail), *more)
    return GapError(tuple(Gap(kind="model structure", subject=name, detail=why) for name, why in gaps))


def _unknown(rows: list[ModelFamily]) -> str:
    known = ", ".join(sorted(row.model_type for row in rows)) or "none"
    return f"no row of the models table has this model_type; there are {known}"


def model_facts(file: Path, model: ModelConfig, weights: str | None = None) -> ModelFacts:
    """The facts of a config.json, `parameters` left at 0. `weights`: how the matrices are stored, where their headers
    were read; else it is what the config says. `file` is named in errors.

    Raises CheckpointError for a config that contradicts itself, GapError for a kind of layer that is not known.
    """
    family = model.family
    fields = {name: _look_up(source, model.config) for name, source in family.config.items()}
    required = [(name, s) for name, s in family.config.items() if s.required and fields[name] is SILENT]
    if required:
        missing = ", ".join(f"{' or '.join(source.keys)} ({name})" for name, source in required)
        raise CheckpointError(f"{file} lacks {missing}")
    for name, source in family.config.items():
        if fields[name] is SILENT:
            fields[name] = _without_key(file, name, source, fields, model.config)
    ends = fields.get("eos_tokens")
    fields["eos_tokens"] = ends if isinstance(ends, list) else [] if ends is None else [ends]
    fields = {name: value for name, value in fields.items() if value is not None or _is_required(name)}
    fields |= {"model_type": family.model_type, "architecture": model.architecture, "parameters": 0}
    fields["weights"] = weights or config_format(model.config)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    try:  # strictly: "32" for 32 layers would pass here, after the layers' kinds were made for what is no number
        facts = ModelFacts.model_validate(fields, strict=True)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors()]
        raise CheckpointError(f"{file}: {'; '.join(faults)}") from error
    _check_facts(file, facts)
    special = [f.name for f in family.features if Predicate(f.when).holds(Place(facts))]
    return facts.model_copy(update={"features": (*special, *([TEXT_CONFIG.name] if model.wrapper else []))})


def _is_required(fact: str) -> bool:
    """Whether a fact must be said. The others have their own default: no experts, no linear attention."""
    field = ModelFacts.model_fields.get(fact)
    return field is None or field.is_required()


def config_format(config: Mapping[str, Any]) -> str:
    """How a config.json says that the matrices are stored: bf16, fp32, the name of a quantisation method or of another
    dtype; `unstated` if it doesn't."""
    if method := quantisation(config):
        return method
    dtype = config.get("dtype") or config.get("torch_dtype")
    return FORMATS.get(str(dtype), str(dtype)) if dtype else "unstated"


def quantisation(config: Mapping[str, Any]) -> str | None:
    """The method by which a config.json says that the matrices were quantised, with what tells its layouts apart."""
    how = config.get("quantization_config")
    if not isinstance(how, dict):
        return None
    method = str(how.get("quant_method", "quantised"))
    if method == "fp8" and not how.get("weight_block_size"):
        return "fp8-tensor"  # one scale a tensor, where `fp8` is one for each block
    if method == "compressed-tensors":
        return f"{method} {how.get('format')}"
    return f"{method} {how['bits']} bits" if "bits" in how else method


def _look_up(source: ConfigField, config: Mapping[str, Any]) -> Any:
    if source.only_if and not config.get(source.only_if):
        return SILENT
    for key in source.keys:
        value: Any = config
        for part in key.split("."):
            value = value.get(part, SILENT) if isinstance(value, dict) else SILENT
        if value is not SILENT and (value is not None or source.nullable):
            return value
    return SILENT


def _without_key(
    file: Path, name: str, source: ConfigField, fields: Mapping[str, Any], config: Mapping[str, Any]
) -> Any:
    """A fact that config.json doesn't state."""
    try:
        if source.derive:
            return evaluate(source.derive, fields)
        if source.pattern:
            return _layers(source.pattern, config, fields["layers"])
    except UserError as error:
        raise CheckpointError(f"{file}: {name}: {error}") from error
    return source.default


def _layers(pattern: LayerPattern, config: Mapping[str, Any], layers: Any) -> list[str]:
    if type(layers) is not int or layers > MOST["layers"]:
        return []  # the checks of `layers` itself, its type and its size, say what is wrong
    period = _look_up(ConfigField(keys=pattern.keys), config)
    period = pattern.period if period is SILENT else period
    if type(period) is not int or period < 1:
        raise UserError(f"{' or '.join(pattern.keys)} is {period!r}, it must be a whole number of layers")
    return [pattern.others if (layer + 1) % period else pattern.last for layer in range(layers)]


def _check_facts(file: Path, facts: ModelFacts) -> None:
    if huge := [name for name, value in facts if isinstance(value, int) and value > MOST_INT]:
        raise CheckpointError(f"{file}: {', '.join(huge)}: more than {MOST_INT}")
    for name in POSITIVE:
        if getattr(facts, name) < 1:
            raise CheckpointError(f"{file}: {name} is {getattr(facts, name)}, it must be at least 1")
    for name, most in MOST.items():
        if getattr(facts, name) > most:
            raise CheckpointError(f"{file}: {name} is {getattr(facts, name)}, no model has more than {most}")
    if facts.layers * facts.experts > MOST_EXPERTS:
        what = f"{facts.layers} layers of {facts.experts} experts are {facts.layers * facts.experts}"
        raise CheckpointError(f"{file}: {what}, no model has more than {MOST_EXPERTS}")
    if facts.heads % facts.kv_heads:
        raise CheckpointError(f"{file}: {facts.heads} query heads can't share {facts.kv_heads} key and value heads")
    if facts.experts_per_token > facts.experts:
        raise CheckpointError(f"{file}: a token can't pass {facts.experts_per_token} of {facts.experts} experts")
    if facts.layer_kinds and len(facts.layer_kinds) != facts.layers:
        raise CheckpointError(f"{file}: layer_types has {len(facts.layer_kinds)} entries for {facts.layers} layers")
    if unknown := sorted(set(facts.layer_kinds) - set(KINDS)):
        raise _refused(", ".join(unknown), f"layer_types names it; known kinds of layer are {', '.join(KINDS)}")
