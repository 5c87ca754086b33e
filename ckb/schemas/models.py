"""Table `models`: how a model family's config.json and tensor names are to be read."""

from ckb.facts import Frozen, Scalar
from ckb.records import Layer, Row
from ckb.schemas.arrow import schema_of


class ConfigField(Frozen):
    """Where one fact of ckb.facts.ModelFacts comes from. The first of keys, derive, default that gives a value wins."""

    keys: tuple[str, ...] = ()
    """Dotted paths in config.json, the first that is there and not null counts; `generation_config.NAME` is a key of
    generation_config.json."""
    only_if: str | None = None
    """A key of config.json that must be true for `keys` to count at all."""
    derive: str | None = None
    """Expression over other facts (ckb.expression): `hidden // heads`."""
    default: Scalar = None
    """Value when the checkpoint says nothing."""
    required: bool = False
    """Without it the checkpoint can't be read: no default exists."""


class TensorPattern(Frozen):
    """One kind of tensor of the family's checkpoints."""

    name: str
    """Name in the safetensors files; `{layer}` stands for 0 .. layers-1."""
    shape: tuple[str, ...] = ()
    """Each dimension as an expression over facts: `heads * head_dim`. Empty for ignored tensors: any shape."""
    when: str = ""
    """Predicate over `model.*` that must hold for the tensor to be there; empty is always."""


class ModelFamily(Row):
    """One model family: what its checkpoints say, under which names."""

    layer: Layer = "model"
    title: str
    """The family's name, for people."""
    model_type: str
    """`model_type` of config.json."""
    architectures: tuple[str, ...]
    """Class names in `architectures` of config.json that this row describes."""
    config: dict[str, ConfigField]
    """Fact name -> where it comes from."""
    tensors: tuple[TensorPattern, ...]
    """Every tensor that an engine must consume."""
    ignored: tuple[TensorPattern, ...] = ()
    """Tensors that may be there and that no engine needs."""
    text: str = ""
    """What sets the family apart, for people and implementers."""


SCHEMA = schema_of(ModelFamily)
