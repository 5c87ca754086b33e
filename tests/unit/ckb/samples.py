"""One row of each table with no field at its default, facts, and small checkpoints, for the tests of ckb."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.knowledge_files import KNOWLEDGE, read_yaml_row
from ckb.records import (
    Contract,
    ErrorCase,
    FailureMode,
    Fragment,
    Function,
    Provenance,
    Row,
    Tensor,
    Transition,
)
from ckb.schemas import (
    Definition,
    Experience,
    Guide,
    ModelFamily,
    Parallelism,
    Platform,
    Run,
    Solution,
    TestContract,
    Trace,
    Workload,
)
from ckb.schemas.definitions import Axis, TensorSpec
from ckb.schemas.experience import Evidence
from ckb.schemas.guides import Compatibility, Step
from ckb.schemas.models import ConfigField, Feature, LayerPattern, TensorPattern, Wrapper
from ckb.schemas.parallelism import Partition
from ckb.schemas.platforms import Device, Measurement, PlatformOperator, TriedOperator
from ckb.schemas.runs import Median
from ckb.schemas.solutions import SourceFile
from ckb.schemas.traces import Correctness, Environment, Performance
from ckb.schemas.workloads import InputSpec
from ckb.violations import Violation

ROW: dict[str, Any] = {
    "id": "a",
    "layer": "framework",
    "applies_to": "model.heads > 1",
    "status": "draft",
    "provenance": Provenance(source="run", run="r", issue="i", candidate="c", verdict="v", references=("p", "q")),
    "created": "2026-01-02",
}

ROWS: dict[str, Row] = {
    "contracts": Contract(
        **ROW,
        title="t",
        stage="execution",
        module="kernels.py",
        order=3,
        interface=(
            Function(
                name="f",
                takes=(Tensor(name="x", shape=("M", "K"), dtype="compute", placement="device"),),
                returns=(Tensor(name="y", shape=(), dtype="float32"), Tensor(name="z", shape=None, dtype="int")),
                does="d",
            ),
        ),
        native=(Function(name="g", does="d"),),
        requires=("b",),
        decisions={"zeta": (1, 1.0, True, "1"), "alpha": (False, 0)},
        decision_requires={"zeta=1": "model.qk_norm"},
        state=("s",),
        transitions=(Transition(subject="s", before="b", event="e", after="a"),),
        error_cases=(ErrorCase(function="f", condition="c", exception="ValueError", message=("m", "n")),),
        failures=(FailureMode(symptom="s", cause="c"), FailureMode(symptom="t", cause="d")),
        test="t",
        text="Größe\n",
    ),
    "fragments": Fragment(
        **ROW,
        contract="b",
        title="t",
        rank=-1,
        parameters={"ROWS": (4, 8)},
        parameter_requires={"ROWS=8": "platform.cores > 1"},
        constants=("HIDDEN",),
        affects=("linear",),
        imports=("import torch",),
        code="x = 1\n",
    ),
    "guides": Guide(
        **ROW,
        title="t",
        kind="procedure",
        roles=("implementer", "judge"),
        contracts=("b",),
        compatibility=(
            Compatibility(
                backend="torch", platforms=("p", "q"), state="partial", condition="model.heads > 2", why="w", source="s"
            ),
            Compatibility(backend="avx2", platforms=("p",), state="untried", why="w"),
        ),
        calls=(Function(name="f", takes=(Tensor(name="x", shape=("M",), dtype="int64"),), does="d"),),
        steps=(Step(role="judge", does="d", hands_over="h", ends_when="e"),),
        limits=("l",),
        failures=(FailureMode(symptom="s", cause="c"),),
        text="x",
    ),
    "models": ModelFamily(
        **ROW,
        title="t",
        model_type="llama",
        architectures=("A", "B"),
        wrappers=(Wrapper(model_type="w", architectures=("C",), body=("b.",), head=("h.",), ignored=("v.*",)),),
        config={
            "heads": ConfigField(
                keys=("h", "i.j"),
                only_if="k",
                nullable=True,
                derive="a * 2",
                pattern=LayerPattern(keys=("n",), period=3, others="o", last="l"),
                default=False,
                required=True,
            )
        },
        tensors=(TensorPattern(name="w.{layer}", also=("v.{layer}",), shape=("a", "b * 2"), when="model.qk_norm"),),
        ignored=(TensorPattern(name="z"),),
        features=(Feature(name="f", kind="operator", when="model.qk_norm", text="x"),),
        text="x",
    ),
    "platforms": Platform(
        **ROW,
        title="t",
        accelerator="cpu",
        dtypes=("float32",),
        devices=(
            Device(name="d", memory_bytes=3, read_gb_s=1.5, tflops={"bf16": 2.5}, link_gb_s=0.5, source="s"),
            Device(name="e", source="s"),
        ),
        measured=(Measurement(what="w", value=1.5, unit="ms", source="s"),),
        operators=(PlatformOperator(name="torch", state="installed", fallback="numpy, 3 times slower", note="n"),),
        graph_capture="g",
        collectives="c",
        constraints=("c",),
        text="x",
    ),
    "parallelism": Parallelism(
        **ROW,
        title="t",
        kind="tensor",
        degree="platform.count == 2",
        divides=("heads",),
        divides_or_copies=("kv_heads",),
        partitions=(Partition(tensor="w", axis="rows", collective="all_reduce"),),
        text="x",
    ),
    "experience": Experience(
        **ROW,
        title="t",
        kind="optimisation",
        meaning="m",
        metric="tpot_ms",
        change={"kv_layout": "head_major", "ROWS": 8},
        effect=0.25,
        interval=(0.125, 0.5),
        fixed="s2/kv_cache",
        signal="probable",
        text="x",
        scope="fact",
        evidence=(Evidence(target="t", run="r", effect=0.25, interval=(0.125, 0.5), fixed="s/g", text="x"),),
    ),
    "test_contracts": TestContract(**ROW, contract="b", stage="model", level="L2", gate="g", text="x"),
    "definitions": Definition(
        **ROW,
        op_type="gemm",
        axes=(Axis(name="N", type="const", value=4, description="d"), Axis(name="M", type="var")),
        inputs=(
            TensorSpec(name="x", shape=("M", "N"), dtype="float32", description="d"),
            TensorSpec(name="s", shape=None, dtype="int32"),
        ),
        outputs=(TensorSpec(name="y", shape=(), dtype="float32"),),
        reference="def run(x, s): ...\n",
        tags=("stage:decode",),
        description="d",
        constraints=("M > 0",),
    ),
    "workloads": Workload(
        **ROW,
        definition="d",
        axes={"M": 7},
        inputs={
            "x": InputSpec(type="safetensors", path="p", tensor_key="k"),
            "flag": InputSpec(type="scalar", value=True),
            "count": InputSpec(type="scalar", value=2),
            "scale": InputSpec(type="scalar", value=2.0),
        },
    ),
    "solutions": Solution(
        **ROW,
        definition="d",
        author="composer",
        language="cpp",
        target_hardware=("cpu",),
        entry_point="main.cpp::run",
        dependencies=("torch",),
        destination_passing_style=False,
        binding="torch",
        sources=(SourceFile(path="main.cpp", content="int x;"),),
        description="d",
    ),
    "traces": Trace(
        **ROW,
        definition="d",
        workload="u",
        axes={"M": 7},
        solution="s",
        evaluation="PASSED",
        environment=Environment(hardware="cpu", libs={"torch": "2"}),
        timestamp="2026-01-02T03:04:05Z",
        correctness=Correctness(max_relative_error=0.5, max_absolute_error=0.25, extra={"ratio": 1.0}),
        performance=Performance(latency_ms=1.0, reference_latency_ms=2.0, speedup_factor=2.0),
        log="l",
    ),
    "runs": Run(
        **ROW,
        target="demo",
        engine="e",
        model_type="llama",
        platform="cpu",
        knowledge=1,
        plan="p",
        tree="t",
        verdict="v",
        commit="c",
        author="composer",
        sources="on",
        choices={"kv_layout": "head_major", "fused": True},
        fragments=("f",),
        metric="tpot_ms",
        value=12.5,
        medians=(Median(arm="x", prompt_tokens=11, new_tokens=32, metric="tpot_ms", value=12.5),),
        candidates=4,
        violations=(Violation(candidate="c", gate="audit", kind="static", file="model.py", line=3, what="imports x"),),
        operators=(
            TriedOperator(
                name="torch",
                device="cpu",
                state="usable",
                speeds=(Measurement(what="w", value=20.5, unit="GB/s", source="s"),),
                foreign_cpu=0.5,
                libraries={"torch": "2.11"},
                machine="m",
                tried="2026-11-30T10:00:00+00:00",
                sandbox="x",
            ),
            TriedOperator(name="triton", device="cpu", state="absent", why="no package triton"),
        ),
    ),
}


def experience(id: str, **fields: Any) -> Experience:
    """A small row to fill tables with; an effect has an interval of a twentieth on either side."""
    defaults: dict[str, Any] = {"title": "t", "kind": "debugging", "signal": "confirmed", "text": f"about {id}"}
    if fields.get("effect") is not None:
        defaults["interval"] = (fields["effect"] - 0.05, fields["effect"] + 0.05)
    return Experience(id=id, **{**defaults, **fields})


MODEL = ModelFacts(
    model_type="llama",
    architecture="LlamaForCausalLM",
    layers=2,
    hidden=8,
    intermediate=12,
    heads=2,
    kv_heads=1,
    head_dim=16,
    vocab=10,
    max_positions=64,
    norm_eps=1e-5,
    rope_theta=10000.0,
    rope_type="default",
    qk_norm=False,
    attention_bias=False,
    mlp_bias=False,
    activation="silu",
    sliding_window=None,
    tied_head=True,
    weights="bf16",
    parameters=1000,
    bos_token=1,
    eos_tokens=(2,),
)
PLATFORM = PlatformFacts(
    accelerator="cpu", name="test", count=1, cores=2, isa=("avx2",), memory_bytes=1 << 33, compiler="g++"
)
WORKLOAD = WorkloadFacts(
    kind="single_stream",
    batch=1,
    max_prompt=16,
    max_new=8,
    dtype="float32",
    step="graph",
    serve="offline",
    decoding="greedy",
)
FACTS = Facts(model=MODEL, platform=PLATFORM, workload=WORKLOAD)


def facts(**changes: Any) -> Facts:
    """FACTS with some fields changed: `heads=4`, `compiler=None`, `dtype="bfloat16"`."""
    parts = {}
    for name in ("model", "platform", "workload"):
        part = getattr(FACTS, name)
        own = {key: value for key, value in changes.items() if key in type(part).model_fields}
        parts[name] = part.model_copy(update=own)
    return Facts(**parts)


@cache
def families() -> tuple[ModelFamily, ...]:
    """The seed's models table."""
    return tuple(read_yaml_row(path, ModelFamily) for path in sorted((KNOWLEDGE / "models").glob("*.yaml")))


CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 10,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that a checkpoint of this config has."""
    h, i = config["hidden_size"], config["intermediate_size"]
    d = config.get("head_dim") or h // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], h)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}."
        found |= {f"{layer}{norm}.weight": (h,) for norm in ("input_layernorm", "post_attention_layernorm")}
        found |= {f"{layer}self_attn.{p}_proj.weight": s for p, s in (("q", (q, h)), ("k", (kv, h)), ("v", (kv, h)))}
        found |= {f"{layer}self_attn.o_proj.weight": (h, q), f"{layer}mlp.down_proj.weight": (h, i)}
        found |= {f"{layer}mlp.{p}_proj.weight": (i, h) for p in ("gate", "up")}
        if config["model_type"] == "qwen3":
            found |= {f"{layer}self_attn.{p}_norm.weight": (d,) for p in "qk"}
    found["model.norm.weight"] = (h,)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], h)
    return found


def safetensors(tensors: dict[str, tuple[int, ...]], dtype: str = "BF16") -> bytes:
    """A safetensors file of zeros."""
    size = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1}[dtype]
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + math.prod(shape) * size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def write_checkpoint(folder: Path, config: dict[str, Any] | None = None, dtype: str = "BF16") -> Path:
    """A whole, tiny model directory."""
    config = CONFIG if config is None else config
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors(shapes(config), dtype))
    return folder
