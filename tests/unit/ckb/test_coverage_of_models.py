"""Coverage of real models, from their config.json alone, against a table of what is missing for each on a CPU."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ckb.build import read_seed
from ckb.coverage import Coverage, coverage, refused
from ckb.facts import Facts, ModelFacts
from ckb.gaps import GapError
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.model_config import find_model, model_facts
from ckb.partition import hindrances
from ckb.predicate import Predicate
from ckb.records import Row
from ckb.schemas import ModelFamily, Parallelism, Platform, TestContract
from ckb.schemas.models import TEXT_CONFIG
from ckb.shards import CheckpointError
from ckb.tensor_names import expected_tensors, parameters
from tests.unit.ckb.samples import PLATFORM, WORKLOAD, facts, families

CONFIGS = Path(__file__).parent / "configs"
"""One config.json a file: the keys that say something about the model, with the values of the released checkpoint; for
Qwen3.5 and OLMo-Hybrid with those of the configuration class, whose counts in READ were added up by hand."""

MODEL, MAPPING, OPERATOR, FORMAT = "model structure", "weight mapping", "operator", "weight format"
Gaps = set[tuple[str, str]]


def gaps(kind: str, *subjects: str) -> Gaps:
    return {(kind, subject) for subject in subjects}


NESTED = gaps(MAPPING, "text-config")
QWEN2 = gaps(MODEL, "qkv-bias", "attention-block")
MOE = gaps(MODEL, "moe-softmax-router", "moe-experts")
GEMMA3 = gaps(
    MODEL, "four-norms", "sliding-layers", "embedding-scale", "logit-softcap", "attention-block", "silu-mul"
) | gaps(OPERATOR, "rms-norm-offset", "rope-by-layer-kind", "attention-scale")
GPT_OSS = gaps(
    MODEL, "sliding-layers", "moe-topk-softmax-router", "moe-experts", "attention-block", "mlp", "rope"
) | gaps(OPERATOR, "rms-norm-round-last", "attention-sinks", "expert-clamped-glu")
QWEN3_5 = gaps(MODEL, "attention-output-gate", "recurrent-state-cache") | gaps(
    OPERATOR, "rms-norm-offset", "partial-rotary", "gated-delta-net", "gated-norm"
)
OLMO = gaps(MODEL, "qk-norm-full", "norm-after-block", "no-position", "recurrent-state-cache", "rope") | gaps(
    OPERATOR, "rms-norm-round-last", "gated-delta-net", "gated-norm"
)
DEEPSEEK = gaps(
    MODEL, "latent-attention", "moe-sigmoid-group-router", "moe-experts", "moe-shared-expert", "rope"
) | gaps(OPERATOR, "rope-interleaved", "yarn-attention-scale")

READ: dict[str, tuple[int | None, Gaps]] = {
    "llama-2-7b": (6_738_415_616, set()),
    "llama-2-7b-float16": (6_738_415_616, gaps(FORMAT, "F16", "weight-format")),
    "llama-3.1-8b": (8_030_261_248, gaps(MODEL, "rope")),
    "llama-3.2-1b": (1_235_814_400, gaps(MODEL, "rope")),
    "smollm2-135m": (134_515_008, set()),
    "mistral-7b-v0.1": (7_241_732_096, gaps(MODEL, "attention-block")),
    "mistral-7b-v0.3": (7_248_023_552, set()),
    "mistral-small-3.1-24b": (23_572_403_200, NESTED),
    "qwen2.5-0.5b": (494_032_768, QWEN2),
    "qwen2.5-7b": (7_615_616_512, QWEN2),
    "qwen3-0.6b": (596_049_920, set()),
    "qwen3-8b": (8_190_735_360, set()),
    "qwen3-8b-fp8": (8_190_735_360, gaps(FORMAT, "fp8", "weight-format")),
    "qwen3-30b-a3b": (30_532_122_624, MOE),
    "gemma-3-1b": (999_885_952, GEMMA3),
    "gemma-3-4b": (3_880_263_168, GEMMA3 | NESTED | gaps(MODEL, "rope")),
    "gpt-oss-20b": (None, GPT_OSS | gaps(FORMAT, "mxfp4", "weight-format")),
    "gpt-oss-20b-bf16": (20_914_757_184, GPT_OSS),
    "qwen3.5-9b": (8_953_803_264, QWEN3_5 | NESTED),
    "qwen3.5-9b-text": (8_953_803_264, QWEN3_5),
    "qwen3.5-35b-a3b": (34_660_610_688, QWEN3_5 | MOE | gaps(MODEL, "moe-gated-shared-expert") | NESTED),
    "olmo-hybrid-7b": (7_430_870_688, OLMO),
    "deepseek-v3": (671_026_419_200, DEEPSEEK | gaps(FORMAT, "fp8", "weight-format")),
}
"""Config -> stored parameters of the language model (None: packed, so that elements are none), and the gaps."""

REFUSED: dict[str, list[str]] = {
    "falcon-h1": ["falcon_h1"],
    "qwen2.5-vl": ["qwen2_5_vl.text_config", "qwen2_5_vl"],
    "llama-classifier": ["LlamaForSequenceClassification"],
    "llama-as-conditional-generation": ["llama.text_config"],
    "gemma-3-without-text-config": ["gemma3.text_config"],
    "mistral3-around-ministral3": ["mistral3.text_config"],
    "qwen3.5-with-another-head": ["Qwen3_5ForSequenceClassification"],
    "qwen3-with-chunked-attention": ["chunked_attention"],
}
"""Config -> subjects of the gaps by which it is refused: no models row reads it."""

BROKEN: dict[str, str] = {
    "broken-text-config": "text_config is 'gemma3_text', no JSON object",
    "broken-keys-missing": r"lacks hidden_size \(hidden\), intermediate_size \(intermediate\), num_attention_heads",
    "broken-layer-types": "layer_types has 2 entries for 26 layers",
    "broken-pattern": "layer_kinds: sliding_window_pattern is 0, it must be a whole number of layers",
    "broken-experts": "a token can't pass 8 of 4 experts",
    "broken-depth": "layers is 1000000000000, no model has more than 10000",
    "broken-architectures": r"architectures \[7\]",
    "broken-heads": "kv_heads: expression 'heads': heads is '128', not an integer",
}
"""Config -> what is said of it."""


def config(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return read


def read(name: str) -> tuple[ModelFamily, ModelFacts]:
    model = find_model(config(name), families())
    found = model_facts(CONFIGS / name, model)
    return model.family, found.model_copy(update={"parameters": parameters(model.family, found)})


@cache
def seed() -> dict[str, list[Row]]:
    return read_seed()


@cache
def knowledge() -> Knowledge:
    return read_knowledge()


def seed_platforms() -> list[Platform]:
    return [row for row in seed()["platforms"] if isinstance(row, Platform)]


def seed_tests() -> list[TestContract]:
    return [row for row in seed()["test_contracts"] if isinstance(row, TestContract)]


def covered(model: ModelFacts) -> Coverage:
    target = Facts(model=model, platform=PLATFORM, workload=WORKLOAD)
    return coverage(target, knowledge(), families(), seed_platforms(), seed_tests())


def test_every_config_is_in_one_table() -> None:
    assert {file.stem for file in CONFIGS.glob("*.json")} == READ.keys() | REFUSED.keys() | BROKEN.keys()
    assert len(READ) + len(REFUSED) + len(BROKEN) >= 30


@pytest.mark.parametrize("name", READ)
def test_a_models_gaps_are_those_of_the_table(name: str) -> None:
    found = covered(read(name)[1])
    assert {(gap.kind, gap.subject) for gap in found.gaps} == READ[name][1]
    assert (found.percent == 100) == (READ[name][1] == set())
    assert all(gap.detail for gap in found.gaps)


@pytest.mark.parametrize("name", READ)
def test_the_patterns_of_a_row_name_every_parameter_once(name: str) -> None:
    count = read(name)[1].parameters
    assert count == READ[name][0] or READ[name][0] is None


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_row_is_a_table_of_named_gaps(name: str) -> None:
    with pytest.raises(GapError) as caught:
        read(name)
    found = refused(caught.value.gaps)
    assert [(need.what, need.subject) for need in found.needs] == [("model", subject) for subject in REFUSED[name]]
    assert {gap.kind for gap in found.gaps} == {MODEL}
    assert found.percent == 0


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_config_is_refused_with_what_is_wrong(name: str) -> None:
    with pytest.raises(CheckpointError, match=BROKEN[name]):
        read(name)


def test_the_facts_tell_layers_apart() -> None:
    qwen, gemma, deepseek = (read(name)[1] for name in ("qwen3.5-9b", "gemma-3-1b", "deepseek-v3"))
    assert [qwen.attention_of(layer) for layer in range(4)] == ["linear_attention"] * 3 + ["full_attention"]
    assert qwen.layer_kinds == read("qwen3.5-9b-text")[1].layer_kinds
    assert [layer for layer in range(26) if gemma.attention_of(layer) == "full_attention"] == [5, 11, 17, 23]
    assert [deepseek.mlp_of(layer) for layer in (0, 2, 3, 60)] == ["dense", "dense", "experts", "experts"]
    stepped = facts(experts=4, expert_step=2, dense_layers=(3,)).model
    assert [stepped.mlp_of(layer) for layer in range(4)] == ["dense", "experts", "dense", "dense"]


def test_bytes_of_cache_and_step_follow_the_structure() -> None:
    assert read("qwen3-8b")[1].kv_bytes(10, "bfloat16") == 2 * 36 * 8 * 128 * 10 * 2
    assert read("qwen3.5-9b")[1].kv_bytes(10, "bfloat16") == 2 * 8 * 4 * 256 * 10 * 2, "8 of 32 layers have a cache"
    assert read("deepseek-v3")[1].kv_bytes(10, "bfloat16") == 61 * 576 * 10 * 2, "one latent for all heads"
    moe = read("qwen3-30b-a3b")[1]
    assert moe.parameters - moe.idle_parameters == 3_353_032_704, "the A3B of its name"
    assert moe.decode_bytes(0, "float32") == 2 * (3_353_032_704 - 151936 * 2048)


def test_a_null_says_null_only_where_the_row_lets_it() -> None:
    mistral = config("mistral-7b-v0.3")
    left_out = {key: value for key, value in mistral.items() if key != "sliding_window"}
    model = find_model(left_out, families())
    assert model_facts(CONFIGS, model).sliding_window == 4096, "what the class makes of a missing key"
    assert read("mistral-7b-v0.3")[1].sliding_window is None
    assert read("gemma-3-4b")[1].heads == 8, "keys that a nested config leaves out"
    assert read("gemma-3-4b")[1].eos_tokens == (1, 106), "from the config around it"


def test_a_feature_is_served_by_what_is_there_only_for_it() -> None:
    model = read("qwen2.5-0.5b")[1]
    plain = knowledge().fragments["attention-block"]
    serving = plain.model_copy(update={"id": "biased", "applies_to": "'qkv-bias' in model.features"})
    others = plain.model_copy(update={"id": "always", "applies_to": ""})
    rows = Knowledge(knowledge().contracts, {**knowledge().fragments, "biased": serving, "always": others})
    target = Facts(model=model, platform=PLATFORM, workload=WORKLOAD)
    found = {need.subject: need for need in coverage(target, rows, families(), [], []).needs if need.what == "feature"}
    assert found["qkv-bias"].covered_by == ("biased",)
    (missing,) = (need for need in covered(model).needs if need.what == "feature")
    assert "have a bias each" in missing.gaps[0].detail, "it says what must be done"


def test_tensors_that_differ_in_their_numbers_are_one_gap() -> None:
    scales = tuple(f"model.layers.{layer}.mlp.up_proj.weight_scale_inv" for layer in range(36))
    target = Facts(model=read("qwen3-8b")[1], platform=PLATFORM, workload=WORKLOAD)
    found = coverage(target, knowledge(), families(), [], [], unmapped=(*scales, "model.layers.0.extra")).needs[0]
    subjects = [gap.subject for gap in found.gaps]
    assert subjects == ["model.layers.*.mlp.up_proj.weight_scale_inv", "model.layers.0.extra"]
    assert "36 tensors" in found.gaps[0].detail


def test_a_draft_platform_is_named_in_its_gap() -> None:
    platforms = [row for row in seed()["platforms"] if isinstance(row, Platform)]
    devices: list[tuple[str, dict[str, Any]]] = [
        ("nvidia-ampere", {"name": "NVIDIA A100-SXM4-80GB", "capability": 8.0}),
        ("nvidia-ampere", {"name": "NVIDIA RTX A4000", "capability": 8.6}),
        ("nvidia-ada", {"name": "NVIDIA L40S", "capability": 8.9}),
        ("nvidia-blackwell", {"name": "NVIDIA B200", "capability": 10.0}),
        ("nvidia-blackwell", {"name": "NVIDIA B300", "capability": 10.3}),
        ("nvidia-blackwell", {"name": "NVIDIA GeForce RTX 5090", "capability": 12.0}),
        ("amd-cdna", {"name": "AMD Instinct MI300X", "accelerator": "hip", "architecture": "gfx942"}),
        ("amd-cdna", {"name": "AMD Instinct MI250X", "accelerator": "hip", "architecture": "gfx90a"}),
        ("amd-mi300a", {"name": "AMD Instinct MI300A", "accelerator": "hip", "architecture": "gfx942"}),
        ("hygon-dcu", {"name": "K500SM_AI", "accelerator": "hip"}),
        ("apple-mlx", {"name": "Apple M3 Pro", "accelerator": "metal"}),
    ]
    for row, device in devices:
        target, name = facts(**{"accelerator": "cuda", **device}), device["name"]
        assert [p.id for p in platforms if Predicate(p.applies_to).holds(target)] == [row], name
        (need,) = (n for n in coverage(target, knowledge(), families(), platforms, []).needs if n.what == "platform")
        assert need.gaps[0].kind == "platform backend"
        assert f"the row {row} describes it and is a draft" in need.gaps[0].detail


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA GH200 480GB"])
def test_a_platform_that_engines_have_run_on_is_covered(name: str) -> None:
    platforms = [row for row in seed()["platforms"] if isinstance(row, Platform)]
    target = facts(accelerator="cuda", name=name, capability=9.0)
    (need,) = (n for n in coverage(target, knowledge(), families(), platforms, []).needs if n.what == "platform")
    assert (need.covered_by, need.gaps) == (("nvidia-hopper",), ())


def test_the_numbers_of_a_platform_have_a_source() -> None:
    for row in seed()["platforms"]:
        assert isinstance(row, Platform)
        assert all((row.graph_capture, row.collectives, row.operators)), row.id
        assert all(number.source for number in (*row.devices, *row.measured)), row.id
        assert all(o.fallback for o in row.operators if o.name not in ("torch", "mlx", "avx2", "fma")), row.id


def test_a_device_that_no_row_describes_is_a_gap_and_no_crash() -> None:
    platforms = [row for row in seed()["platforms"] if isinstance(row, Platform)]
    for device in (
        {"accelerator": "cuda", "capability": 7.0},
        {"accelerator": "hip"},
        {"accelerator": "cpu", "isa": ()},
    ):
        target = facts(name="strange", **device)
        (need,) = (n for n in coverage(target, knowledge(), families(), platforms, []).needs if n.what == "platform")
        assert "no row of the platforms table applies to" in need.gaps[0].detail


@pytest.mark.parametrize("family", families(), ids=lambda family: family.id)
def test_a_models_row_speaks_of_facts_that_exist(family: ModelFamily) -> None:
    known = set(ModelFacts.model_fields)
    assert family.config.keys() <= known
    patterns = (*family.tensors, *family.ignored)
    asked = {name for p in (*patterns, *family.features) for name in Predicate(p.when).names()}
    assert asked <= {f"model.{name}" for name in known} | {"layer.attention", "layer.mlp"}
    shapes = [ast.parse(axis) for pattern in patterns for axis in pattern.shape]
    assert {node.id for tree in shapes for node in ast.walk(tree) if isinstance(node, ast.Name)} <= known
    assert {place for p in patterns for place in re.findall(r"{\w*}", p.name)} <= {"{layer}", "{expert}", "{layers}"}
    features = [feature.name for feature in family.features]
    assert len({*features, TEXT_CONFIG.name}) == len(features) + 1
    assert all((family.text, family.provenance.references))


def test_the_table_is_written_for_machines() -> None:
    found = covered(read("llama-3.1-8b")[1])
    document = json.loads(json.dumps(found.document()))
    assert (document["percent"], document["covered"]) == (found.percent, False)
    (rope,) = (need for need in document["needs"] if need["subject"] == "rope")
    assert rope["gaps"] == [{"kind": MODEL, "subject": "rope", "detail": found.gaps[0].detail}]


CLASSES = {
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "gpt_oss", "qwen3_5_text", "qwen3_5_moe_text",
    "olmo_hybrid", "deepseek_v3",
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_every_gap_of_a_model_names_the_draft_that_describes_it(name: str) -> None:
    needs = covered(read(name)[1]).needs
    for need in needs:
        if need.gaps:
            assert need.described_by, need
            assert set(need.described_by) <= knowledge().drafts.keys()
            (gap,) = need.gaps
            assert all(id in gap.detail for id in need.described_by)
            assert "draft: no gate has run it" in gap.detail or "drafts: no gate has run them" in gap.detail
    asked = {need.subject for need in needs if need.what == "feature"}
    assert asked == set(read(name)[1].features)


def test_all_classes_of_models_are_among_the_configs() -> None:
    assert {read(name)[1].model_type for name in READ} == CLASSES


@pytest.mark.parametrize(
    ("how", "stored", "draft"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "weights-fp8-block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-tensor", "weights-fp8-tensor"),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", "weights-fp8-tensor"),
        ({"quant_method": "mxfp4"}, "mxfp4", "weights-mxfp4"),
        ({"quant_method": "gptq", "bits": 4}, "gptq 4 bits", "weights-int4-group"),
        ({"quant_method": "awq", "bits": 4}, "awq 4 bits", "weights-int4-group"),
        ({"quant_method": "gptq", "bits": 3}, "gptq 3 bits", ""),
        (
            {"quant_method": "compressed-tensors", "format": "int-quantized"},
            "compressed-tensors int-quantized",
            "weights-int8-channel",
        ),
        (
            {"quant_method": "compressed-tensors", "format": "float-quantized"},
            "compressed-tensors float-quantized",
            "weights-fp8-tensor",
        ),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors None", ""),
    ],
)
def test_a_weight_format_is_named_so_exactly_that_one_draft_describes_it(
    how: dict[str, Any], stored: str, draft: str
) -> None:
    model = find_model(config("qwen3-8b") | {"quantization_config": how}, families())
    found = covered(model_facts(CONFIGS, model))
    (need,) = (need for need in found.needs if need.what == "weights")
    assert (need.subject, need.described_by) == (stored, (draft,) if draft else ())
    assert need.gaps[0].kind == FORMAT
    assert (draft or "no contract or fragment is for that") in need.gaps[0].detail


@pytest.mark.parametrize("compiler", ["g++", None])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_which_weight_formats_are_covered_follows_from_the_rows_alone(dtype: str, compiler: str | None) -> None:
    def formats(rows: Knowledge) -> set[str]:
        names = ("bf16", "fp32", "F16", "fp8", "mxfp4", "another")
        found = (coverage(facts(weights=n, dtype=dtype, compiler=compiler), rows, families(), [], []) for n in names)
        every = [need for table in found for need in table.needs if need.what == "weights"]
        return {need.subject for need in every if not need.gaps}

    assert formats(knowledge()) == {"bf16", "fp32"}
    reader = "weight-format-bf16" if compiler else "linear-torch"
    without = {id: row for id, row in knowledge().fragments.items() if id != reader}
    left = {"fp32"} if compiler and dtype == "float32" else set()
    assert formats(Knowledge(knowledge().contracts, without)) == left
    more = knowledge().fragments[reader].model_copy(update={"id": "f16", "applies_to": "model.weights == 'F16'"})
    grown = Knowledge(knowledge().contracts, {**knowledge().fragments, "f16": more})
    assert formats(grown) == {"bf16", "fp32", "F16"}


@cache
def stored_shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Name pattern of the models table -> shape, of every tensor of a config."""
    family, model = read(name)
    every = expected_tensors(family, model).items()
    layers = {re.sub(r"layers\.\d+", "layers.{layer}", tensor): found.shape for tensor, found in every}
    return {re.sub(r"experts\.\d+", "experts.{expert}", tensor): shape for tensor, shape in layers.items()}


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("name", READ)
def test_each_tensor_of_a_model_has_its_part_in_every_way_to_spread_it(name: str, count: int) -> None:
    target = Facts(model=read(name)[1], platform=PLATFORM.model_copy(update={"count": count}), workload=WORKLOAD)
    ways = [row for row in seed()["parallelism"] if isinstance(row, Parallelism)]
    fitting = [way for way in ways if not hindrances(way, target)]
    for way in fitting:
        axes = {part.tensor: part.axis for part in way.partitions}
        assert len(axes) == len(way.partitions), f"{way.id} cuts a tensor twice"
        assert stored_shapes(name).keys() <= axes.keys(), way.id
        for tensor, shape in stored_shapes(name).items():
            if len(shape) == 2 and axes[tensor] in ("rows", "heads", "columns"):
                assert shape[axes[tensor] == "columns"] % count == 0, (way.id, tensor)
    (need,) = (n for n in coverage(target, knowledge(), families(), [], [], ways).needs if n.what == "parallelism")
    (gap,) = need.gaps
    assert (gap.kind, gap.subject) == ("parallel partition", f"{count} devices")
    assert all(way.id in gap.detail for way in fitting)
    assert {"process-group", "all-reduce", "row-parallel"} <= set(need.described_by)
    if not fitting:
        assert re.search(r"don't divide \w+, which is \d+|neither divides the other", gap.detail)


