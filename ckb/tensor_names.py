"""The tensors that a checkpoint of a family must have, by name and shape, from its models row and its facts."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from ckb.expression import evaluate
from ckb.facts import ModelFacts, Scalar
from ckb.predicate import Predicate
from ckb.schemas.models import ModelFamily, TensorPattern, Wrapper


class Expected(NamedTuple):
    """What config.json makes of one tensor."""

    shape: tuple[int, ...]
    axes: str
    """The expressions that the shape comes from."""


@dataclass(frozen=True)
class Place:
    """What the predicates of the models table are asked of: the facts of a model, and one layer of it."""

    model: ModelFacts
    layer: int | None = None

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        """The value of `model.heads`, `layer.attention` or `layer.mlp`. KeyError for another name."""
        if self.layer is not None and path == "layer.attention":
            return self.model.attention_of(self.layer)
        if self.layer is not None and path == "layer.mlp":
            return self.model.mlp_of(self.layer)
        section, _, name = path.partition(".")
        if section != "model" or name not in ModelFacts.model_fields:
            raise KeyError(path)
        value: Scalar | tuple[Scalar, ...] = getattr(self.model, name)
        return value


def expected_tensors(family: ModelFamily, facts: ModelFacts) -> dict[str, Expected]:
    """Name, as in a checkpoint of the language model alone -> shape, of every tensor that must be there."""
    sizes = facts.model_dump()
    found = {}
    for pattern in family.tensors:
        if places := _places(pattern, facts):
            shape = Expected(tuple(evaluate(axis, sizes) for axis in pattern.shape), ", ".join(pattern.shape))
            found |= {name: shape for place in places for name in _expert_names(place, facts)}
    return found


def parameters(family: ModelFamily, facts: ModelFacts) -> int:
    """Stored elements of a checkpoint that holds the expected tensors and no others."""
    return sum(math.prod(tensor.shape) for tensor in expected_tensors(family, facts).values())


def ignored_names(
    family: ModelFamily, wrapper: Wrapper | None, facts: ModelFacts, outer: Callable[[str], str]
) -> list[str]:
    """Names, with `*`, of the tensors that no engine needs."""
    here = [outer(p.name) for p in family.ignored if Predicate(p.when).holds(Place(facts))]
    filled = [name.replace("{layers}", str(facts.layers)) for name in here]
    every = [name.replace("{layer}", "*").replace("{expert}", "*") for name in filled]
    return [*every, *(wrapper.ignored if wrapper else ())]


def outer_names(wrapper: Wrapper | None, stored: Collection[str]) -> Callable[[str], str]:
    """From a tensor's name in a checkpoint of the language model alone to its name among the stored ones."""
    if wrapper is None:
        return lambda name: name
    prefixes = {"model.": _prefix(wrapper.body, stored), "lm_head.": _prefix(wrapper.head, stored)}

    def rename(name: str) -> str:
        for inner, outer in prefixes.items():
            if name.startswith(inner):
                return outer + name.removeprefix(inner)
        return name

    return rename


def _prefix(choices: tuple[str, ...], stored: Collection[str]) -> str:
    return next((prefix for prefix in choices if any(name.startswith(prefix) for name in stored)), choices[0])


def _places(pattern: TensorPattern, facts: ModelFacts) -> list[str]:
    """The pattern's name for each layer that has the tensor."""
    condition = Predicate(pattern.when)
    if "{layer}" not in pattern.name:
        return [pattern.name] if condition.holds(Place(facts)) else []
    layers = (layer for layer in range(facts.layers) if condition.holds(Place(facts, layer)))
    return [pattern.name.replace("{layer}", str(layer)) for layer in layers]


def _expert_names(name: str, facts: ModelFacts) -> list[str]:
    if "{expert}" not in name:
        return [name]
    return [name.replace("{expert}", str(expert)) for expert in range(facts.experts)]
