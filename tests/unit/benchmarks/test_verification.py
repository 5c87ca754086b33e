"""The random checkpoint that the verifier is measured on, and the wrong engines that it must reject there."""

import ast
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from benchmarks import prompts
from benchmarks.verification.checkpoint import SHAPES, SHIFT, WORDS, tensors, write_checkpoint, write_tokenizer
from benchmarks.verification.edits import EDITS, edited
from benchmarks.verification.run_h200 import Bench
from ckb.errors import UserError
from tests.unit.gpu_actors.test_contract_gates import composed, facts

TINY = SHAPES["tiny"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_checkpoint(folder, TINY, seed=3)
    return folder


def test_equal_seeds_give_equal_files_and_other_seeds_other_ones(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 3), ("other", 4)):
        assert write_checkpoint(tmp_path / name, TINY, seed) == sum(p.stat().st_size for p in folder.iterdir())
    for path in folder.glob("*.safetensors"):
        assert (tmp_path / "same" / path.name).read_bytes() == path.read_bytes()
        assert (tmp_path / "other" / path.name).read_bytes() != path.read_bytes()


def test_values_have_the_scale_that_was_asked_for(folder: Path) -> None:
    (path,) = folder.glob("*.safetensors")
    with safe_open(path, "pt") as file:
        for drawn in tensors(TINY):
            held = file.get_tensor(drawn.name).double()
            slack = 6 / held.numel() ** 0.5
            assert tuple(held.shape) == drawn.shape
            assert float(held.std() / drawn.scale) == pytest.approx(1, abs=slack), drawn.name
            assert abs(float(held.mean()) - drawn.mean) < slack * drawn.scale, drawn.name


def test_most_positions_say_what_they_mean_in_bfloat16_too(folder: Path) -> None:
    """Of a model whose best logits lie closer together than rounding, a comparison of tokens could judge little."""
    (prompt,) = prompts.cut(folder, [200], seed=0)
    single, half = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)(torch.tensor([prompt])).logits[0].detach().double()
        for dtype in (torch.float32, torch.bfloat16)
    )
    best = single.topk(2, -1).values
    band = 2 * (single - half).abs().amax(-1)
    assert float((best[:, 0] - best[:, 1] > band).double().mean()) > 0.7
    likely = float((single.argmax(-1) == torch.tensor(prompt) + SHIFT).double().mean())
    assert 0.5 < likely < 0.98, "one token stands out, and what came before decides too"


def test_every_id_of_the_vocabulary_has_a_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == TINY.vocab
    big = folder.parent / "big.json"
    write_tokenizer(big, WORDS + 500)
    wide = Tokenizer.from_file(str(big))
    assert wide.get_vocab_size() == WORDS + 500
    assert all(wide.decode([id]) for id in range(WORDS, WORDS + 500))


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_each_edit_fits_a_composed_engine_in_one_place(accelerator: str) -> None:
    files, _ = composed(facts("qwen3", accelerator=accelerator, compiler=None))
    for name in EDITS:
        changed = edited(files, name)
        assert [file for file in files if changed[file] != files[file]] == [EDITS[name].file]
        ast.parse(changed[EDITS[name].file])
    with pytest.raises(UserError, match=r"model\.py has 0 places for the edit 'queries one position late'"):
        edited(files | {"model.py": ""}, "queries one position late")


def test_a_checkpoint_that_is_there_is_not_made_again_and_what_was_found_is_kept(tmp_path: Path) -> None:
    work = tmp_path / "work"
    Bench(work, tmp_path / "one", "tiny", "cpu", "c").checkpoint()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (work / "model").iterdir())
    again = Bench(work, tmp_path / "two", "tiny", "cpu", "c")
    again.checkpoint()
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (work / "model").iterdir()) == before
    found = again.stored("checkpoint")
    assert found is not None
    assert found.checkpoint is not None
    assert found.checkpoint.shape == "tiny"
