"""Table `models`: how a model family's config.json and tensor names are to be read, and what is special about it."""

from typing import Literal

from ckb.facts import Frozen, Scalar
from ckb.records import Layer, Row


class LayerPattern(Frozen):
    """A kind for each layer where config.json has no list of them: the last layer of every `period` differs."""

    keys: tuple[str, ...] = ()
    """Where config.json states the period."""
    period: int
    """The period when it does not."""
    others: str
    """Kind of the first period - 1 layers of each group."""
    last: str
    """Kind of the last layer of each group."""


class ConfigField(Frozen):
    """Where one fact of ckb.facts.ModelFacts comes from. The first of keys, derive, pattern, default that gives a value
    wins."""

    keys: tuple[str, ...] = ()
    """Dotted paths in config.json, the first that is there and not null counts; `generation_config.NAME` is a key of
    generation_config.json."""
    only_if: str | None = None
    """A key of config.json that must be true for `keys` to count at all."""
    nullable: bool = False
    """A key that is there and null says null; without this it says nothing."""
    derive: str | None = None
    """Expression over other facts (ckb.expression): `hidden // heads`."""
    pattern: LayerPattern | None = None
    """One value for each layer."""
    default: Scalar = None
    """Value when the checkpoint says nothing."""
    required: bool = False
    """Without it the checkpoint can't be read: no default exists."""


class TensorPattern(Frozen):
    """One kind of tensor of the family's checkpoints."""

    name: str
    """Name in the safetensors files; `{layer}` stands for 0 .. layers-1, `{expert}` for 0 .. experts-1. Of ignored
    tensors `*` stands for anything and `{layers}` for the number of layers."""
    also: tuple[str, ...] = ()
    """Further names that some checkpoints store it under; the first that is there counts."""
    shape: tuple[str, ...] = ()
    """Each dimension as an expression over facts: `heads * head_dim`. Empty for ignored tensors: any shape."""
    when: str = ""
    """Predicate that must hold for the tensor to be there, over `model.*` and, with `{layer}` in the name,
    `layer.attention` (full_attention, sliding_attention, linear_attention) and `layer.mlp` (dense, experts); empty is
    always."""


class Feature(Frozen):
    """One thing that an engine of this family must do and that a plain Llama does not ask for."""

    name: str
    """As the knowledge that serves it asks for it: `'attention-sinks' in model.features`."""
    kind: Literal["model structure", "weight mapping", "operator"] = "model structure"
    """What it means that nothing serves it (ckb.gaps)."""
    when: str = ""
    """Predicate over `model.*`: which checkpoints of the family have it; empty is all."""
    text: str
    """What must be done, exactly enough to write it."""


TEXT_CONFIG = Feature(
    name="text-config",
    kind="weight mapping",
    text="The language model's config stands in text_config and its tensors under a prefix, among those of other "
    "modalities.",
)
"""Every model inside a wrapper has it."""


class Wrapper(Frozen):
    """A multimodal model that holds the family as its language model, in `text_config`."""

    model_type: str
    """`model_type` of config.json outside."""
    architectures: tuple[str, ...]
    """Class names in `architectures` outside: `...ForConditionalGeneration`."""
    body: tuple[str, ...]
    """What stands in the place of `model.` before a tensor's name; the first under which there is any tensor counts."""
    head: tuple[str, ...] = ("lm_head.",)
    """What stands in the place of `lm_head.`, likewise."""
    ignored: tuple[str, ...] = ()
    """Names, with `*`, of the tensors of the other modalities, which a text engine leaves alone."""


class ModelFamily(Row):
    """One model family: what its checkpoints say, under which names."""

    layer: Layer = "model"
    title: str
    """The family's name, for people."""
    model_type: str
    """`model_type` of config.json, or of its `text_config`."""
    architectures: tuple[str, ...]
    """Class names in `architectures` of config.json that this row describes."""
    wrappers: tuple[Wrapper, ...] = ()
    """Multimodal models around it."""
    config: dict[str, ConfigField]
    """Fact name -> where it comes from."""
    tensors: tuple[TensorPattern, ...]
    """Every tensor that an engine must consume."""
    ignored: tuple[TensorPattern, ...] = ()
    """Tensors that may be there and that no engine needs."""
    features: tuple[Feature, ...] = ()
    """What is special about the family. Each is a need of coverage."""
    text: str = ""
    """What sets the family apart, for people and implementers."""

    @property
    def every_architecture(self) -> tuple[str, ...]:
        """Its own class names and those of the models around it."""
        return (*self.architectures, *(name for wrapper in self.wrappers for name in wrapper.architectures))
