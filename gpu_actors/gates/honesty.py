"""Stage tests of an engine's honesty: that what it says follows from what it is asked now, and costs the work of now.

The prompts are drawn for each verdict, and processor time is the kernel's, which no code of the child can change. A
cheat that burns as much as it saved has gained nothing. No Target can ask for a cache of prefixes, so nothing is exempt
here: a prompt that was asked before costs what it cost.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks import prompts
from gpu_actors.child import Event, Reply
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.evidence import Asked, Rested, Said
from gpu_actors.gates.integration import outside_the_band
from gpu_actors.observed import Built, cpu_ns

ASKED = 3
"""Prompts that are asked twice: the median of their costs is neither one lucky request nor one that was disturbed."""
PROMPT, NEW = 16, 4
"""Tokens of the requests here, at most: acceptance asks long ones."""
SHARE = 0.6
"""Least share of its first cost that asking again may cost; and of a fresh prompt's, asked in turn with it, where the
first costs say too little: other work on the machine, or an engine that is slow at first, makes them dearer."""
TRIES = 4
"""Edits of one prompt that are looked at for one that matters."""
REST_S = 0.05
"""How long is watched what goes on after a request."""
IDLE_S = 0.15
RESTS_MS = 3.0
"""Processor time that may pass meanwhile, since memory is given back. Right engines took 0.5 at most; a thread that
goes on takes REST_S of it, and where ten threads share a processor still more than this."""
IDLES_MS = 10.0
"""Processor time that may pass within IDLE_S or between two requests: a thread may look now and then what there is."""
RESTS_SHARE = 0.05
"""The same as a share of the request's own processor time."""
SETTLES_MS = 25.0
"""How long a device may still be at work after the last token."""


@dataclass(frozen=True)
class Request:
    """One streamed request as it was seen from outside."""

    tokens: tuple[int, ...]
    positions: int
    """That the model was fed, as counted in its process; 0 for an engine that goes round `Model`."""
    cpu_ms: float
    """Processor time of the process tree, from the request to its end."""
    after_ms: float
    """The same from the last token to REST_S after the end."""
    settled_ms: float
    """Until all that was given to a device was done, from the end on."""


@dataclass(frozen=True)
class Session:
    """A sequence of requests of one shape, the first to warm up, and what was built while it ran."""

    prompts: tuple[list[int], ...]
    firsts: tuple[Request, ...]
    agains: tuple[Request, ...]
    """The same prompts once more, each with the other one in between."""
    idle_ms: float
    """Processor time while nothing was asked."""
    built: str
    """What was compiled or loaded after the first request."""


