"""The gates' own mathematics: formulas against their definitions, bounds that let rounding through and nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_actors import checkpoint, seeded
from gpu_actors.gates import formulas
from gpu_actors.gates.acceptance import MARGIN, errors_of, worst_of
from gpu_actors.gates.cases import Plan
from gpu_actors.gates.compare import ROUNDOFF, compare, judged, rms, rounded
from gpu_actors.gates.decoder import Decoder, expected, expected_on
from gpu_actors.gates.integration import numbers
from gpu_actors.reference import ReferenceFailure
from tests.unit.gpu_actors import tiny


def test_a_rotation_keeps_lengths_and_makes_products_depend_on_distance_alone() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 1, 8))
    first = formulas.rope(q, 5, 1e4) * formulas.rope(k, 3, 1e4)
    moved = formulas.rope(q, 25, 1e4) * formulas.rope(k, 23, 1e4)
    assert first.sum() == pytest.approx(moved.sum())
    assert rms(formulas.rope(q, 9, 1e4)) == pytest.approx(rms(q))


def test_attention_sees_the_past_alone_and_each_group_of_heads_its_own_keys() -> None:
    rng = np.random.default_rng(1)
    q, keys, values = rng.normal(size=(3, 4, 8)), rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 5, 8))
    whole, _ = formulas.attention(q, keys, values, 2)
    first, _ = formulas.attention(q[:1], keys[:, :3], values[:, :3], 2)
    np.testing.assert_allclose(whole[0], first[0])
    other = values.copy()
    other[1] += 1
    changed = np.abs(formulas.attention(q, keys, other, 2)[0] - whole).max(axis=0) > 1e-9
    assert changed.reshape(4, 8).all(axis=1).tolist() == [False, False, True, True]


def test_rounding_to_bfloat16_goes_to_the_nearest_even() -> None:
    exact = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, -3.14159, 1e30])
    expected = [1.0, 1.0, 1.0 + 2**-6, -3.140625, 1e30]
    np.testing.assert_array_equal(rounded(exact, "bfloat16")[:4], expected[:4])
    np.testing.assert_allclose(rounded(exact, "bfloat16"), expected, rtol=2**-9)
    np.testing.assert_array_equal(rounded(exact, "float32"), exact.astype(np.float32))


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (lambda x: x, True),
        (lambda x: rounded(x, "bfloat16"), True),
        (lambda x: x * 1.01, False),
        (lambda x: 0 * x, False),
        (lambda x: np.where(np.arange(len(x)) == 7, x + 1, x), False),
        (lambda x: np.where(np.arange(len(x)) == 7, np.nan, x), False),
        (lambda x: x[:-1], False),
    ],
    ids=["exact", "rounded", "one percent", "zeros", "one element", "not finite", "shape"],
)
def test_bounds_in_bfloat16_admit_one_rounding_and_no_fault(found: object, passes: bool) -> None:
    x = np.random.default_rng(2).normal(size=4096)
    u = ROUNDOFF["bfloat16"]
    result = compare("case", found(x), x, 1.25 * u * np.abs(x), u * rms(x))  # type: ignore[operator]
    assert result.passed == passes
    assert (judged("it", [result]).status == "PASS") == passes


def test_an_error_is_measured_against_the_reference_s_own() -> None:
    rng = np.random.default_rng(3)
    exact = rng.normal(size=(4, 100))
    own = 1e-3 * rng.normal(size=exact.shape)
    sizes = (np.abs(own).max(-1), np.sqrt(np.mean(own**2, axis=-1)))
    same = errors_of(exact + own, exact, *sizes)
    assert same.largest == pytest.approx(same.own_largest, abs=0.01)
    assert worst_of([same]) == pytest.approx(1, abs=0.01)
    assert worst_of([errors_of(exact + 3 * own, exact, *sizes)]) > MARGIN


def test_the_largest_of_few_errors_is_chance_and_that_of_all_is_not() -> None:
    """Two draws of the same errors, some positions with more than others as in a model: bounds on sequences
    refuse many right engines, the one in force none; a single wrong logit is refused as before."""
    refused_by_sequence = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        errors = []
        for _ in range(8):
            exact = rng.normal(size=(16, 384))
            own, other = 1e-4 * rng.normal(size=(2, 16, 384)) * np.exp(0.4 * rng.normal(size=(2, 16, 1)))
            sizes = (np.abs(own).max(-1), np.sqrt(np.mean(own**2, axis=-1)))
            errors.append(errors_of(exact + other, exact, *sizes))
        refused_by_sequence += max(one.largest / one.own_largest for one in errors) > MARGIN
        assert worst_of(errors) <= MARGIN, seed
        wrong = errors_of(exact + np.where(np.arange(384) == 7, 0.02, 0.0), exact, *sizes)
        assert worst_of([*errors, wrong]) > MARGIN
    assert refused_by_sequence > 2


def test_acceptance_lengths_grow_up_to_what_level_and_target_allow() -> None:
    facts = tiny.facts()
    lengths = Plan(Path(), facts, which="full", seed=0).lengths
    longest_prompt = tiny.MAX_CONTEXT - facts.workload.max_new
    assert (lengths[0], lengths[-2:], len(lengths)) == (3, [tiny.MAX_CONTEXT - 64, longest_prompt], 9)
    assert Plan(Path(), facts, which="full", seed=0).count([0] * longest_prompt) == facts.workload.max_new
    assert Plan(Path(), facts, which="screen", seed=0).lengths[-1] == tiny.MAX_CONTEXT - 32
    long = facts.workload.model_copy(update={"max_prompt": 8000, "max_new": 192})
    model = facts.model.model_copy(update={"max_positions": 4096})
    wide = facts.model_copy(update={"workload": long, "model": model})
    assert Plan(Path(), wide, which="screen", seed=0).lengths[-1] == 1024 - 32
    assert Plan(Path(), wide, which="full", seed=0).lengths[-1] == 4096 - 64


def test_numbers_are_found_with_and_without_separators() -> None:
    assert numbers("1,213 tokens, at most 1_024 or 96") == {"1213", "1024", "96"}


def test_a_checkpoint_is_named_by_its_content(tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / "model", "llama")
    name = checkpoint.content_sha256(folder)
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert checkpoint.content_sha256(folder) != name
    (folder / "README.md").write_text("words")
    data[-1] ^= 1
    weights.write_bytes(data)
    assert checkpoint.content_sha256(folder) == name


def test_broken_copies_of_a_checkpoint_differ_in_one_thing(tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / "model", "llama")
    tensor = "model.layers.1.mlp.up_proj.weight"
    checkpoint.renamed(folder, tmp_path / "renamed", tensor)
    before, after = (set(checkpoint.Checkpoint(f).names) for f in (folder, tmp_path / "renamed"))
    assert before - after == {tensor}
    assert len(after - before) == 1
    checkpoint.truncated(folder, tmp_path / "truncated")
    sizes = [(f / "model.safetensors").stat().st_size for f in (folder, tmp_path / "truncated")]
    assert sizes[1] < sizes[0]
    assert (tmp_path / "truncated" / "config.json").resolve() == (folder / "config.json").resolve()


def test_broken_copies_of_several_files_say_in_their_index_what_is_in_them(tmp_path: Path) -> None:
    folder, tensor = tmp_path / "model", "model.layers.1.mlp.up_proj.weight"
    seeded.write(folder, seeded.facts_of("llama", weights="bf16"), sharpness=1.75, shard_bytes=200_000)
    assert len(checkpoint.files(folder)) > 1
    checkpoint.renamed(folder, tmp_path / "renamed", tensor)
    checkpoint.extended(folder, tmp_path / "extended", "model.one_more")
    names = {}
    for name in ("model", "renamed", "extended"):
        index = json.loads((tmp_path / name / "model.safetensors.index.json").read_text())
        names[name] = set(index["weight_map"])
        assert names[name] == set(checkpoint.Checkpoint(tmp_path / name).names)
    assert names["model"] - names["renamed"] == {tensor}
    assert names["extended"] - names["model"] == {"model.one_more"}


def test_tensors_are_read_in_their_own_format(tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / "model", "llama")
    held = checkpoint.Checkpoint(folder)
    assert held.tensor("model.norm.weight").dtype == np.float64
    assert held.tensor("model.embed_tokens.weight").shape == (384, 48)
    assert "model.norm.weight" in held
    assert "lm_head.weight" not in held


def test_the_decoder_says_how_far_rounding_takes_a_sequence(tmp_path: Path) -> None:
    folder = tmp_path / "qwen3"
    tiny.write_checkpoint(folder, "qwen3")
    model = tiny.facts("qwen3").model
    sequences = [[5, 9, 300, 2, 77], [11]]
    single, half = (Decoder(model, folder, dtype).expected(sequences) for dtype in ("float32", "bfloat16"))
    for one, other in zip(single, half, strict=True):
        np.testing.assert_array_equal(one.logits, other.logits)
        size = rms(one.logits)
        assert 2**-26 * size < one.roundings["float32"] < 2**-18 * size
        assert 2**-10 * size < other.roundings["bfloat16"] < 2**-2 * size
    (shorter,) = Decoder(model, folder, "float32").expected([[5, 9]])
    np.testing.assert_allclose(single[0].logits[:2], shorter.logits, rtol=1e-12)


@pytest.mark.parametrize(("family", "dtype"), [("llama", "bfloat16"), ("qwen3", "float32")])
def test_the_decoder_says_the_same_in_torch_on_a_device(family: str, dtype: str, tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / family, family)
    held = tiny.facts(family)
    facts = held.model_copy(update={"workload": held.workload.model_copy(update={"dtype": dtype})})
    sequences = [[5, 9, 300, 2, 77, 383, 0], [11]]
    dtypes = tuple(dict.fromkeys((facts.workload.dtype, "float32")))
    here = expected(facts, folder, sequences, dtypes)
    there = expected_on("cpu", facts.model, folder, sequences, dtypes)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(other.logits, one.logits, rtol=0, atol=1e-9 * rms(one.logits))
        assert other.roundings == pytest.approx(one.roundings, rel=1e-3), "a last bit may round the other way"
    with pytest.raises(ReferenceFailure, match=r"float64 decoder of .* on cuda"):
        expected(facts.model_copy(update={"platform": facts.platform.model_copy(update={"accelerator": "cuda"})}),
                 tmp_path / "nowhere", sequences, dtypes)  # fmt: skip


def test_attention_of_wide_heads_may_round_more_as_its_scores_do() -> None:
    """Scores summed one product after the other, in float32: a bound that knows nothing of the width of a head refused
    them on heads of 128; what is wrong stays three orders of magnitude away."""
    rng, dim, u = np.random.default_rng(7), 128, 2.0**-24
    q, keys, values = (rounded(rng.normal(scale=s, size=shape), "float32") for s, shape in (
        (3.0, (33, 32, dim)), (1.0, (8, 33, dim)), (1.0, (8, 33, dim))))  # fmt: skip
    expected, size = formulas.attention(q, keys, values, 0)
    scores = np.zeros((32, 33, 33), np.float32)
    for i in range(dim):
        scores += (q[:, :, i].T[:, :, None] * np.repeat(keys, 4, 0)[:, None, :, i]).astype(np.float32)
    scores = np.where(np.triu(np.ones((33, 33), bool), 1), -np.inf, scores * np.float32(dim**-0.5 / np.log(2)))
    weights = np.exp2((scores - scores.max(-1, keepdims=True)).astype(np.float32))
    weights /= weights.sum(-1, keepdims=True)
    found = np.einsum("hmt,htd->mhd", weights, np.repeat(values, 4, 0)).reshape(33, -1)
    wide = (64 + 2 * np.repeat(formulas.score_size(q, keys), dim, axis=1)) * u * size
    assert (np.abs(found - expected) / (64 * u * size)).max() > 0.9
    assert (np.abs(found - expected) / wide).max() < 0.8
    wrong, _ = formulas.attention(1.01 * q, keys, values, 0)
    assert (np.abs(wrong - expected) / wide).max() > 1000
