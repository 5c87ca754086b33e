"""The experiments behind the transitions of contracts: each makes one happen and tells the states that it saw."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_actors.gates.base import Array, Subject
from gpu_actors.gates.compare import rounded

States = tuple[str, str]
"""Before and after: the contract's words where they were seen to hold, otherwise what was seen."""


def when(holds: bool, words: str, found: Any) -> str:
    """`words` if they hold."""
    return words if holds else f"something else: {found}"


# --- operators and cache ----------------------------------------------------------------------------------------------


def set_up(subject: Subject) -> States:
    threads = found_threads(subject)
    return "operators not loaded", when(
        threads[0] == subject.facts.platform.cores, "operators loaded and threads fixed", f"{threads[0]} threads"
    )


def set_up_again(subject: Subject) -> States:
    threads = found_threads(subject)
    return "operators loaded and threads fixed", when(len(set(threads)) == 1, "the same", f"{threads} threads")


def found_threads(subject: Subject) -> list[int]:
    return subject.once(
        "threads",
        lambda: subject.call("threads", other=subject.facts.platform.cores + 1).value("threads", list[int]),
    )


def rows(subject: Subject, count: int) -> Array:
    facts = subject.facts.model
    return subject.draws("states").normal(size=(2 * count, facts.kv_heads, facts.head_dim)).astype(np.float32)


def cached(subject: Subject, appends: list[tuple[int, int]], length: int, wanted: list[int]) -> tuple[bool, str]:
    """Whether the cache holds the rows `wanted` of an array after it was appended in parts, each at its own place."""
    drawn = rounded(rows(subject, 8), subject.facts.workload.dtype).astype(np.float32)
    places = [(0, start) for start, _ in appends]
    given: dict[str, Array] = {}
    first = 0
    for i, (_, count) in enumerate(appends):
        given |= {f"k{i}": drawn[first : first + count], f"v{i}": -drawn[first : first + count]}
        first += count
    reply = subject.call("cache", capacity=8, appends=places, reads=[(0, length)], **given)
    expected = drawn[wanted].transpose(1, 0, 2)
    keys, values = reply.array("keys0"), reply.array("values0")
    if keys.shape != expected.shape or values.shape != expected.shape:
        return False, f"keys {keys.shape}"
    return bool((keys == expected).all() and (values == -expected).all()), "other rows than were appended"


def first_rows(subject: Subject) -> States:
    holds, found = cached(subject, [(0, 3)], 3, [0, 1, 2])
    return "nothing valid", when(holds, "positions 0 to M - 1 valid", found)


def more_rows(subject: Subject) -> States:
    before, found = cached(subject, [(0, 3)], 3, [0, 1, 2])
    after, other = cached(subject, [(0, 3), (3, 2)], 5, [0, 1, 2, 3, 4])
    return (
        when(before, "positions 0 to start - 1 valid", found),
        when(after, "positions 0 to start + M - 1 valid", other),
    )


def new_rows(subject: Subject) -> States:
    before, found = cached(subject, [(0, 4)], 4, [0, 1, 2, 3])
    after, other = cached(subject, [(0, 4), (1, 2)], 4, [0, 4, 5, 3])
    return when(before, "position p valid", found), when(after, "position p is the new one", other)


# --- weights and model ------------------------------------------------------------------------------------------------


def consumed(subject: Subject) -> States:
    name = "model.norm.weight"
    take: dict[str, Any] = {"folder": str(subject.checkpoint), "ignored": [""]}
    without = subject.call("take", tensors=[], **take).value("consumed", list[str])
    found = subject.call("take", tensors=[(name, [subject.facts.model.hidden])], **take).value("consumed", list[str])
    return when(name not in without, "not consumed", without), when(found == [name], "consumed", found)


def positions(subject: Subject, pieces: list[int], *, step: bool) -> tuple[list[list[list[int]]], bool]:
    """Written positions after each piece, by layer and part, and whether what was there before stayed as it was."""
    subject.load_model()
    layers = subject.facts.model.layers
    options = {"layers": layers, "tokens": list(range(1, sum(pieces) + 1)), "pieces": pieces, "step": step}
    reply = subject.call("written", **options)
    return reply.value("positions", list[list[list[int]]]), reply.value("kept", bool)


