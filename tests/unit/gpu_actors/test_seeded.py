"""Checkpoints with random weights on which faults show, and the float64 faults that they are measured by."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from ckb.errors import UserError
from ckb.facts import ModelFacts
from gpu_actors import seeded
from gpu_actors.checkpoint import content_sha256
from gpu_actors.drawn import BLOCK, SHARD_BYTES, Tensor, rewrite, write_tensors
from gpu_actors.drivers import faulty
from gpu_actors.faults import LEAST_OUTSIDE, Mathematics, entropies, standard, texts
from gpu_actors.gates.compare import rms
from gpu_actors.gates.decoder import Decoder
from gpu_actors.reference import ReferenceFailure

Array = np.ndarray[Any, np.dtype[Any]]
FAMILIES: tuple[Literal["llama", "qwen3"], ...] = ("llama", "qwen3")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("seeded")
    for family in FAMILIES:
        seeded.write(folder / family, seeded.facts_of(family), seed=3)
    return {family: folder / family for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seeded_checkpoint_is_sharp_and_every_standard_fault_shows_on_it(
    family: Literal["llama", "qwen3"], written: dict[str, Path]
) -> None:
    record = seeded.Seeded.model_validate_json((written[family] / seeded.RECORD).read_text())
    held = record.measures
    assert held is not None
    assert 0 < held.entropy <= 0.5
    (again,) = entropies(written[family], seeded.facts_of(family), [Mathematics()])
    assert held.entropy == pytest.approx(again)
    assert held.repeats < 0.1
    assert set(held.outside) == {"float32", "bfloat16"}
    assert min(held.outside.values()) >= LEAST_OUTSIDE
    assert len(held.effects) == 10
    for effect in held.effects:
        assert effect.error > 0.005, effect
        assert effect.kl > 1e-4, effect


def logits(folder: Path, facts: ModelFacts, sequences: list[list[int]], others: list[Mathematics]) -> list[Array]:
    """By the decoder that has faults, in this process: one for each of `others`."""
    copies = [asdict(other) | {"dtype": None} for other in others]
    made = faulty.decoder(str(folder), facts.model_dump(mode="json"), sequences, copies, "cpu")
    return [rows.numpy() for rows in made.logits(sequences * len(copies)).chunk(len(copies))]


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_fault_the_decoder_says_what_the_gates_and_transformers_say(
    family: Literal["llama", "qwen3"], written: dict[str, Path]
) -> None:
    folder, facts = written[family], seeded.facts_of(family)
    asked = texts(folder, facts)[:2]
    faults = list(standard(facts).values())
    found = logits(folder, facts, asked, [faults[0], Mathematics(), faults[1]])[1]
    wanted = np.concatenate([one.logits for one in Decoder(facts, folder, "float32").expected(asked)])
    assert rms(found - wanted) < 1e-12 * rms(wanted), "copies with faults do nothing to one without"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        own = torch.cat([model(torch.tensor([sequence])).logits[0] for sequence in asked]).numpy()
    assert rms(found - own) < 1e-5 * rms(own)  # transformers keeps its rotary tables in float32


@pytest.mark.parametrize("family", FAMILIES)
def test_each_standard_fault_is_another_computation(
    family: Literal["llama", "qwen3"], written: dict[str, Path]
) -> None:
    facts = seeded.facts_of(family)
    asked = texts(written[family], facts)[-1:]
    rows = logits(written[family], facts, asked, [Mathematics(), *standard(facts).values()])
    assert all(rms(a - b) > 1e-3 * rms(a) for i, a in enumerate(rows) for b in rows[:i])


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_scores_that_are_larger_are_weights_of_queries_and_keys_that_are(
    family: Literal["llama", "qwen3"], tmp_path: Path
) -> None:
    facts = seeded.facts_of(family)
    drawn = list(seeded.tensors(facts, 1.0))
    seeded.write_tokenizer(tmp_path, facts.vocab)
    write_tensors(tmp_path, drawn, 3, half=False)
    (plain, foretold) = entropies(tmp_path, facts, [Mathematics(), Mathematics(scores=1.3**2)])
    rewrite(tmp_path, list(seeded.tensors(facts, 1.3)), drawn, 3, half=False)
    (found,) = entropies(tmp_path, facts, [Mathematics()])
    assert found == pytest.approx(foretold, rel=1e-6)
    assert found < 0.95 * plain
    (tmp_path / "anew").mkdir()
    write_tensors(tmp_path / "anew", list(seeded.tensors(facts, 1.3)), 3, half=False)
    assert (tmp_path / "anew" / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_one_other_weights(tmp_path: Path) -> None:
    facts = seeded.facts_of("llama", weights="bf16")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        seeded.write(tmp_path / name, facts, seed=seed, sharpness=1.75)
    assert content_sha256(tmp_path / "a") == content_sha256(tmp_path / "b") != content_sha256(tmp_path / "c")
    tensors = load_file(tmp_path / "a" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert sum(tensor.numel() for tensor in tensors.values()) == facts.parameters


@pytest.mark.slow
def test_what_is_not_fit_for_use_leaves_nothing_behind(tmp_path: Path) -> None:
    facts = seeded.facts_of("llama")
    with pytest.raises(UserError, match="entropy is 0"):
        seeded.write(tmp_path / "flat", facts, sharpness=0.5)
    with pytest.raises(UserError, match="outside the tie band of bfloat16"):
        seeded.write(tmp_path / "chaos", facts, sharpness=8.0)
    with pytest.raises(
        UserError, match=r"8,190,735,360 parameters .* up to 200,000,000: give a sharpness, or a device"
    ):
        seeded.write(tmp_path / "large", seeded.facts_of("qwen3", "8b"))
    if not torch.cuda.is_available():  # what can't be measured is not written either
        with pytest.raises(ReferenceFailure, match=r"float64 decoder of .* on cuda"):
            seeded.write(tmp_path / "nowhere", facts, device="cuda")
    assert list(tmp_path.iterdir()) == []


def test_what_a_call_left_that_was_ended_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "model.part").mkdir()
    (tmp_path / "model.part" / "model.safetensors").write_bytes(b"half")
    seeded.write(tmp_path / "model", seeded.facts_of("llama"), sharpness=1.75)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_8b_shape_has_the_parameters_of_qwen3_8b() -> None:
    assert seeded.facts_of("qwen3", "8b", "bf16").parameters == 8_190_735_360


@pytest.mark.parametrize("half", [True, False])
def test_tensors_are_drawn_in_blocks_that_no_order_of_threads_changes(half: bool, tmp_path: Path) -> None:
    large = Tensor("large", (3000, 4096), 0.02, mean=0.5)
    others = [Tensor("norm", (64,), 0.2, mean=1.0), Tensor("head", (500, 128), 1.0, lengths=0.4, first=3.0)]
    assert large.size > 2 * BLOCK, "several blocks are drawn"
    write_tensors(tmp_path, [large, *others], 7, half=half)
    held = load_file(tmp_path / "model.safetensors")
    for tensor in (large, *others):
        wanted = np.concatenate([tensor.rows(start, 7) for start in tensor.starts]).reshape(tensor.shape)
        kind = torch.bfloat16 if half else torch.float32
        assert torch.equal(held[tensor.name], torch.from_numpy(wanted).to(kind)), tensor.name
    blocks = held["large"].double().split(large.starts.step)
    assert [float(block.std()) for block in blocks] == pytest.approx([0.02] * len(blocks), rel=0.05)
    assert abs(float(((blocks[0] - 0.5) * (blocks[1] - 0.5)).mean())) < 1e-2 * 0.02**2, "blocks repeat nothing"
    assert abs(float(blocks[0].mean()) - 0.5) < 1e-3


def test_a_large_checkpoint_has_several_files_that_hold_what_one_would(tmp_path: Path) -> None:
    drawn = [Tensor(name, (100, 50), 1.0) for name in "abcde"]
    for name, limit in (("one", SHARD_BYTES), ("several", 25_000)):
        (tmp_path / name).mkdir()
        write_tensors(tmp_path / name, drawn, 1, half=True, shard_bytes=limit)
    whole = load_file(tmp_path / "one" / "model.safetensors")
    index = json.loads((tmp_path / "several" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * 10_000
    assert len(set(index["weight_map"].values())) == 3
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / "several" / file)[name], whole[name])
    assert not (tmp_path / "one" / "model.safetensors.index.json").exists()


def test_every_id_of_a_vocabulary_has_a_text(tmp_path: Path) -> None:
    seeded.write_tokenizer(tmp_path, seeded.VOCABULARY + 500)
    wide = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert wide.get_vocab_size() == seeded.VOCABULARY + 500
    assert all(wide.decode([id]) for id in range(seeded.VOCABULARY, seeded.VOCABULARY + 500))
    assert wide.encode("Ġ").ids
    assert max(wide.encode("some real text, and w4200").ids) < seeded.VOCABULARY, "no text uses them"


def test_the_command_writes_prints_and_refuses_with_numbers(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(seeded.main)
    ask = CliRunner().invoke
    done = ask(app, ["qwen3", str(tmp_path / "q"), "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == json.loads((tmp_path / "q" / seeded.RECORD).read_text())
    for arguments in (["qwen3", str(tmp_path / "q")], ["gpt2", str(tmp_path / "g")],
                      ["llama", str(tmp_path / "x"), "--shape", "70b"],
                      ["llama", str(tmp_path / "y"), "--device", "tpu"]):  # fmt: skip
        refused = ask(app, arguments)
        assert refused.exit_code == 2, refused.output
