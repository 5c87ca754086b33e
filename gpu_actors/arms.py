"""The kinds of arms that a benchmark times: an engine tree in its sandbox, and Hugging Face `generate`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from ckb.facts import Facts
from gpu_actors.child import ENGINE, Child, Event
from gpu_actors.gates.base import logits_of
from gpu_actors.gates.compare import rms
from gpu_actors.gates.model import BOUND
from gpu_actors.jobs import Arm
from gpu_actors.reference import load_huggingface, start_huggingface
from gpu_actors.verifier import confinement

CHECKED_POSITIONS = 16


class Runner(Protocol):
    """How one kind of arm is driven."""

    child: Child

    def load(self, deadline_s: float) -> None: ...
    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]: ...
    def fault(self, prompt: list[int], tokens: list[int], deadline_s: float) -> str: ...


class EngineRunner:
    """An engine tree in its sandbox."""

    def __init__(self, arm: Arm, cache_dir: Path):
        assert arm.engine is not None
        self._job = arm.engine
        self.child = Child(ENGINE, confinement(arm.engine, cache_dir))

    def load(self, deadline_s: float) -> None:
        threads = self._job.facts.platform.cores
        self.child.call("open", deadline_s, tree_dir=self._job.tree_dir, threads=threads)
        self.child.call("load_engine", deadline_s, checkpoint=self._job.checkpoint)

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]:
        arguments = {"prompt": prompt, "max_new_tokens": new_tokens, "ignore_eos": True}
        return (m for m in self.child.stream("stream", deadline_s, **arguments) if isinstance(m, Event))

    def fault(self, prompt: list[int], tokens: list[int], deadline_s: float) -> str:
        """Compares timed tokens with the arg max of the engine's own logits, which the gates have judged."""
        every = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
        chosen = sorted({int(i) for i in np.linspace(every[0], every[-1], CHECKED_POSITIONS)})
        reply = self.child.call("logits", deadline_s, tokens=prompt + tokens, positions=chosen)
        rows = logits_of(reply, len(chosen), self._job.facts.model.vocab)
        band = 2 * BOUND[self._job.facts.workload.dtype] * rms(rows)
        for position, row in zip(chosen, rows, strict=True):
            token = (prompt + tokens)[position + 1]
            gap = float(row.max() - row[token])
            if not gap <= band:
                return f"token {token} at {position + 1} lies {gap:.3g} below the engine's own best, band {band:.3g}"
        return ""


class HuggingFaceRunner:
    """transformers `generate` with a streamer; the dtype and threads of the Target, its own choice of attention."""

    def __init__(self, checkpoint: Path, facts: Facts):
        self._checkpoint, self._facts = checkpoint, facts
        self.child = start_huggingface()

    def load(self, deadline_s: float) -> None:
        load_huggingface(self.child, self._checkpoint, self._facts.workload.dtype, self._facts)

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]:
        arguments = {"dtype": self._facts.workload.dtype, "prompt": prompt, "new_tokens": new_tokens}
        return (m for m in self.child.stream("stream", deadline_s, **arguments) if isinstance(m, Event))

    def fault(self, prompt: list[int], tokens: list[int], deadline_s: float) -> str:
        return ""  # it is what the others are judged by
