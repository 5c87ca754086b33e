"""How long a decode step takes, by our clock, and where its time goes, by the engine's; in a process of its own."""

import secrets
import time
from pathlib import Path

from benchmarks import prompts
from ckb.violations import Violation
from gpu_actors.arms import fault
from gpu_actors.benchmark_jobs import Profile
from gpu_actors.child import ENGINE, Child, ChildFailure
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates.base import Array, logits_of
from gpu_actors.gates.model import BOUND
from gpu_actors.jobs import EngineJob
from gpu_actors.machine import Ceiling, no_floor, under_floor

PROMPT = 64
STEPS = 16
"""Of the shorter of two timed calls; the other one does twice as many, and what both need beside them cancels out."""
MARGIN = 4.0
"""Over the ceiling, before a step is disbelieved. That is measured once, afterwards, and gates of other candidates may
use the machine meanwhile: what they take of it they need not have taken of the step."""
ROUNDS = 4
"""Pairs of such calls. The shortest of each kind count: other work on the machine only ever adds."""
DEADLINE_S = 300.0
MARK_S = 10.0
BAND = 8.0
"""How far the word of a timed step may lie below the best by prefill, over BOUND: what a benchmark allows arms too."""


def profile(job: EngineJob, cache_dir: Path, candidate: str, gate: str, deadline_s: float = DEADLINE_S) -> Profile:
    """An engine that fails meanwhile is a Profile that says so, and so is one that tries what no engine may: its
    violations are rows of `candidate` and `gate`. Raises CeilingFailure."""
    with Child(ENGINE, confinement(job, cache_dir)) as child:
        try:
            found = Steps(job, child, time.monotonic() + deadline_s).measure()
        except ChildFailure as failure:
            found = failing(f"{failure.kind}: {failure}")
        if rows := tried(child, candidate, gate):
            return failing(f"violation: {rows[0].what}").model_copy(update={"violations": rows})
    return found if found.failure else held_to_the_floor(found, job)


def held_to_the_floor(found: Profile, job: EngineJob) -> Profile:
    """A step that took less time than the memory needs which it reads is none. Raises CeilingFailure."""
    with Ceiling(job.facts.platform) as ceiling:
        ceiling.measure()
    reads, length = ceiling.reads, min(PROMPT, max(1, job.facts.workload.max_context // 2))
    told = {"read_gb_s": reads.gb_s, "no_floor": no_floor(length, STEPS, job.facts, reads)}
    if why := under_floor(found.step_ms, length, STEPS, job.facts, reads, MARGIN):
        found = failing(f"WRONG: {why}")
    return found.model_copy(update=told)


def failing(why: str) -> Profile:
    return Profile(shares={}, step_ms=0.0, failure=why[:500])


def tried(child: Child, candidate: str, gate: str) -> tuple[Violation, ...]:
    """What a process did that no engine may, and that its watch tells no more where it doesn't."""
    asked, answered = secrets.token_hex(8), False
    try:
        if child.alive:
            child.call("mark", MARK_S, nonce=asked)
            answered = True
    except ChildFailure:
        pass  # what it told before lies in the pipe
    child.told.read()
    rows = child.told.rows(candidate, gate)
    if not rows and answered and asked not in child.told.marks:
        what = "silenced its watch: a mark that was asked for did not arrive"
        rows = (Violation(candidate=candidate, gate=gate, kind="runtime", file="", line=0, what=what),)
    return rows


class Steps:
    """The decode steps of one engine. Each timed call is fed a text of its own, and what its last step said is held
    against prefill afterwards: a step that leaves its work out is no faster one."""

    def __init__(self, job: EngineJob, child: Child, deadline: float):
        """`deadline`: monotonic seconds."""
        self._job, self._child, self._deadline = job, child, deadline
        self._context = job.facts.workload.max_context
        self._length = min(PROMPT, max(1, self._context // 2))
        self._said: list[tuple[list[int], Array]] = []
        """What each timed call was fed behind the prompt, and its last logits."""

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def measure(self) -> Profile:
        """Raises ChildFailure."""
        steps = min(STEPS, (self._context - self._length) // 2)
        if not steps:
            return failing(f"a context of {self._context} tokens has no room for two decode steps behind a prompt")
        lengths = [self._length, *[2 * steps] * (1 + 2 * ROUNDS)]
        prompt, warm, *texts = prompts.cut(Path(self._job.checkpoint), lengths, secrets.randbits(30))
        open_tree(self._child, self._job, self._left)
        self._child.call("load_model", self._left, checkpoint=self._job.checkpoint)
        self._child.call("prefilled", self._left, prompt=prompt, capacity=self._context)
        self._timed(warm)
        seconds: dict[int, list[float]] = {steps: [], 2 * steps: []}
        for number, text in enumerate(texts):
            count = 2 * steps if number % 4 in (1, 2) else steps  # which of a pair comes first changes in turn
            seconds[count].append(self._timed(text[:count]))
        short, long = min(seconds[steps]), min(seconds[2 * steps])
        if long <= short:
            told = f"{steps} steps took {1000 * short:.3g} ms and {2 * steps} took {1000 * long:.3g} ms"
            return failing(f"its step's time can't be told from what else a call takes: {told}")
        if wrong := self._fault(prompt):
            return failing(f"a timed step was wrong: {wrong}")
        shares = self._child.call("shares", self._left, tokens=warm[:steps], start=self._length)
        return Profile(shares=shares.value("shares", dict[str, float]), step_ms=1000 * (long - short) / steps)

    def _timed(self, tokens: list[int]) -> float:
        """Seconds of one call, by our clock."""
        start = time.perf_counter()
        reply = self._child.call("decode_steps", self._left, tokens=tokens, start=self._length)
        seconds = time.perf_counter() - start
        self._said.append((tokens, logits_of(reply, 1, self._job.facts.model.vocab)))
        return seconds

    def _fault(self, prompt: list[int]) -> str:
        """The first timed call whose last word is none by prefill, in words; empty for none."""
        facts = self._job.facts
        for tokens, row in self._said:
            reply = self._child.call("last_logits", self._left, tokens=prompt + tokens)
            rows = logits_of(reply, 1, facts.model.vocab)
            said = [*prompt, *tokens, int(row[0].argmax())]
            if wrong := fault(said, [len(said) - 2], rows, BAND * BOUND[facts.workload.dtype]):
                return wrong
        return ""
