"""Checkpoints: what a directory says, and what is said of a broken one."""

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError, safe_open

from ckb.checkpoint import read_checkpoint, read_config
from ckb.gaps import GapError
from ckb.model_config import find_model, model_facts
from ckb.shards import CheckpointError, read_header
from tests.unit.ckb.samples import CONFIG, families, safetensors, shapes, write_checkpoint

QWEN3 = CONFIG | {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 6,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
}


def test_facts_come_from_the_config_and_the_headers(tmp_path: Path) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path / "m"), families())
    facts = found.facts
    assert (facts.model_type, facts.layers, facts.heads, facts.kv_heads, facts.head_dim) == ("llama", 2, 2, 1, 16)
    assert (facts.rope_theta, facts.rope_type, facts.norm_eps) == (50000.0, "default", 1e-5)
    assert (facts.tied_head, facts.qk_norm, facts.weights) == (True, False, "bf16")
    assert facts.parameters == 80 + 2 * (2 * 8 + 256 + 128 + 128 + 256 + 3 * 96) + 8
    assert facts.eos_tokens == (2,)
    assert len(found.tensors) == 20
    assert (found.ignored, found.unmapped) == ((), ())
    assert found.tensors["model.norm.weight"].bytes == 16


def test_a_config_alone_gives_the_facts_of_its_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", QWEN3 | {"torch_dtype": "float32"}, "F32")
    whole, alone = read_checkpoint(folder, families()), read_config(folder / "config.json", families())
    assert alone.facts == whole.facts
    assert (alone.tensors, alone.unmapped) == ({}, ())
    packed = tmp_path / "packed.json"
    packed.write_text(json.dumps(CONFIG | {"quantization_config": {"quant_method": "mxfp4"}}))
    assert (read_config(packed, families()).facts.weights, read_config(packed, families()).facts.parameters) == (
        "mxfp4",
        0,
    )
    with pytest.raises(CheckpointError, match=r"has no gone\.json"):
        read_config(tmp_path / "gone.json", families())


def test_qwen3_has_its_own_head_size_and_norms(tmp_path: Path) -> None:
    facts = read_checkpoint(write_checkpoint(tmp_path / "m", QWEN3, "F32"), families()).facts
    assert (facts.head_dim, facts.qk_norm, facts.tied_head, facts.weights) == (6, True, False, "fp32")
    assert facts.sliding_window is None, "it counts only when use_sliding_window is set"
    windowed = write_checkpoint(tmp_path / "w", QWEN3 | {"use_sliding_window": True})
    assert read_checkpoint(windowed, families()).facts.sliding_window == 4096


@pytest.mark.parametrize(
    ("changes", "theta", "kind"),
    [
        ({"rope_parameters": None, "rope_theta": 7.0}, 7.0, "default"),
        ({"rope_parameters": None}, 10000.0, "default"),
        ({"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"}}, 5e5, "llama3"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, 10000.0, "linear"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 3.0}, "rope_theta": 9.0}, 3.0, "yarn"),
    ],
)
def test_both_ways_to_write_the_rotary_embedding(
    tmp_path: Path, changes: dict[str, Any], theta: float, kind: str
) -> None:
    facts = read_checkpoint(write_checkpoint(tmp_path / "m", CONFIG | changes), families()).facts
    assert (facts.rope_theta, facts.rope_type) == (theta, kind)


def test_generation_config_names_the_end_tokens(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 7], "bos_token_id": 3}')
    facts = read_checkpoint(folder, families()).facts
    assert (facts.bos_token, facts.eos_tokens) == (3, (5, 7))
    assert (
        read_checkpoint(write_checkpoint(tmp_path / "n", CONFIG | {"eos_token_id": None}), families()).facts.eos_tokens
        == ()
    )


