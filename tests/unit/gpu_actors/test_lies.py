"""Whatever a child answers, no gate raises: an answer that can't be read is its candidate's failure."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_actors.child import Event, Reply
from gpu_actors.gates.base import Subject
from gpu_actors.gates.registry import STAGE_GATES
from gpu_actors.reference import Reference
from gpu_actors.verifier import check
from tests.mutants import bases
from tests.unit.gpu_actors import tiny


class Names(dict[str, Any]):
    """Has every name, with the same value."""

    def __init__(self, value: Any):
        super().__init__({"x": value})
        self.value = value

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        return self.value

    def get(self, name: str, default: Any = None) -> Any:
        return self.value

    def items(self) -> Any:
        return {"x": self.value}.items()


class Liar:
    """In the place of a child: answers every question alike."""

    alive = True

    def __init__(self, reply: Reply, folder: Path):
        self.reply = reply
        self.sandbox = self
        self.told = self
        self.port, self.pid, self.private = 1, 1, folder
        self.writable = (folder,)

    def read(self) -> None:
        pass

    def rows(self, candidate: str, gate: str) -> tuple[()]:
        return ()

    def call(self, op: str, deadline_s: float, **arguments: Any) -> Reply:
        return self.reply

    def stream(self, op: str, deadline_s: float, **arguments: Any) -> Iterator[Event | Reply]:
        yield Event(self.reply.values.get("x"), 0)
        yield self.reply


LATE = {"acceptance_logits", "acceptance_greedy", "acceptance_top1", "acceptance_divergence", "decode_prefill"}
"""Ask the reference first, which takes a minute for all lies."""
IDLE = ["mechanism"]
"""Asks nothing where the choices claim nothing."""
LIES: dict[str, Reply] = {
    "nothing": Reply({}),
    "None": Reply(Names(None), Names(np.zeros(0))),
    "a number": Reply(Names(-7), Names(np.zeros((1, 1), np.float32))),
    "a text": Reply(Names("{"), Names(np.full((3,), np.nan))),
    "an empty list": Reply(Names([]), Names(np.zeros((0, 3), np.int64))),
    "lists of rubbish": Reply(Names([[None], "x", -1]), Names(np.zeros((2, 2, 2), bool))),
    "an object": Reply(Names({"a": [1]}), Names(np.array(1.0))),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_answer_makes_a_gate_raise(lie: str, tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    tree = tiny.write_engine(tmp_path / "engine", "llama")
    job = tiny.verify_job(tiny.engine_job(tree, checkpoint), rows=bases.right("llama").rows)
    (tmp_path / "copies").mkdir()
    passed = []
    with Reference(tmp_path / "cache", checkpoint, tiny.facts()) as reference:
        for gate in STAGE_GATES:
            if not gate.applies(job.engine.facts) or gate.id in LATE:
                continue
            subject = Subject(job, Liar(LIES[lie], tmp_path), reference, time.monotonic() + 60, tmp_path / "copies")  # type: ignore[arg-type]
            with subject:
                found = check(subject, gate)
            if found.status == "PASS":
                passed.append(gate.id)
    assert passed == IDLE, f"passed with {lie} for every answer"
