"""Whose answers a stored answer of Hugging Face is."""

from pathlib import Path

import psutil
import pytest

from ckb.facts import Facts
from gpu_actors.reference import Reference, ReferenceFailure
from tests.unit.gpu_actors import tiny


@pytest.mark.slow
def test_answers_are_kept_for_a_device_and_taken_for_no_other_one_s(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    here = tiny.facts()

    def another(**platform: str) -> Facts:
        return here.model_copy(update={"platform": here.platform.model_copy(update=platform)})

    def kept() -> set[Path]:
        return set((tmp_path / "cache").rglob("*.npz"))

    def asked(facts: Facts) -> tuple[list[int], bool]:
        """The tokens, and whether they had to be computed."""
        with Reference(tmp_path / "cache", checkpoint, facts) as reference:
            return reference.greedy([5, 6, 7], 4), reference.seconds > 0

    tokens, computed = asked(here)
    assert computed
    assert asked(here) == (tokens, False)
    assert len(kept()) == 1
    assert asked(another(name="another processor")) == (tokens, True)
    assert len(kept()) == 2
    # what `hip` computes here is the processor's: only its name tells it apart
    assert asked(another(accelerator="hip")) == (tokens, True)
    assert len(kept()) == 3


@pytest.mark.slow
def test_what_goes_wrong_while_it_loads_is_told_to_whoever_asks_and_then_tried_again(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    with Reference(tmp_path / "cache", checkpoint, tiny.facts()) as reference:
        weights.write_bytes(whole[:100])
        reference.start()
        with pytest.raises(ReferenceFailure, match="greedy"):
            reference.greedy([5, 6, 7], 4)
        weights.write_bytes(whole)
        assert len(reference.greedy([5, 6, 7], 4)) == 4


def test_one_that_nobody_asked_is_closed_while_it_loads(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    before = children()  # of earlier tests in this process: multiprocessing keeps a tracker to its end
    with Reference(tmp_path / "cache", checkpoint, tiny.facts()) as reference:
        reference.start()
        assert children() - before
    assert not children() - before


def children() -> set[psutil.Process]:
    below = psutil.Process().children(recursive=True)
    return {child for child in below if child.status() != psutil.STATUS_ZOMBIE}
