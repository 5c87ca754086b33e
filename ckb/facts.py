"""What is known of a model, a platform and a workload: the facts that predicates in the knowledge base speak about."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Dtype = Literal["float32", "bfloat16"]
Accelerator = Literal["cpu", "cuda", "hip", "metal"]
"""Targets offer cpu and cuda; the others are described, and coverage says that no engine of ours runs there."""
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
    features: tuple[str, ...] = ()
    """What is special about the model: names of the features of its models row that it has."""
    layer_kinds: tuple[str, ...] = ()
    """Attention of each layer: full_attention, sliding_attention, linear_attention. Empty: all are alike."""
    experts: int = 0
    """Routed experts of a layer; 0: every MLP is dense."""
    experts_per_token: int = 0
    expert_intermediate: int = 0
    """Width of one routed expert."""
    shared_experts: int = 0
    """Experts that every token passes, stored as one."""
    shared_intermediate: int = 0
    """Width of all shared experts together; 0: there are none."""
    expert_step: int = 1
    """Only every expert_step-th layer has experts."""
    dense_first: int = 0
    """So many first layers have a dense MLP."""
    dense_layers: tuple[int, ...] = ()
    """Further layers with a dense MLP."""
    linear_key_heads: int = 0
    """Heads of linear attention: queries and keys."""
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    """Size of one key head of linear attention."""
    linear_value_dim: int = 0
    conv_kernel: int = 0
    """Positions that the short convolution before linear attention sees."""
    query_rank: int | None = None
    """Latent attention: width that queries are compressed to; None: they are not."""
    kv_rank: int = 0
    """Latent attention: width of the cached latent; 0: keys and values are cached by head."""
    nope_dim: int = 0
    """Latent attention: part of a query or key head without a rotary embedding."""
    rope_dim: int = 0
    """Latent attention: part with one; it is cached once for all heads."""
    value_dim: int = 0
    """Latent attention: size of a value head."""

    def attention_of(self, layer: int) -> str:
        """Kind of attention of a layer."""
        return self.layer_kinds[layer] if self.layer_kinds else "full_attention"

    def mlp_of(self, layer: int) -> Literal["dense", "experts"]:
        """Kind of MLP of a layer."""
        dense = layer < self.dense_first or layer in self.dense_layers or (layer + 1) % self.expert_step
        return "experts" if self.experts and not dense else "dense"

    @property
    def weight_bytes(self) -> int:
        """Bytes of all stored parameters in the checkpoint's own format."""
        return self.parameters * WEIGHT_BYTES.get(self.weights, 4)

    @property
    def idle_parameters(self) -> int:
        """Parameters of routed experts that one token does not pass."""
        layers = sum(self.mlp_of(layer) == "experts" for layer in range(self.layers))
        return layers * (self.experts - self.experts_per_token) * 3 * self.hidden * self.expert_intermediate

    def kv_bytes(self, tokens: int, dtype: str) -> int:
        """Bytes of a key and value cache of `tokens` positions. Linear attention keeps none; what a sliding window
        could drop is counted."""
        layers = self.layers - self.layer_kinds.count("linear_attention")
        width = self.kv_rank + self.rope_dim if self.kv_rank else 2 * self.kv_heads * self.head_dim
        return layers * width * tokens * DTYPE_BYTES[dtype]

    def decode_bytes(self, context: int, dtype: str) -> int:
        """Bytes that one decoded token must read at least: each weight that it passes once (of an untied embedding
        table only one row), and the cache of `context` positions. A tied table is read whole, as the output
        projection."""
        embedding = 0 if self.tied_head else self.vocab * self.hidden
        weights = (self.parameters - embedding - self.idle_parameters) * WEIGHT_BYTES.get(self.weights, 4)
        return weights + self.kv_bytes(context, dtype)


class PlatformFacts(Frozen):
    """The machine (or the one device group of it) that an engine is made for."""

    accelerator: Accelerator
    name: str
    """Processor or device name."""
    count: int
    cores: int
    """Physical cores that this process may run on: the number of compute threads."""
    isa: tuple[str, ...]
    """Instruction sets of the CPU that kernels may use: avx2, fma, f16c, avx512f, ..."""
    memory_bytes: int
    compiler: str | None
    """C++ compiler command that torch.utils.cpp_extension can use (with ninja), or None; in a Plan None also where a
    small kernel that was compiled with it failed."""
    operators: tuple[str, ...] = ()
    """Operator libraries of which a small kernel ran here and gave right results: torch, cpp, triton, ..."""
    architecture: str = ""
    """What kernels are compiled for: sm_90, gfx942, x86_64."""
    capability: float = 0.0
    """CUDA compute capability, 9.0 for Hopper; 0 for everything else."""


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
