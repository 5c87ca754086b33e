"""The kinds of arms that a benchmark times: an engine tree in its sandbox, Hugging Face `generate`, and servers."""

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from benchmarks.baselines.records import Setting
from ckb.facts import Facts
from gpu_actors.benchmark_jobs import Arm, BenchmarkJob
from gpu_actors.child import ENGINE, Child, Event
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates.base import Array, logits_of
from gpu_actors.gates.compare import rms
from gpu_actors.reference import load_huggingface, start_huggingface
from gpu_actors.served import ServerRunner
from gpu_actors.server_process import Process

CHECKED_POSITIONS = 16


def fault(tokens: list[int], positions: list[int], rows: Array, band: float) -> str:
    """The first of the tokens after `positions` that whoever gave the `rows` of logits puts too far below its best.
    `band`: in units of the rows' root mean square."""
    allowed = band * rms(rows)
    for position, row in zip(positions, rows, strict=True):
        token = tokens[position + 1]
        gap = float(row.max() - row[token])
        if not gap <= allowed:
            return f"token {token} at {position + 1} lies {gap:.3g} below the best, band {allowed:.3g}"
    return ""


class Runner(Protocol):
    """How one kind of arm is driven."""

    judges: bool
    """It gives logits, so that it can say whether what others said is right."""

    @property
    def child(self) -> Process: ...
    @property
    def local(self) -> bool:
        """It computes on this machine: memory bandwidth and foreign load say something about it."""

    @property
    def tells_tokens(self) -> bool:
        """The values of its events are token ids."""

    @property
    def takes_text(self) -> bool:
        """It takes no token ids: prompts must be what the checkpoint's tokenizer makes of a text."""

    @property
    def setting(self) -> Setting: ...
    def load(self, deadline_s: float) -> int:
        """Returns when it was ready for its first request, on time.perf_counter_ns."""

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]: ...
    def logits(self, tokens: list[int], positions: list[int], deadline_s: float) -> Array: ...


class EngineRunner:
    """An engine tree in its sandbox."""

    judges = local = tells_tokens = True
    takes_text = False

    def __init__(self, arm: Arm, cache_dir: Path):
        assert arm.engine is not None
        self._job = arm.engine
        workload = self._job.facts.workload
        self.setting = Setting(
            version=f"tree {self._job.tree[:12]}",
            dtype=workload.dtype,
            tensor_parallel=1,
            graph=workload.step,
            asked="token ids over a pipe",
        )
        self.child = Child(ENGINE, confinement(arm.engine, cache_dir))

    def load(self, deadline_s: float) -> int:
        open_tree(self.child, self._job, deadline_s)
        self.child.call("load_engine", deadline_s, checkpoint=self._job.checkpoint)
        return time.perf_counter_ns()

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]:
        arguments = {"prompt": prompt, "max_new_tokens": new_tokens, "ignore_eos": True}
        messages = self.child.stream("stream", deadline_s, most_events=new_tokens, **arguments)
        return (message for message in messages if isinstance(message, Event))

    def logits(self, tokens: list[int], positions: list[int], deadline_s: float) -> Array:
        """Teacher-forced logits [len(positions), vocab]."""
        reply = self.child.call("logits", deadline_s, tokens=tokens, positions=positions)
        return logits_of(reply, len(positions), self._job.facts.model.vocab)


class HuggingFaceRunner:
    """transformers `generate` with a streamer; the dtype and threads of the Target, its own choice of attention."""

    judges = local = tells_tokens = True
    takes_text = False

    def __init__(self, checkpoint: Path, facts: Facts):
        self._checkpoint, self._facts = checkpoint, facts
        self.setting = Setting(
            version=f"transformers {version('transformers')}, torch {version('torch')}",
            dtype=facts.workload.dtype,
            tensor_parallel=1,
            graph="eager",
            asked="token ids over a pipe",
        )
        self.child = start_huggingface()

    def load(self, deadline_s: float) -> int:
        load_huggingface(self.child, self._checkpoint, self._facts.workload.dtype, self._facts)
        return time.perf_counter_ns()

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]:
        dtype = self._facts.workload.dtype
        messages = self.child.stream("stream", deadline_s, dtype=dtype, prompt=prompt, new_tokens=new_tokens)
        return (message for message in messages if isinstance(message, Event))

    def logits(self, tokens: list[int], positions: list[int], deadline_s: float) -> Array:
        arguments = {"dtype": self._facts.workload.dtype, "tokens": tokens, "positions": positions}
        return self.child.call("logits", deadline_s, **arguments).array("rows")


def runner_of(arm: Arm, job: BenchmarkJob, cache_dir: Path) -> Runner:
    """Starts an arm's process. Raises UserError for a server that can't be started."""
    if arm.engine:
        return EngineRunner(arm, cache_dir)
    if arm.baseline:
        return ServerRunner(arm.name, arm.baseline, job, cache_dir)
    return HuggingFaceRunner(Path(job.checkpoint), job.facts)
