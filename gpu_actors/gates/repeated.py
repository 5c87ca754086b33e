"""That an answer depends on what was asked and on nothing else: not on what lies in memory, on who asked before, on
who is asked beside it. What must not matter must not change a bit.
"""

import numpy as np

from benchmarks import prompts
from ckb.hashing import sha256
from gpu_actors.child import ChildFailure
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import compare, judged, rms
from gpu_actors.gates.evidence import Counted, Said, Streamed
from gpu_actors.gates.integration import outside_the_band
from gpu_actors.gates.model import BOUND, texts
from gpu_actors.gates.single import in_float32

POISON = 1e4
"""What stands behind the cursor, in keys and values, with alternating sign: finite, since a lawful kernel may read it
and multiply it by an exact zero."""
STREAMED, LONGEST = 6, 256
"""Tokens of the stream whose logits are looked at, and of its prompt at most."""
SUMS = 4.0
"""How many times what rounding explains of one way to the logits two ways may lie apart."""
LENGTH = 14
"""Of the text that is decoded several times, and somewhat less than half of the longest prompt of a batch: nothing here
depends on the length, and every token costs each candidate a step."""


def steps(subject: Subject, poison: float) -> Array:
    """Logits of a text by steps, after a drawn part of it as the prompt."""
    tokens = texts(subject)[0][:LENGTH]
    prompt = int(subject.draws("repeated_steps").integers(1, max(2, len(tokens) // 2)))
    capacity = min(len(tokens) + 9, subject.facts.workload.max_context)
    options = {"layers": subject.facts.model.layers, "poison": poison}
    reply = subject.call("steps", sequence=tokens, prompt=prompt, capacity=capacity, **options)
    return reply.array("logits", (len(tokens) - prompt + 1, subject.facts.model.vocab))


def plain(subject: Subject) -> Array:
    return subject.once("plain_steps", lambda: steps(subject, 0.0))


def difference(first: Array, second: Array) -> str:
    """Where two arrays of logits [positions, VOCAB] differ, or nothing."""
    rows = np.flatnonzero((first != second).any(-1))
    count = int((first != second).sum())
    return f"{count:,} of {first.size:,} logits, from step {rows[0]} on" if count else ""


def step_determinism(subject: Subject) -> Finding:
    """The same steps give the same bits."""
    subject.load_model()
    first, second = plain(subject), steps(subject, 0.0)
    if found := difference(first, second):
        return failed(f"two equal runs of step differ in {found}")
    digest = sha256(first.tobytes())
    return passed(
        f"two equal runs of {len(first)} steps agree in all {first.size:,} bits of their logits", digest=digest
    )


def poison(subject: Subject) -> Finding:
    """What lies beyond the cursor is never read: large numbers there change no bit."""
    subject.load_model()
    first, second = plain(subject), steps(subject, POISON)
    if found := difference(first, second):
        return failed(f"with {POISON:g} in the cache beyond the last valid position step differs in {found}")
    digest = sha256(second.tobytes())
    return passed(
        f"{len(first)} steps agree in every bit with {POISON:g} beyond the last valid position", digest=digest
    )


def ragged(subject: Subject) -> Finding:
    """A batch of very different lengths, one prompt twice: in a drawn order, again after a smaller batch that leaves
    slots behind, and with the bits of the first time."""
    subject.load_engine()
    rng = subject.draws("ragged")
    context = subject.facts.workload.max_context
    count = min(4, context // 4)
    longest = min(2 * LENGTH + 4, context - count)
    middle = int(rng.integers(2, max(3, longest // 2)))
    drawn = prompts.cut(subject.checkpoint, [longest, 1, middle], int(rng.integers(1 << 30)))
    drawn.append(drawn[1])
    order = [int(i) for i in rng.permutation(len(drawn))]
    first = asked(subject, drawn, count)
    moved = asked(subject, [drawn[i] for i in order], count)
    fewer = asked(subject, drawn[1:3], count)
    again = asked(subject, drawn, count)
    if again != first:
        return failed(f"the same batch of {len(drawn)} prompts twice gave {first} and {again}")
    for name, which, found in (
        ("given", range(len(drawn)), first),
        ("a drawn", order, moved),
        ("given", (1, 2), fewer),
    ):
        for i, tokens in zip(which, found, strict=True):
            if found is not first and tokens == first[i]:
                continue
            if fault := outside_the_band(subject, drawn[i], tokens):
                return failed(f"a prompt of {len(drawn[i])} tokens among {len(found)} in {name} order: {fault}")
    lengths = [len(prompt) for prompt in drawn]
    return passed(
        f"prompts of {lengths} tokens, in order {order}, two of them alone, and again: equal or in the band",
        tokens=[*first, *moved, *fewer],
    )


def open_streams(subject: Subject) -> Finding:
    """Streams that are open at the same time do not see each other; an engine that can hold one sequence alone may
    refuse the others by a RuntimeError."""
    subject.load_engine()
    rng = subject.draws("open_streams")
    count = min(4, subject.facts.workload.max_context // 4)
    longest = min(LENGTH, subject.facts.workload.max_context - count)
    # the longer one last: where it lies in the other's cache, nothing of that is left
    drawn = prompts.cut(subject.checkpoint, [max(1, longest // 2), longest], int(rng.integers(1 << 30)))
    said = subject.call("side_by_side", prompts=drawn, count=count).value("said", list[list[int] | None])
    answered = [tokens for tokens in said if tokens is not None]
    if len(said) != len(drawn) or {len(tokens) for tokens in answered} != {count}:
        return failed(f"{len(drawn)} streams open at once, {count} tokens each: found {said}")
    for prompt, tokens in zip(drawn, said, strict=True):
        if tokens is not None and (fault := outside_the_band(subject, prompt, subject.tokens(tokens))):
            return failed(f"{len(drawn)} streams open at once, that of {len(prompt)} tokens: {fault}")
    return passed(
        f"{len(answered)} of {len(drawn)} streams open at once were answered, each by its own logits", tokens=answered
    )


def streamed_logits(subject: Subject) -> Finding:
    """What a stream's sampler is given are the model's logits: users get streams, and the other gates ask the model. In
    float32, where hardly any rounding hides another model."""
    other = in_float32(subject)
    if other is not subject:
        subject.drop()
    other.load_engine()
    rng = subject.draws("streamed_logits")
    workload = subject.facts.workload
    count = min(STREAMED, workload.max_new)
    # the Target's own shape: what is done only in requests that look like those of a benchmark is done here, too
    length = min(workload.max_prompt, LONGEST)
    (prompt,) = prompts.cut(subject.checkpoint, [length], int(rng.integers(1 << 30)))
    reply = other.call("stream_logits", prompt=prompt, count=workload.max_new, taken=count)
    tokens = other.tokens(reply.value("tokens", list[int]))
    if len(tokens) != count:
        return failed(f"asked for {count} tokens, streamed were {len(tokens)}")
    if not len(reply.array("rows")):
        return passed("its streams give no logits to a sampler of the contract: not shown", shown=False)
    found = reply.array("rows", (count, subject.facts.model.vocab))
    exact = other.logits(prompt + tokens, list(range(len(prompt) - 1, len(prompt) + count - 1)))
    if other is not subject:
        other.drop()
    bound = SUMS * BOUND["float32"] * rms(exact)
    done = [compare(f"{count} steps of a stream after {len(prompt)} tokens", found, exact, 8 * bound, bound)]
    return judged("a stream's logits against the model's, in float32", done)


def asked(subject: Subject, batch: list[list[int]], count: int) -> list[list[int]]:
    """`count` new tokens of each prompt. Raises ChildFailure for more, fewer or none."""
    found = subject.generate(batch, count, ignore_eos=True)
    if [len(tokens) for tokens in found] != [count] * len(batch):
        raise ChildFailure("PROTOCOL", f"{len(batch)} prompts, {count} tokens each: {[len(t) for t in found]}")
    return found


MODEL = (
    Gate("step_determinism", "model", "model", step_determinism, evidence=Counted),
    Gate("poison", "kv-cache", "model", poison, evidence=Counted),
)
INTEGRATION = (
    Gate("ragged", "engine", "integration", ragged, evidence=Said),
    Gate("open_streams", "engine", "integration", open_streams, evidence=Said),
    Gate("streamed_logits", "engine", "integration", streamed_logits, evidence=Streamed),
)
