"""What is known of a model, a platform and a workload: the facts that predicates in the knowledge base speak about."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Dtype = Literal["float32", "bfloat16"]
WeightFormat = Literal["fp32", "bf16"]
Scalar = str | int | float | bool | None

WEIGHT_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2}
DTYPE_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2}


class Frozen(BaseModel):
    """Base of every stored record: immutable, unknown keys are errors, field docstrings become descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ModelFacts(Frozen):
    """A decoder checkpoint, as its config.json and its safetensors headers state it."""

    model_type: str
    """`model_type` of config.json: llama, qwen3."""
    architecture: str
    """First of `architectures` of config.json."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    """Query heads."""
    kv_heads: int
    head_dim: int
    vocab: int
    """Rows of the embedding table."""
    max_positions: int
    """Longest context that the checkpoint was made for, tokens."""
    norm_eps: float
    rope_theta: float
    rope_type: str
    """`default` is the plain rotary embedding; any other name is a scaling that needs its own contract."""
    qk_norm: bool
    """RMSNorm over each head of q and k before the rotary embedding (Qwen3)."""
    attention_bias: bool
    mlp_bias: bool
    activation: str
    """`hidden_act` of config.json."""
    sliding_window: int | None
    tied_head: bool
    """The output projection is the embedding table."""
    weights: str
    """How the checkpoint stores its matrices: bf16, fp32, or the safetensors name of another format."""
    parameters: int
    """Stored elements, a tied head counted once."""
    bos_token: int | None
    eos_tokens: tuple[int, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all stored parameters in the checkpoint's own format."""
        return self.parameters * WEIGHT_BYTES.get(self.weights, 4)

    def kv_bytes(self, tokens: int, dtype: str) -> int:
        """Bytes of a key and value cache of `tokens` positions."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * DTYPE_BYTES[dtype]

    def decode_bytes(self, context: int, dtype: str) -> int:
        """Bytes that one decoded token must read at least: each weight once (of an untied embedding table only one
        row), and the cache of `context` positions. A tied table is read whole, as the output projection."""
        embedding = 0 if self.tied_head else self.vocab * self.hidden
        weights = (self.parameters - embedding) * WEIGHT_BYTES.get(self.weights, 4)
        return weights + self.kv_bytes(context, dtype)


class PlatformFacts(Frozen):
    """The machine (or the one device group of it) that an engine is made for."""

    accelerator: Literal["cpu", "cuda"]
    name: str
    """Processor or device name."""
    count: int
    cores: int
    """Physical cores that this process may run on: the number of compute threads."""
    isa: tuple[str, ...]
    """Instruction sets of the CPU that kernels may use: avx2, fma, f16c, avx512f, ..."""
    memory_bytes: int
    compiler: str | None
    """C++ compiler command that torch.utils.cpp_extension can use (with ninja), or None."""


class WorkloadFacts(Frozen):
    """What the engine is asked to do, as far as knowledge depends on it."""

    kind: str
    """single_stream, batch, poisson, ramp."""
    batch: int
    """Most sequences at once."""
    max_prompt: int
    """Longest prompt that is measured, tokens."""
    max_new: int
    """Most new tokens of one request, when it is measured."""
    context: int | None = None
    """Most tokens of one sequence, where the Target asks for more than it measures."""
    dtype: Dtype
    """Compute dtype: activations, accumulation results and cache."""
    step: Literal["eager", "graph"]
    """eager: operator by operator; graph: the decode step may be captured or compiled as one program."""
    serve: Literal["offline", "server"]
    decoding: Literal["greedy", "sample"]

    @property
    def max_context(self) -> int:
        """Most tokens of one sequence, prompt and new ones together."""
        return self.context or self.max_prompt + self.max_new


class Facts(Frozen):
    """Everything that a predicate may ask about, plus the choices of one candidate."""

    model: ModelFacts
    platform: PlatformFacts
    workload: WorkloadFacts

    def lookup(self, path: str) -> Scalar | tuple[Scalar, ...]:
        """The value of `model.heads`, `platform.isa`, `workload.max_context`, ... KeyError for an unknown name."""
        if path not in FACT_NAMES:
            raise KeyError(path)
        section, _, name = path.partition(".")
        value: Scalar | tuple[Scalar, ...] = getattr(getattr(self, section), name)
        return value


def _names(section: str, record: type[Frozen]) -> set[str]:
    computed = {name for name, member in vars(record).items() if isinstance(member, property)}
    return {f"{section}.{name}" for name in computed | set(record.model_fields)}


FACT_NAMES = frozenset(
    _names("model", ModelFacts) | _names("platform", PlatformFacts) | _names("workload", WorkloadFacts)
)
"""Every name that a predicate may ask about, besides `choice.*`."""
