"""What a gate is: an id, what it checks, and a function from the subject to a finding with evidence."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ckb.facts import Facts
from ckb.records import Stage
from ckb.violations import Violation
from gpu_actors.child import Child, ChildFailure, Event, Reply
from gpu_actors.gates.evidence import Evidence, Executed
from gpu_actors.jobs import EngineJob, GateStatus, Level, Shortage, VerifyJob
from gpu_actors.reference import Reference

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The outcome of one gate, before the verifier records it."""

    status: GateStatus
    summary: str
    """Expected and found, with the numbers."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Evidence: JSON values."""
    blocked: Shortage | None = None
    """What there was too little of to find out."""
    violations: tuple[Violation, ...] = ()
    """What of the finding is a violation of the zero-reference rule."""


def passed(summary: str, **data: Any) -> Finding:
    return Finding("PASS", summary, data)


def failed(summary: str, **data: Any) -> Finding:
    return Finding("FAIL", summary, data)


class Subject:
    """The engine tree that is judged, and what a gate may use to judge it."""

    def __init__(self, job: VerifyJob, child: Child, reference: Reference, deadline: float, copies: Path):
        """`copies`: a folder that the child may read and not write."""
        self.job = job
        self.copies = copies
        self.child = child
        self.reference = reference
        self.beside = ExitStack()
        """What is closed with the verdict: processes of other forms of the tree."""
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: dict[str, Future[Any]] = {}
        self._loaded: tuple[str, Path] | None = None
        self._deadline = deadline
        self._made: dict[str, Any] = {}
        self._own_seconds = [0.0]

    @property
    def facts(self) -> Facts:
        return self.job.engine.facts

    @property
    def tree_dir(self) -> Path:
        return Path(self.job.engine.tree_dir)

    @property
    def checkpoint(self) -> Path:
        return Path(self.job.engine.checkpoint)

    @property
    def seconds_left(self) -> float:
        """Until the verdict's deadline. Time that the reference took for what was not cached is not the candidate's,
        nor is what the gates' own formulas took."""
        return self._deadline + self.reference.seconds + self._own_seconds[0] - time.monotonic()

    def other_form(self, engine: EngineJob, child: Child) -> "Subject":
        """The same tree in another form, in a process of its own: it shares this verdict's draws and time."""
        other = Subject(
            self.job.model_copy(update={"engine": engine}), child, self.reference, self._deadline, self.copies
        )
        other._own_seconds = self._own_seconds
        return other

    def call(self, op: str, **arguments: Any) -> Reply:
        """Asks the engine's process. Raises ChildFailure."""
        return self.child.call(op, self.seconds_left, **arguments)

    def generate(self, prompts: list[list[int]], max_new_tokens: int, *, ignore_eos: bool) -> list[list[int]]:
        """New tokens of each prompt, all of them of this vocabulary. Raises ChildFailure."""
        reply = self.call("generate", prompts=prompts, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos)
        return [self.tokens(tokens) for tokens in reply.value("tokens", list[list[int]])]

    def continuation(self, prompt: list[int], max_new_tokens: int, *, ignore_eos: bool) -> list[int]:
        """New tokens of one prompt. Raises ChildFailure."""
        found = self.generate([prompt], max_new_tokens, ignore_eos=ignore_eos)
        if len(found) != 1:
            raise ChildFailure("PROTOCOL", f"generate answered one prompt with {len(found)} lists of tokens")
        return found[0]

    def stream(self, prompt: list[int], max_new_tokens: int) -> list[int]:
        """Streamed new tokens, end tokens ignored. Raises ChildFailure."""
        arguments = {"prompt": prompt, "max_new_tokens": max_new_tokens, "ignore_eos": True}
        messages = self.child.stream("stream", self.seconds_left, most_events=max_new_tokens, **arguments)
        return self.tokens([message.value for message in messages if isinstance(message, Event)])

    def tokens(self, found: list[Any]) -> list[int]:
        vocab = self.facts.model.vocab
        if strange := [t for t in found if not isinstance(t, int) or not 0 <= t < vocab]:
            raise ChildFailure("PROTOCOL", f"{strange[0]!r} is no token of a vocabulary of {vocab}")
        return found

    def logits(self, tokens: list[int], positions: list[int]) -> Array:
        """Teacher-forced logits [len(positions), vocab], finite. Raises ChildFailure."""
        return logits_of(
            self.call("logits", tokens=tokens, positions=positions), len(positions), self.facts.model.vocab
        )

    def raised(self, op: str, **arguments: Any) -> ChildFailure | None:
        """The exception that an operation raised in the child, or None when it returned. Crashes still raise here."""
        try:
            self.call(op, **arguments)
        except ChildFailure as failure:
            if failure.kind != "RAISED":
                raise
            return failure
        return None

    def load_model(self, checkpoint: Path | None = None) -> None:
        """Loads the weights and the bare model, of the Target's checkpoint or another one, unless they are loaded."""
        self._load("model", checkpoint or self.checkpoint)

    def load_engine(self, checkpoint: Path | None = None) -> None:
        """Loads the whole engine, unless it is what is loaded."""
        self._load("engine", checkpoint or self.checkpoint)

    def _load(self, what: Literal["model", "engine"], checkpoint: Path) -> None:
        """One of the two is held at a time, so that a Target's memory limit need not allow for both."""
        if self._loaded != (what, checkpoint):
            self.drop()
            self.call(f"load_{what}", checkpoint=str(checkpoint))
            self._loaded = what, checkpoint

    def drop(self) -> None:
        """Lets go of what is loaded."""
        self._loaded = None
        self.call("drop")

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.shutdown(wait=True, cancel_futures=True)  # before what it may have started is closed
        self.beside.close()

    def once(self, name: str, make: Callable[[], T], *, ours: bool = False) -> T:
        """What several gates of a verdict need and one makes. `ours`: without the candidate, so not of its time."""
        if name not in self._made:
            start = time.monotonic()
            coming = self._coming.pop(name, None)
            self._made[name] = coming.result() if coming else make()
            self._own_seconds[0] += (time.monotonic() - start) * ours
        made: T = self._made[name]
        return made

    def ahead(self, name: str, make: Callable[[], Any]) -> None:
        """Begins what a later gate will ask for `once` by this name, beside the gates before it: `make` must not talk
        to the candidate's process. What it raises is raised there; where no gate asks, nobody needs to know."""
        self._coming[name] = self._ahead.submit(make)

    def made(self, name: str) -> bool:
        """Whether `once` has it already."""
        return name in self._made

    def forget(self, name: str) -> None:
        """Has the next gate make it again."""
        self._made.pop(name, None)

    def forget_answers(self) -> None:
        """Has the next gate ask the candidate again, about the same inputs."""
        self._made = {name: made for name, made in self._made.items() if name in GIVEN}

    def draws(self, gate: str) -> np.random.Generator:
        """The random numbers of one gate in this verdict: independent of which other gates ran."""
        return np.random.default_rng([self.job.seed, *gate.encode()])


