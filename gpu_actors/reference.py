"""What is right, according to Hugging Face transformers: its greedy tokens, and its own error against an oracle.

It runs in a child process of its own that is started at the first miss of the cache. Answers are kept in files named
by everything they depend on, in a folder that no candidate's sandbox can read.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.baselines import HUGGINGFACE
from ckb.facts import Facts
from ckb.hashing import sha256_json
from ckb.whole_files import replacing
from gpu_actors.blocked import reference_bytes, require_memory
from gpu_actors.checkpoint import content_sha256
from gpu_actors.child import Child, ChildFailure, Reply
from gpu_actors.sandbox import UNTIMED, Confinement
from gpu_actors.say import Say, silent

Array = np.ndarray[Any, np.dtype[Any]]
ORACLE = {"float32": "float64", "bfloat16": "float32"}
"""The dtype that judges a dtype."""
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


@dataclass(frozen=True)
class Evaluation:
    """Teacher-forced reference and oracle on one sequence. Arrays by position [T]."""

    best: Array
    """The reference's arg max."""
    oracle_best: Array
    error_max: Array
    """Largest error of the reference's logits against the oracle's."""
    error_rms: Array
    top: Array
    """The oracle's largest logit."""
    second: Array
    """Its second largest."""
    following: Array
    """The oracle's logit of the token that comes next in the sequence; of the last position it means nothing."""
    divergence: Array
    """KL(oracle || reference), in nats."""
    rows: Array
    """The oracle's logits at the sampled positions [S, VOCAB]."""


class ReferenceFailure(Exception):
    """The reference could not answer: an error of ours, or a checkpoint that transformers can't load."""


class Reference:
    """Hugging Face on one checkpoint in a Target's dtype. Use it as a context manager: it may hold a process."""

    def __init__(self, cache_dir: Path, checkpoint: Path, facts: Facts, say: Say = silent):
        """`say` is told when somebody has to wait for answers that are not kept."""
        self.cache_dir = cache_dir
        self.dtype: str = facts.workload.dtype
        self._checkpoint = checkpoint
        self._facts = facts
        self._say = say
        self._child: Child | None = None
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self._loading: Future[None] | None = None
        self._folder = cache_dir / "reference" / content_sha256(checkpoint)[:16]
        versions, here = [version(n) for n in LIBRARIES], facts.platform
        computed = {"accelerator": here.accelerator, "device": here.name, "versions": versions}
        self._key = {"dtype": self.dtype, "oracle": ORACLE[self.dtype], **computed}
        self.seconds = 0.0
        """Time spent on what was not cached."""

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        child, loading, self._child, self._loading = self._child, self._loading, None, None
        if child:
            child.sandbox.kill("nobody asks it any more")
            if loading:
                wait([loading])  # it reads from pipes that are closed next
            child.close()

    def start(self) -> None:
        """Starts the process, for what is sure to miss the cache: it imports and loads beside the caller's other
        work. Whoever asks next is told what goes wrong there."""
        if self._child is None:
            self._child = start_huggingface(UNTIMED)
            self._loading = self._loader.submit(self._load, self._child)

    def _load(self, child: Child) -> None:
        needed = reference_bytes(self._facts.model, self.dtype, ORACLE[self.dtype])
        require_memory("Hugging Face with its oracle", needed, self._facts)
        for dtype in (self.dtype, ORACLE[self.dtype]):
            load_huggingface(child, self._checkpoint, dtype, self._facts)

    def greedy(self, prompt: list[int], new_tokens: int) -> list[int]:
        """The tokens of `generate`, end tokens ignored."""
        values = {"dtype": self.dtype, "prompt": prompt, "new_tokens": new_tokens}
        return [int(t) for t in self._cached("greedy", values)["tokens"]]

    def evaluate(self, tokens: list[int], samples: list[int] | None = None, *, keep: bool = True) -> Evaluation:
        """Every position of a sequence; the oracle's rows at `samples`. `keep`: in the cache; not worth it for what
        will not be asked again."""
        values = {"dtype": self.dtype, "oracle": ORACLE[self.dtype], "tokens": tokens, "samples": samples or []}
        return Evaluation(**(self._cached("evaluate", values) if keep else self._asked("evaluate", values)))

    def _cached(self, op: str, values: dict[str, Any]) -> dict[str, Array]:
        path = self._folder / f"{sha256_json([op, values, self._key])[:32]}.npz"
        if not path.exists():
            self._say("Hugging Face answers the acceptance prompts, once for a checkpoint and dtype")
            arrays = self._asked(op, values)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft, draft.open("xb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)

    def _asked(self, op: str, values: dict[str, Any]) -> dict[str, Array]:
        """Asks the process, and counts its time."""
        start = time.monotonic()
        reply = self._ask(op, values)
        self.seconds += time.monotonic() - start
        return reply.arrays or {k: np.asarray(v) for k, v in reply.values.items()}

    def _ask(self, op: str, values: dict[str, Any]) -> Reply:
        try:
            return self._loaded().call(op, 1800.0, **values)
        except ChildFailure as failure:  # no candidate's fault, and not to be taken for one
            raise ReferenceFailure(f"Hugging Face on {self._checkpoint}, {op}: {failure}\n{failure.trace}") from failure

    def _loaded(self) -> Child:
        self.start()
        assert self._child
        assert self._loading
        try:
            self._loading.result()
        except Exception:
            self.close()  # what there was too little of may be there when it is asked again
            raise
        return self._child


def start_huggingface(environment: Mapping[str, str] = MappingProxyType({})) -> Child:
    """A process that may import transformers. It runs no generated code, so it is not confined."""
    rules = Confinement(mode="none", environment={"HF_HUB_OFFLINE": "1", **environment})
    return Child(HUGGINGFACE, rules, forbidden=())


def load_huggingface(child: Child, checkpoint: Path, dtype: str, facts: Facts) -> Reply:
    device = "cuda" if facts.platform.accelerator == "cuda" else "cpu"
    arguments = {"dtype": dtype, "threads": facts.platform.cores, "device": device}
    return child.call("load", 600.0, checkpoint=str(checkpoint), **arguments)