def grows(subject: Subject, before: str, after: str, *, step: bool) -> States:
    more = 1 if step else 2
    seen, kept = positions(subject, [3, more], step=step)
    old, new = ([list(range(n))] * 2 * subject.facts.model.layers for n in (3, 3 + more))
    return (
        when(seen[0] == old, before, f"positions {seen[0][0]}"),
        when(seen[1] == new and kept, after, f"positions {seen[1][0]}, the old ones {'kept' if kept else 'changed'}"),
    )


def fed(subject: Subject, layer: str) -> States:
    return grows(
        subject, f"{layer} holds positions 0 to start - 1", f"{layer} holds positions 0 to start + M - 1", step=False
    )


def stepped(subject: Subject) -> States:
    return grows(
        subject, "every layer holds positions 0 to position - 1", "every layer holds positions 0 to position", step=True
    )


# --- engine -----------------------------------------------------------------------------------------------------------


def sequence(subject: Subject) -> tuple[list[int], list[list[list[Any]]]]:
    """Tokens of a short stream, and the model's work by the time each was known."""

    def make() -> tuple[list[int], list[list[list[Any]]]]:
        subject.load_engine()
        reply = subject.call("sequence", prompt=[1, 2, 3], count=3)
        return reply.value("tokens", list[int]), reply.value("moments", list[list[list[Any]]])

    return subject.once("sequence", make)


def first_token(subject: Subject) -> States:
    _, moments = sequence(subject)
    read = sum(length for what, _, length in moments[1] if what == "forward")
    steps = any(what == "step" for what, *_ in moments[1])
    return (
        when(not moments[0], "prompt not read", moments[0]),
        when(read == 3 and not steps, "prompt in the cache, one token chosen", moments[1]),
    )


def next_token(subject: Subject) -> States:
    tokens, moments = sequence(subject)
    known = [item for item in moments[1] if item[0] == "step"]
    later = [item for item in moments[2] if item[0] == "step"]
    return (
        when(not known, "tokens 0 to i chosen, the last one not fed", known),
        when(later == [["step", tokens[0], 3]], "tokens 0 to i + 1 chosen", later),
    )


def last_token(subject: Subject) -> States:
    tokens, moments = sequence(subject)
    steps = [item for item in moments[-1] if item[0] == "step"]
    fed_all = [["step", token, 3 + i] for i, token in enumerate(tokens[:-1])]
    return (
        when(steps == fed_all, "tokens 0 to i chosen, the last one not fed", steps),
        when(len(tokens) == 3 and moments[-1] == moments[-2], "ended", f"{len(tokens)} tokens, {moments[-1]}"),
    )


TEXT = "The rivers"


def held(subject: Subject, stop: str) -> tuple[list[str], list[bool], str, int]:
    """Pieces by token, `stopped` before each and after the last, what end gives, and the text's tokens."""
    subject.load_engine()
    reply = subject.call("fed", text=TEXT, stop=[stop] if stop else [])
    pieces, stopped = reply.value("pieces", list[str]), reply.value("stopped", list[bool])
    return pieces, stopped, reply.value("end", str), reply.value("tokens", int)


def held_back(subject: Subject) -> States:
    plain, *_ = held(subject, "")
    pieces, *_ = held(subject, TEXT[-2:] + "never")
    return (
        when(plain[0] == pieces[0] != "", "nothing held back", pieces),
        when("".join(pieces) == TEXT[:-2], "that end is held back", pieces),
    )


def decided(subject: Subject) -> States:
    plain, *_ = held(subject, "")
    pieces, _, end, _ = held(subject, plain[0] + "never")
    return (
        when(pieces[0] == "", "an end is held back", pieces),
        when("".join(pieces) + end == TEXT and pieces[1] != "", "given out", pieces),
    )


def stops(subject: Subject) -> States:
    pieces, stopped, *_ = held(subject, TEXT[2:6])
    out = "".join(pieces)
    return (
        when(not any(stopped[:-1]), "false", stopped),
        when(stopped[-1] and out == TEXT[:2], "true, and nothing from the stop string on is given out", (out, stopped)),
    )