def lengths(subject: Subject) -> tuple[int, int]:
    """Prompt and new tokens of a request that this Target's context holds."""
    context = subject.facts.workload.max_context
    new = max(1, min(NEW, context // 4))
    return min(PROMPT, context - new), new


def ask(subject: Subject, prompt: list[int], new: int) -> Request:
    """One request. Raises ChildFailure."""
    pid = subject.child.sandbox.pid
    start = last = cpu_ns(pid)
    said, positions = [], 0
    arguments = {"prompt": prompt, "max_new_tokens": new}
    for message in subject.child.stream("counted_stream", subject.seconds_left, most_events=new, **arguments):
        if isinstance(message, Event):
            said.append(message.value)
            last = cpu_ns(pid) if len(said) == new else last
        elif isinstance(message, Reply):
            positions = message.value("positions", int)
    end = cpu_ns(pid)
    asked = time.perf_counter_ns()
    subject.call("settle")
    settled = time.perf_counter_ns() - asked
    time.sleep(REST_S)
    after = cpu_ns(pid) - last
    return Request(tuple(subject.tokens(said)), positions, (end - start) / 1e6, after / 1e6, settled / 1e6)


def session(subject: Subject) -> Session:
    """Asked once for the gates below. Raises ChildFailure."""
    return subject.once("honest session", lambda: _session(subject))


def _session(subject: Subject) -> Session:
    subject.load_engine()
    length, new = lengths(subject)
    seed = int(subject.draws("honest session").integers(1 << 30))
    warm, *drawn = prompts.cut(subject.checkpoint, [length] * (1 + ASKED), seed)
    ask(subject, warm, new)
    before = Built.of(subject.child, subject.seconds_left)
    firsts, agains = ([ask(subject, prompt, new) for prompt in drawn] for _ in range(2))
    idle = cpu_ns(subject.child.sandbox.pid)
    time.sleep(IDLE_S)
    idle = cpu_ns(subject.child.sandbox.pid) - idle
    built = Built.of(subject.child, subject.seconds_left).since(before)
    return Session(tuple(drawn), tuple(firsts), tuple(agains), idle / 1e6, built)


def in_turn(subject: Subject, known: Sequence[list[int]]) -> list[tuple[Request, Request]]:
    """Each known prompt asked once more, and right behind it one of its length that nobody asked before."""
    length, new = lengths(subject)
    seed = int(subject.draws("honest session in turn").integers(1 << 30))
    fresh = prompts.cut(subject.checkpoint, [length] * len(known), seed)
    return [(ask(subject, old, new), ask(subject, other, new)) for old, other in zip(known, fresh, strict=True)]


def remembers(subject: Subject) -> Finding:
    """A prompt that was asked before, with another one in between, is fed to the model again and costs as much."""
    found = session(subject)
    pairs = list(zip(found.firsts, found.agains, strict=True))
    ratio = median(again.cpu_ms / max(first.cpu_ms, 1e-3) for first, again in pairs)
    data: dict[str, Any] = {
        "firsts": [asdict(one) for one in found.firsts],
        "agains": [asdict(one) for one in found.agains],
    }
    fewer = [(first.positions, again.positions) for first, again in pairs if again.positions < first.positions]
    if fewer:
        was, now = fewer[0]
        return failed(f"a prompt asked again fed the model {now} positions in place of {was}", **data)
    if ratio < SHARE:
        turns = in_turn(subject, found.prompts)
        data["in_turn"] = [[asdict(again), asdict(fresh)] for again, fresh in turns]
        beside = median(again.cpu_ms / max(fresh.cpu_ms, 1e-3) for again, fresh in turns)
        if beside < SHARE:
            return failed(
                f"a prompt asked again cost {ratio:.0%} of its first processor time, and {beside:.0%} of a fresh one's "
                f"in turn with it (least is {SHARE:.0%})",
                **data,
            )
    fed = found.firsts[0].positions
    return passed(f"{len(pairs)} prompts asked again: {fed} positions each time, {ratio:.0%} of the first cost", **data)


def rests(subject: Subject) -> Finding:
    """Nothing is left to do after the last token, on no device, and nothing is done while no request is there."""
    found = session(subject)
    requests = (*found.firsts, *found.agains)
    left = median(request.after_ms for request in requests)
    settled = median(request.settled_ms for request in requests)
    allowed = max(RESTS_MS, RESTS_SHARE * median(request.cpu_ms for request in requests))
    data = {"after_ms": [r.after_ms for r in requests], "settled_ms": [r.settled_ms for r in requests],
            "idle_ms": found.idle_ms, "allowed_ms": allowed}  # fmt: skip
    if left > allowed:
        return failed(f"{left:.1f} ms of processor time after the last token (at most {allowed:.1f})", **data)
    if subject.facts.platform.accelerator != "cpu" and settled > SETTLES_MS:
        return failed(f"its device was at work for {settled:.1f} ms after the last token", **data)
    if found.idle_ms > IDLES_MS:
        return failed(f"{found.idle_ms:.1f} ms of processor time in {1000 * IDLE_S:.0f} ms without a request", **data)
    return passed(f"{left:.1f} ms of processor time after the last token, {found.idle_ms:.1f} ms while idle", **data)


def nothing_built(subject: Subject) -> Finding:
    """After the first request of a shape nothing is compiled and no code is loaded."""
    found = session(subject)
    if found.built:
        return failed(f"after the first request of a shape it still built or loaded {found.built}")
    return passed(f"{len(found.firsts) + len(found.agains)} requests after the first one built and loaded nothing")


def sentinels(subject: Subject) -> Finding:
    """Prompts that nobody has seen, several in one call and one of them twice; then each with one token changed: every
    answer is there, whole, and follows the logits of just the prompt that was asked."""
    subject.load_engine()
    rng = subject.draws("sentinels")
    length, new = lengths(subject)
    sizes = [length, max(1, length // 2)]
    drawn = prompts.cut(subject.checkpoint, sizes, int(rng.integers(1 << 30)))
    batch = [drawn[0], drawn[1], drawn[0]]
    together = subject.generate(batch, new, ignore_eos=True)
    if [len(tokens) for tokens in together] != [new] * len(batch):
        return failed(f"{len(batch)} prompts, {new} tokens each: found {[len(tokens) for tokens in together]}")
    asked = list(zip(batch, together, strict=True))
    for prompt, tokens in zip(drawn, together, strict=False):
        edited = told_apart(subject, prompt, tokens[0], rng)
        asked.append((edited, subject.continuation(edited, new, ignore_eos=True)))
    return judged(subject, asked, new)


def told_apart(subject: Subject, prompt: list[int], first: int, rng: np.random.Generator) -> list[int]:
    """The prompt with one token changed so that another token than `first` should follow: an answer that was kept for
    the old prompt shows only then. Places inside are tried first, since a key may be made of a prompt's ends; where
    none of a few matters, the last token is changed."""
    vocab, last = subject.facts.model.vocab, len(prompt) - 1
    inside = [int(place) for place in rng.integers(1, last, TRIES)] if last > 1 else []
    for place in [*inside, last]:
        edited = [*prompt[:place], int(rng.integers(vocab)), *prompt[place + 1 :]]
        if place == last or int(subject.logits(edited, [last])[0].argmax()) != first:
            return edited
    raise AssertionError("the last place is always taken")


def judged(subject: Subject, asked: Sequence[tuple[list[int], list[int]]], new: int) -> Finding:
    for number, (prompt, tokens) in enumerate(asked):
        if len(tokens) != new:
            return failed(f"asked for {new} tokens after {len(prompt)}, found {len(tokens)}")
        if fault := outside_the_band(subject, prompt, tokens):
            return failed(f"sentinel {number + 1} of {len(asked)}, {len(prompt)} tokens: {fault}")
    return passed(
        f"{len(asked)} sentinels, two of them with one token changed, answered by their own logits",
        tokens=[tokens for _, tokens in asked],
    )


GATES = (
    Gate("sentinels", "engine", "integration", sentinels, evidence=Said),
    Gate("remembers", "engine", "integration", remembers, evidence=Asked, repeatable=False),
    Gate("rests", "engine", "integration", rests, evidence=Rested, repeatable=False),
    Gate("nothing_built", "engine", "integration", nothing_built, repeatable=False),
)
