"""Checkpoints with random weights on which faults show, and the float64 faults that they are measured by."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from ckb.errors import UserError
from gpu_actors import seeded
from gpu_actors.checkpoint import content_sha256
from gpu_actors.faults import LEAST_OUTSIDE, FaultyDecoder, Mathematics, attention_entropy, standard, texts
from gpu_actors.gates.compare import rms
from gpu_actors.gates.decoder import Decoder

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
    assert held.entropy == pytest.approx(attention_entropy(written[family], seeded.facts_of(family)))
    assert held.repeats < 0.1
    assert set(held.outside) == {"float32", "bfloat16"}
    assert min(held.outside.values()) >= LEAST_OUTSIDE
    assert len(held.effects) == 10
    for effect in held.effects:
        assert effect.error > 0.005, effect
        assert effect.kl > 1e-4, effect


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_fault_the_decoder_says_what_the_gates_and_transformers_say(
    family: Literal["llama", "qwen3"], written: dict[str, Path]
) -> None:
    folder, facts = written[family], seeded.facts_of(family)
    asked = texts(folder, facts)[:2]
    found = FaultyDecoder(facts, folder, "float32").logits(asked)
    wanted = np.concatenate([one.logits for one in Decoder(facts, folder, "float32").expected(asked)])
    assert rms(found - wanted) < 1e-12 * rms(wanted)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        own = torch.cat([model(torch.tensor([sequence])).logits[0] for sequence in asked]).numpy()
    assert rms(found - own) < 1e-5 * rms(own)  # transformers keeps its rotary tables in float32


def test_each_standard_fault_is_another_computation(written: dict[str, Path]) -> None:
    facts = seeded.facts_of("llama")
    asked = texts(written["llama"], facts)[-1:]
    rows = [FaultyDecoder(facts, written["llama"], "float32", other).logits(asked) for other in
            (Mathematics(), *standard(facts).values())]  # fmt: skip
    assert all(rms(a - b) > 1e-3 * rms(a) for i, a in enumerate(rows) for b in rows[:i])


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_weights(tmp_path: Path) -> None:
    facts = seeded.facts_of("llama", weights="bf16")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        seeded.write(tmp_path / name, facts, seed=seed, sharpness=1.75)
    assert content_sha256(tmp_path / "a") == content_sha256(tmp_path / "b") != content_sha256(tmp_path / "c")
    tensors = load_file(tmp_path / "a" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert sum(tensor.numel() for tensor in tensors.values()) == facts.parameters


def test_what_is_not_fit_for_use_leaves_nothing_behind(tmp_path: Path) -> None:
    facts = seeded.facts_of("llama")
    with pytest.raises(UserError, match="entropy is 0"):
        seeded.write(tmp_path / "flat", facts, sharpness=0.5)
    with pytest.raises(UserError, match="outside the tie band of bfloat16"):
        seeded.write(tmp_path / "chaos", facts, sharpness=8.0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="sharpness"):
        seeded.write(tmp_path / "large", seeded.facts_of("qwen3", "8b"))


def test_an_8b_shape_has_the_parameters_of_qwen3_8b_and_its_tensors_are_drawn_in_blocks(tmp_path: Path) -> None:
    facts = seeded.facts_of("qwen3", "8b", "bf16")
    assert facts.parameters == 8_190_735_360
    (table,) = (t for t in seeded.tensors(facts, 1.5) if t.name == "model.embed_tokens.weight")
    few = seeded.Tensor(table.name, (4096, 4096), table.spread)
    with (tmp_path / "part").open("wb") as file:
        seeded.write_blocks(file, few, 0, half=True)
    stored = np.fromfile(tmp_path / "part", np.uint16).astype(np.uint32) << 16
    assert stored.view(np.float32).std() == pytest.approx(np.sqrt(50 * facts.norm_eps), rel=0.01)
    assert few.shape[0] * few.shape[1] > seeded.BLOCK, "more than one block was drawn"


def test_the_command_writes_prints_and_refuses_with_numbers(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(seeded.main)
    ask = CliRunner().invoke
    done = ask(app, ["qwen3", str(tmp_path / "q"), "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == json.loads((tmp_path / "q" / seeded.RECORD).read_text())
    for arguments in (["qwen3", str(tmp_path / "q")], ["gpt2", str(tmp_path / "g")],
                      ["llama", str(tmp_path / "x"), "--shape", "70b"]):  # fmt: skip
        refused = ask(app, arguments)
        assert refused.exit_code == 2, refused.output
