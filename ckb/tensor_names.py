"""The tensors that a checkpoint of a family must have, by name and shape, from its models row and its facts."""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckb.expression import evaluate
from ckb.facts import ModelFacts, Scalar
from ckb.predicate import Predicate
from ckb.schemas.models import ModelFamily, Wrapper


class Expected(NamedTuple):
    """What config.json makes of one tensor."""

    shape: tuple[int, ...]
    axes: str
    """The expressions that the shape comes from."""
    also: tuple[str, ...] = ()
    """Its other names."""


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
    found: dict[str, Expected] = {}
    for pattern in family.tensors:
        names = [list(_names(name, pattern.when, facts)) for name in (pattern.name, *pattern.also)]
        if names[0]:
            shape = tuple(evaluate(axis, sizes) for axis in pattern.shape)
            axes = ", ".join(pattern.shape)
            found |= {name: Expected(shape, axes, tuple(also)) for name, *also in zip(*names, strict=True)}
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


def _names(name: str, when: str, facts: ModelFacts) -> Iterator[str]:
    """A pattern's name for each layer and expert that has the tensor."""
    condition = Predicate(when)
    for layer in range(facts.layers) if "{layer}" in name else (None,):
        if condition.holds(Place(facts, layer)):
            here = name.replace("{layer}", str(layer))
            experts = range(facts.experts) if "{expert}" in name else (0,)
            yield from (here.replace("{expert}", str(expert)) for expert in experts)