def test_a_tied_head_that_is_stored_is_ignored_and_an_unknown_tensor_is_unmapped(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    extra = {"lm_head.weight": (10, 8), "model.layers.1.self_attn.rotary_emb.inv_freq": (2,), "model.extra": (3,)}
    (folder / "model.safetensors").write_bytes(safetensors(shapes(CONFIG) | extra))
    found = read_checkpoint(folder, families())
    assert set(found.ignored) == {"lm_head.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"}
    assert found.unmapped == ("model.extra",)
    assert found.facts.parameters == read_checkpoint(write_checkpoint(tmp_path / "n"), families()).facts.parameters + 3


def write(folder: Path, config: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_a_language_model_inside_another_is_read_under_either_of_its_prefixes(tmp_path: Path, prefix: str) -> None:
    inner = CONFIG | {"model_type": "mistral", "sliding_window": None, "tie_word_embeddings": False}
    outer = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": inner}
    head = "lm_head." if prefix.startswith("model") else "language_model.lm_head."
    own = {
        prefix + name.removeprefix("model.") if name.startswith("model.") else f"{head}weight": shape
        for name, shape in shapes(inner).items()
    }
    tower = {"vision_tower.patch.weight": (3, 3), "model.vision_tower.patch.weight": (3, 3)}
    found = read_checkpoint(write(tmp_path / "m", outer, own | tower), families())
    assert (set(found.tensors), set(found.ignored), found.unmapped) == (set(own), set(tower), ())
    assert (found.facts.model_type, found.facts.architecture) == ("mistral", "Mistral3ForConditionalGeneration")
    assert found.facts.features == ("text-config",)
    assert found.facts.tied_head is False
    tied = {name: shape for name, shape in own.items() if "lm_head" not in name}
    outside = write(tmp_path / "tied", outer | {"tie_word_embeddings": True}, tied)
    assert read_checkpoint(outside, families()).facts.tied_head, "the head belongs to the model around it"
    lacking = {name: shape for name, shape in own.items() if "o_proj" not in name}
    with pytest.raises(CheckpointError, match=rf"2 of the 21 tensors .* {re.escape(prefix)}layers.0.self_attn.o_proj"):
        read_checkpoint(write(tmp_path / "n", outer, lacking), families())


def test_experts_are_counted_and_dense_layers_have_none(tmp_path: Path) -> None:
    moe = QWEN3 | {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 5,
        "mlp_only_layers": [1],
    }
    own = {n: s for n, s in shapes(moe | {"model_type": "qwen3"}).items() if "layers.0.mlp" not in n}
    own["model.layers.0.mlp.gate.weight"] = (3, 8)
    for expert in range(3):
        at = f"model.layers.0.mlp.experts.{expert}."
        own |= {f"{at}gate_proj.weight": (5, 8), f"{at}up_proj.weight": (5, 8), f"{at}down_proj.weight": (8, 5)}
    found = read_checkpoint(write(tmp_path / "m", moe, own), families())
    assert (set(found.tensors), found.unmapped) == (set(own), ())
    assert found.facts.idle_parameters == 3 * 5 * 8, "one of three experts in one of two layers"
    extra = own | {"model.layers.1.mlp.gate.weight": (3, 8)}
    assert read_checkpoint(write(tmp_path / "n", moe, extra), families()).unmapped == (
        "model.layers.1.mlp.gate.weight",
    )


def shard(folder: Path, drop: str = "", twice: bool = False, wrong: bool = False) -> None:
    """Splits the checkpoint into two shards with an index."""
    names = list(shapes(CONFIG))
    parts = {"a.safetensors": names[:9], "b.safetensors": names[8 if twice else 9 :]}
    for file, own in parts.items():
        (folder / file).write_bytes(safetensors({n: shapes(CONFIG)[n] for n in own}))
    index = {name: "a.safetensors" if name in names[:9] else "b.safetensors" for name in names}
    if wrong:
        index[names[0]] = "b.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "model.safetensors").unlink()
    if drop:
        (folder / drop).unlink()


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    whole = read_checkpoint(write_checkpoint(tmp_path / "m"), families())
    shard(write_checkpoint(tmp_path / "s"))
    parts = read_checkpoint(tmp_path / "s", families())
    assert parts.facts == whole.facts
    assert {t.file for t in parts.tensors.values()} == {"a.safetensors", "b.safetensors"}


def test_another_weight_format_is_named_and_its_tensors_are_not_judged(tmp_path: Path) -> None:
    how = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    folder = write_checkpoint(tmp_path / "m", CONFIG | {"quantization_config": how})
    assert read_checkpoint(folder, families()).facts.weights == "fp8"
    assert read_checkpoint(write_checkpoint(tmp_path / "n", dtype="F16"), families()).facts.weights == "F16"
    mixed = safetensors({"model.embed_tokens.weight": (10, 8)}, "F32")
    shard(write_checkpoint(tmp_path / "x"))
    (tmp_path / "x/c.safetensors").write_bytes(mixed)
    index = json.loads((tmp_path / "x/model.safetensors.index.json").read_text())
    index["weight_map"]["model.embed_tokens.weight"] = "c.safetensors"
    (tmp_path / "x/a.safetensors").write_bytes(safetensors({n: shapes(CONFIG)[n] for n in list(shapes(CONFIG))[1:9]}))
    (tmp_path / "x/model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(tmp_path / "x", families()).facts.weights == "mixed: BF16, F32"


def config(**changes: Any) -> Callable[[Path], None]:
    """A fault: some keys of config.json changed, or removed where the value is ...."""

    def apply(folder: Path) -> None:
        changed = {k: v for k, v in (CONFIG | changes).items() if v is not ...}
        (folder / "config.json").write_text(json.dumps(changed))

    return apply


def text(file: str, content: str | None) -> Callable[[Path], None]:
    """A fault: a file with another content, or none."""

    def apply(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        if content is not None:
            (folder / file).write_text(content)

    return apply


def weights(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A fault of model.safetensors."""

    def apply(folder: Path) -> None:
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return apply


def tensors(**changes: tuple[int, ...] | None) -> Callable[[Path], None]:
    """A fault: tensors of another shape, or missing."""

    def apply(folder: Path) -> None:
        found = {n: s for n, s in (shapes(CONFIG) | changes).items() if s is not None}
        (folder / "model.safetensors").write_bytes(safetensors(found))

    return apply


def config_folder(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


def only_bin(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def header(text: str, data: int = 0) -> Callable[[bytes], bytes]:
    """Another header, and so many bytes of tensors behind it."""
    return lambda _: len(text).to_bytes(8, "little") + text.encode() + bytes(data)


def entry(shape: str = "[1]", offsets: str = "[0, 4]", name: str = "a") -> str:
    return f'"{name}": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}'


def entries(*items: str, data: int = 0) -> Callable[[bytes], bytes]:
    return header(f"{{{', '.join(items)}}}", data)


def index_of(name: str) -> Callable[[Path], None]:
    """A fault: an index whose one shard has this name."""

    def apply(folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        (folder.parent / "outside.safetensors").write_bytes(safetensors({"a": (1,)}))

    return apply


def weights_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


SIZE = len(safetensors(shapes(CONFIG)))
TWICE = '{"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}, "a": {"dtype": "I8"}}'
GATE = "model.layers.1.mlp.gate_proj.weight"
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (text("config.json", None), "has no config.json"),
    "config is a folder": (config_folder, r"config.json can't be read: Is a directory"),
    "no JSON": (text("config.json", "{"), "config.json is no JSON"),
    "a JSON list": (text("config.json", "[]"), "is no JSON object but a list"),
    "missing keys": (
        config(hidden_size=..., num_attention_heads=...),
        r"lacks hidden_size \(hidden\), num_attention_heads \(heads\)",
    ),
    "a key that is no number": (config(num_hidden_layers="two"), "layers = 'two'"),
    "a key that is no whole number": (config(num_hidden_layers=2.5), "layers = 2.5"),
    "no model_type": (config(model_type=...), "model_type is None"),
    "no layers": (config(num_hidden_layers=0), "layers is 0, it must be at least 1"),
    "heads that can't share": (config(num_key_value_heads=3), "2 query heads can't share 3"),
    "no tokenizer": (text("tokenizer.json", None), "has no tokenizer.json"),
    "no weights": (text("model.safetensors", None), r"weights that are there: none"),
    "weights in another format": (only_bin, "weights that are there: pytorch_model.bin"),
    "truncated weights": (weights(lambda d: d[:-100]), f"says {SIZE} bytes, the file has {SIZE - 100}"),
    "longer weights": (weights(lambda d: d + b"x"), f"says {SIZE} bytes, the file has {SIZE + 1}"),
    "a few bytes": (weights(lambda d: d[:5]), "it has 5"),
    "truncated header": (weights(lambda d: d[:50]), "its header says .* bytes, it has 50"),
    "a header that is no JSON": (weights(header("nope")), "the header is no JSON"),
    "a header that is a list": (weights(header("[]")), "the header is no JSON object"),
    "an entry without a shape": (weights(header('{"a": {"dtype": "F32"}}')), "entry of a is malformed"),
    "the same tensor twice": (weights(header(TWICE)), "the header has a twice"),
    "a size that does not fit": (
        weights(header('{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}')),
        r"a F32\[3\] needs 12 bytes, it has 8",
    ),
    "a missing tensor": (tensors(**{GATE: None}), f"1 of the 20 tensors .* with 2 layers are missing: {GATE}"),
    "a layer too many in the config": (config(num_hidden_layers=3), r"9 of the 29 tensors .* missing: .*, \.\.\."),
    "a tensor of another shape": (tensors(**{GATE: (11, 8)}), rf"{GATE} is \[11, 8\], config.json makes it \[12, 8\]"),
    "a missing shard": (lambda f: shard(f, drop="b.safetensors"), "1 of 2 shards are missing: b.safetensors"),
    "a tensor in two shards": (lambda f: shard(f, twice=True), "is in both a.safetensors and b.safetensors"),
    "an index that is wrong": (lambda f: shard(f, wrong=True), "1 of 20 tensors are not in the shard"),
    "a config of brackets": (text("config.json", "[" * 200_000), "config.json is no JSON: .*recursion"),
    "a header of brackets": (weights(header("[" * 200_000)), "the header is no JSON: .*recursion"),
    "layers as a text": (config(num_hidden_layers="2"), "layers = '2': Input should be a valid integer"),
    "layers as a fraction": (config(num_hidden_layers=2.0), "layers = 2.0: Input should be a valid integer"),
    "layers as a truth": (config(num_hidden_layers=True), "layers = True: Input should be a valid integer"),
    "an end that is a text": (config(eos_token_id=["2"]), r"eos_tokens\.0 = '2'"),
    "a number beyond all": (config(vocab_size=2**63), "vocab: more than 9223372036854775807"),
    "weights are a folder": (weights_folder, "model.safetensors can't be read: Is a directory"),
    "no tensor": (weights(header("{}")), "model.safetensors: there is no tensor in it"),
    "an index of nothing": (text("model.safetensors.index.json", '{"weight_map": {}}'), "there is no tensor in it"),
    "an endless shape": (weights(entries(entry("[1e400]"), data=4)), r"entry of a is malformed: shape is \[inf\]"),
    "an endless offset": (weights(entries(entry(offsets="[0, 1e400]"), data=4)), r"data_offsets is \[0, inf\]"),
    "a negative offset": (weights(entries(entry(offsets="[-4, 0]"), data=0)), r"data_offsets is \[-4, 0\]"),
    "an end before the start": (weights(entries(entry(offsets="[4, 0]"), data=0)), r"data_offsets is \[4, 0\]"),
    "three offsets": (weights(entries(entry(offsets="[0, 4, 4]"), data=4)), r"data_offsets is \[0, 4, 4\]"),
    "a negative shape": (weights(entries(entry("[-1, -1]"), data=4)), r"shape is \[-1, -1\]"),
    "a shape of fractions": (weights(entries(entry("[1.9]"), data=4)), r"shape is \[1\.9\]"),
    "a shape of truths": (weights(entries(entry("[true]"), data=4)), r"shape is \[True\]"),
    "a shape beyond all files": (
        weights(entries(entry(str([2**62] * 2000)), data=4)),
        "its shape is that of more than 9223372036854775807 elements",
    ),
    "two tensors on the same bytes": (
        weights(entries(entry(), entry(name="b"), data=4)),
        "b starts at byte 0 and overlaps a, which ends at byte 4",
    ),
    "a hole before a tensor": (
        weights(entries(entry(offsets="[100, 104]"), data=104)),
        "a starts at byte 100 and leaves a hole behind the header, which ends at byte 0",
    ),
    "a name that is no text": (weights(entries(entry(name="\\ud800"), data=4)), r"whose name is no text: '\\ud800'"),
    "a shard outside": (index_of("../outside.safetensors"), r"can't be files of this folder: '\.\./outside"),
    "a shard that is the folder": (index_of("."), r"can't be files of this folder: '\.'"),
    "a shard with a long name": (index_of("x" * 5000), "can't be files of this folder: 'x{80}'"),
    "a shard with no text as name": (index_of("\ud800"), r"can't be files of this folder: '\\ud800'"),
    "an index without a map": (
        lambda f: (f / "model.safetensors.index.json").write_text("{}") and None,
        "weight_map is missing",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_directory_is_refused_with_the_numbers(tmp_path: Path, name: str) -> None:
    break_it, message = FAULTS[name]
    folder = write_checkpoint(tmp_path / "m")
    break_it(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(folder, families())
    assert "config.json" in str(caught.value) or str(folder) in str(caught.value)


@pytest.mark.parametrize("layers", ["32", 32.0, True])
@pytest.mark.parametrize("name", ["qwen3.5-9b-text", "gemma-3-1b"])
def test_a_number_of_layers_that_is_no_number_never_makes_them_all_alike(name: str, layers: object) -> None:
    """The kinds of layers follow from their number, and none at all reads as full attention everywhere."""
    path = Path(__file__).parent / f"configs/{name}.json"
    found = json.loads(path.read_text()) | {"num_hidden_layers": layers}
    found.pop("layer_types", None)
    with pytest.raises(CheckpointError, match=f"layers = {layers!r}: Input should be a valid integer"):
        model_facts(path, find_model(found, families()))
    kinds = model_facts(path, find_model(found | {"num_hidden_layers": 32}, families())).layer_kinds
    assert (len(kinds), len(set(kinds))) == (32, 2)


def test_more_experts_than_any_model_has_are_refused_before_they_are_named() -> None:
    path = Path(__file__).parent / "configs/qwen3-30b-a3b.json"
    huge = json.loads(path.read_text()) | {"num_hidden_layers": 9999, "num_experts": 99_999}
    with pytest.raises(CheckpointError, match="9999 layers of 99999 experts are 999890001, no model has more than"):
        model_facts(path, find_model(huge, families()))


def test_a_header_with_many_names_and_one_twice_is_read_once(tmp_path: Path) -> None:
    """Asking of each name how often it is there took half a minute for 12,000 of them; this is 100,000."""
    names = [entry("[0]", "[0, 0]", f"t{number}") for number in range(100_000)]
    folder = write_checkpoint(tmp_path / "m")
    weights(entries(*names, entry("[0]", "[0, 0]", "t1")))(folder)
    with pytest.raises(CheckpointError, match="the header has t1 twice"):
        read_checkpoint(folder, families())


def test_shards_may_be_links_as_a_cache_of_downloads_has_them(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    shard(folder)
    (folder / "a.safetensors").rename(tmp_path / "blob")
    (folder / "a.safetensors").symlink_to(tmp_path / "blob")
    assert len(read_checkpoint(folder, families()).tensors) == 20


@pytest.mark.parametrize("seed", range(4))
def test_a_file_is_accepted_just_where_safetensors_accepts_it(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    seen = set()
    for number in range(150):
        tensors = []
        end = 0
        for name in "abc"[: rng.randrange(1, 4)]:
            start = end + rng.choice((0, 0, 0, 0, 0, 0, 4, -4))
            shape = rng.choice(([], [1], [2], [0], [1, 2], [-1, -1], [1.5]))
            end = start + rng.choice((4, 4, 0, 8)) if rng.random() < 0.1 else start + 4 * abs(int(math.prod(shape)))
            tensors.append(entry(json.dumps(shape), f"[{start}, {end}]", name))
        rng.shuffle(tensors)
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(entries(*tensors, data=max(0, end))(b""))
        try:
            with safe_open(path, "numpy") as file:
                names = set(file.keys())
        except SafetensorError:
            names = set()
            with pytest.raises(CheckpointError):
                read_header(path)
        else:
            assert {tensor.name for tensor in read_header(path)} == names
        seen.add(bool(names))
    assert seen == {True, False}


def test_a_missing_directory_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.path: .*/none is not there"):
        read_checkpoint(tmp_path / "none", families())
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is no directory"):
        read_checkpoint(tmp_path / "file", families())


@pytest.mark.parametrize(
    ("changes", "subjects"),
    [
        ({"model_type": "falcon_h1"}, ["falcon_h1"]),
        ({"model_type": "gemma3"}, ["gemma3.text_config"]),
        ({"architectures": ["LlamaForSequenceClassification"]}, ["LlamaForSequenceClassification"]),
        ({"text_config": {"model_type": "llama"}}, ["llama.text_config"]),
        (
            {"model_type": "idefics3", "architectures": ["Q"], "text_config": {"model_type": "llama"}},
            ["idefics3.text_config", "idefics3"],
        ),
    ],
)
def test_a_model_that_no_row_describes_is_a_typed_gap(
    tmp_path: Path, changes: dict[str, Any], subjects: list[str]
) -> None:
    folder = write_checkpoint(tmp_path / "m")
    config(**changes)(folder)
    with pytest.raises(GapError) as caught:
        read_checkpoint(folder, families())
    assert [gap.subject for gap in caught.value.gaps] == subjects
    assert {gap.kind for gap in caught.value.gaps} == {"model structure"}
    assert all(gap.detail in str(caught.value) for gap in caught.value.gaps)


def test_the_same_weights_under_other_names_are_a_gap_and_no_damage(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    renamed = {name.replace("mlp.", "feed_forward."): shape for name, shape in shapes(CONFIG).items()}
    (folder / "model.safetensors").write_bytes(safetensors(renamed))
    with pytest.raises(GapError, match=r"6 of the 20 tensors .* does not know 6 .*layers.0.feed_forward") as caught:
        read_checkpoint(folder, families())
    (gap,) = caught.value.gaps
    assert (gap.kind, gap.subject) == ("weight mapping", "model.layers.0.mlp.gate_proj.weight")


@pytest.mark.model
def test_the_real_checkpoint_is_read(smollm2: Path) -> None:
    found = read_checkpoint(smollm2, families())
    assert (found.facts.layers, found.facts.hidden, found.facts.vocab) == (30, 576, 49152)
    assert found.facts.parameters == 134_515_008
    assert (found.ignored, found.unmapped) == ((), ())
