"""Whose answers a stored answer of Hugging Face is."""

from pathlib import Path

import pytest

from ckb.facts import Facts
from gpu_actors.reference import Reference
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