def logits_of(reply: Reply, count: int, vocab: int) -> Array:
    """The rows of a reply to `logits`. Raises ChildFailure unless they are finite float32 [count, vocab]."""
    rows, dtype = reply.array("rows"), reply.value("dtype", str)
    if rows.shape != (count, vocab) or dtype != "torch.float32" or not np.isfinite(rows).all():
        finite = "" if np.isfinite(rows).all() else ", not all finite"
        raise ChildFailure(
            "PROTOCOL", f"logits must be finite float32 {(count, vocab)}; found {dtype} {rows.shape}{finite}"
        )
    return rows


GIVEN = frozenset({"expected", "changed", "fixed_cases", "fresh_cases", "started", "in_float32"})
"""What is asked and what is expected, and processes: nothing that a candidate answered and a gate judges."""
EVERY = "contracts"
"""The contract of a gate that executes every contract in force of its stage, from the rows that the job carries."""


UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def read(experiment: Callable[[Subject], T], subject: Subject) -> T:
    """What an experiment saw. An answer that it can't take apart is its candidate's fault, whatever Python says of it:
    raises ChildFailure. A fault of the experiment itself would fail every right engine, and be seen there."""
    try:
        return experiment(subject)
    except UNREADABLE as error:
        message = f"its answer can't be read: {type(error).__name__}: {error}"
        raise ChildFailure("PROTOCOL", message) from error


@dataclass(frozen=True)
class Gate:
    """One check. `contract` is what it executes; gates of a stage run when that stage is part of the job."""

    id: str
    contract: str
    stage: Stage
    check: Callable[[Subject], Finding]
    level: Level | None = None
    """Fixed level; None: L1 in the job's last stage and L2 in an earlier one."""
    evidence: type[Evidence] = Evidence
    """Schema of what it leaves behind beside its summary."""
    repeatable: bool = True
    """May be run a second time to see whether the answer stays the same, to the last bit of its evidence. One that
    passes without evidence has nothing to compare, and isn't."""
    applies: Callable[[Facts], bool] = lambda facts: True
    """Of which Targets it says anything; for others it isn't run."""
    prepare: Callable[[Subject], None] | None = None
    """Begins what can be made without the candidate (Subject.ahead), when the stage before its own begins."""


def for_each_stage(name: str, check: Callable[[Subject, Stage], Finding]) -> dict[Stage, Gate]:
    """One gate a stage for a check of the contracts in force. What it saw is recorded while the stage's tests run, so
    that it can't be asked twice."""

    def gate(stage: Stage) -> Gate:
        @wraps(check)
        def of_stage(subject: Subject) -> Finding:
            return check(subject, stage)

        return Gate(f"{name}_{stage}", EVERY, stage, of_stage, evidence=Executed, repeatable=False)

    return {stage: gate(stage) for stage in ("execution", "model", "integration")}