# --- requests ---------------------------------------------------------------------------------------------------------


def requests(subject: Subject) -> dict[str, Any]:
    return subject.once("states", lambda: subject.call("states").values)


def state(subject: Subject, event: str) -> States:
    before, after = requests(subject)["states"][event]
    return str(before), str(after)


def admitted(subject: Subject) -> States:
    served = requests(subject)["served"]
    return "at most max_waiting - 1 requests wait", when(
        served == [0, 2, 3, 4], "the request waits behind them", f"served in the order {served}"
    )


def closed(subject: Subject) -> States:
    last = requests(subject)["ended"]
    return "idle or a request runs", when(
        last == "finished", "ended, once every admitted request has ended", f"the last request is {last}"
    )


def answer(subject: Subject, how: str, stop: list[str]) -> dict[str, Any]:
    subject.load_engine()
    ids = subject.call("tokenizer", text=TEXT).value("ids", list[int])
    return dict(subject.call("answer", prompt=[1], tokens=ids, stop=stop, how=how).values)


def finished(subject: Subject) -> States:
    found = answer(subject, "read", [TEXT[2:6]])
    before, after = found["reasons"]
    said = found["text"] == TEXT[:2] and found["chunk"]["choices"][0]["finish_reason"] == after
    return str(before), str(after) if said else f"{after}, after the text {found['text']!r}"


def left(subject: Subject) -> States:
    before, after = answer(subject, "left", [])["states"]
    return when(before in ("waiting", "running"), "waiting or running", before), str(after)


def gone(subject: Subject) -> States:
    subject.load_engine()
    count = min(40, subject.facts.workload.max_context - 1)
    made = subject.call("gone", name="served", count=count).values
    ended = made["running"] < count and made["waiting"] < count
    return "waiting or running", when(ended, "cancelled", f"{made} of {count} tokens were made")


EXPERIMENTS: dict[tuple[str, str, str], Callable[[Subject], States]] = {
    ("setup", "the process", "setup()"): set_up,
    ("setup", "the process", "setup() once more"): set_up_again,
    ("kv-cache", "one layer of the cache", "append(layer, k, v, 0)"): first_rows,
    ("kv-cache", "one layer of the cache", "append(layer, k, v, start)"): more_rows,
    ("kv-cache", "one layer of the cache", "append(layer, k, v, start) with start <= p < start + M"): new_rows,
    ("checkpoint", "a tensor of the checkpoint", "Checkpoint.take(name, ...)"): consumed,
    ("attention-block", "KVCache", "attend(layer, x, cache, index, start)"): lambda s: fed(s, "layer `index`"),
    ("decoder", "KVCache", "forward(tokens, cache, start)"): lambda s: fed(s, "every layer"),
    ("model", "KVCache", "step(token, cache, position)"): stepped,
    ("engine", "a sequence", "the first token of `stream` is asked for"): first_token,
    ("engine", "a sequence", "the next token is asked for"): next_token,
    (
        "engine",
        "a sequence",
        "token i ends the text and ignore_eos is false, or i + 1 is max_new_tokens",
    ): last_token,
    (
        "text-stream",
        "TextStream",
        "feed of a token that ends inside a character or in the start of a stop string",
    ): held_back,
    ("text-stream", "TextStream", "feed of a token that decides it"): decided,
    ("text-stream", "TextStream.stopped", "feed of the token that completes a stop string"): stops,
    ("request", "Request.state", "the worker takes it"): lambda s: state(s, "taken"),
    ("request", "Request.state", "cancel"): lambda s: state(s, "cancelled waiting"),
    ("request", "Request.state", "cancel while it runs"): lambda s: state(s, "cancelled running"),
    ("request", "Request.state", "its last token"): lambda s: state(s, "last token"),
    ("request", "Request.state", "an exception while it runs"): lambda s: state(s, "exception"),
    ("scheduler", "Scheduler", "submit(request)"): admitted,
    ("scheduler", "Scheduler", "close()"): closed,
    ("api-answer", "Answer.finish_reason", "an end token, or a stop string that is complete"): finished,
    ("api-answer", "Answer.request", "the reader of the pieces goes away"): left,
    ("server", "a request", "its client goes away"): gone,
}