def test_every_kind_of_model_can_be_spread_over_two_devices_and_some_over_eight() -> None:
    def fits(name: str, count: int) -> bool:
        target = Facts(model=read(name)[1], platform=PLATFORM.model_copy(update={"count": count}), workload=WORKLOAD)
        return any(not hindrances(way, target) for way in seed()["parallelism"] if isinstance(way, Parallelism))

    assert {read(name)[1].model_type for name in READ if fits(name, 2)} == CLASSES
    assert {name for name in READ if not fits(name, 8)} == {
        "smollm2-135m", "qwen2.5-0.5b", "qwen2.5-7b", "gemma-3-1b", "olmo-hybrid-7b",
    }  # fmt: skip


def test_a_workload_of_many_requests_names_the_framework_that_it_needs() -> None:
    for kind in ("batch", "poisson", "ramp"):
        workload = WORKLOAD.model_copy(update={"kind": kind, "batch": 8})
        target = Facts(model=read("qwen3-8b")[1], platform=PLATFORM, workload=workload)
        needs = coverage(target, knowledge(), families(), seed_platforms(), seed_tests()).needs
        found = {need.subject: need for need in needs if need.gaps}
        assert found.keys() == {"engine", "scheduler"}
        framework = {"memory-pool", "slot-kv-cache", "request-life-cycle", "batch-scheduler", "model-executor"}
        assert framework | {"batch-sampler"} == set(found["engine"].described_by)
