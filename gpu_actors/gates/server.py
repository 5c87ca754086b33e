"""The engine's HTTP server, started as its user would, asked from inside the sandbox, judged here."""

import json
from itertools import pairwise
from typing import Any

from benchmarks import prompts
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.client import MAX_TOKENS, TEXT, Asked, Fault, Server, continued, counts, events, expect
from gpu_actors.gates.conversations import chat
from gpu_actors.gates.crowd import at_once, spoken
from gpu_actors.gates.integration import numbers

DEFAULT_TOKENS = 16
"""Of a completion whose client names no length."""
TRIES = 4
"""Drawn prompts among which one is looked for that an end token ends, and one that it does not."""
LENGTH = 12
"""Of these prompts: each is asked five times, and its tokens are no concern of a server."""
USAGE = {"include_usage": True}


def server(subject: Subject) -> Finding:
    """The engine's own server: health, models, completions and chats, streamed and whole, and what it must refuse."""
    subject.load_engine()
    held = Server(subject)
    try:
        asked = prompts_of(subject)  # while it starts
        health = held.ask("GET", "/health")
        expect(health.status == 200, f"/health answers {health.status}")
        models = held.ask("GET", "/v1/models").json
        expect(models.get("object") == "list" and len(models["data"]) > 0, f"/v1/models answers {str(models)[:120]}")
        model = models["data"][0]["id"]
        texts = [completions(subject, held, model, one) for one in asked]
        stops(held, model, texts[0])
        defaults(subject, held, model, [one.ids for one in asked])
        at_once(subject, held, model, asked)
        talk = chat(subject, held, model)
        spoken(subject, model, talk)
        failing(subject)
        bad_input(subject, held, model)
    except Fault as fault:
        return failed(str(fault))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return failed(f"an answer is not of the OpenAI form: {error!r}")
    finally:
        if subject.child.alive:
            held.stop()
    return passed(
        f"health, models, {len(asked)} completions and {'a chat' if talk else 'no chat'}, streamed and whole, alone "
        "and at once, usage, limits, ids, stop strings, a failing stream, four kinds of bad input"
    )


def prompts_of(subject: Subject) -> list[Asked]:
    """A text, and of some drawn pieces of text one whose answer an end token ends and one whose answer it does not,
    where there are such."""
    text = subject.call("tokenizer", text=TEXT).value("ids", list[int])
    length = min(LENGTH, subject.facts.workload.max_context - MAX_TOKENS)
    drawn = prompts.cut(subject.checkpoint, [length] * TRIES, int(subject.draws("server").integers(1 << 30)))
    ends = set(subject.facts.model.eos_tokens)
    tried = [continued(subject, prompt, prompt) for prompt in drawn]
    kinds = {bool(ends & set(one.tokens[-1:])): one for one in tried}
    return [continued(subject, TEXT, text), *kinds.values()]


def completions(subject: Subject, held: Server, model: str, one: Asked) -> str:
    """The text is that of `generate`, streamed or not, and usage counts its tokens. Returns the text."""
    tokens = one.tokens
    ended = bool(tokens) and tokens[-1] in subject.facts.model.eos_tokens
    if not ended and (ends := grows(subject, tokens)):
        tokens = tokens[: ends[-1]]  # the last token has text: one that is lost can be missed
    said = tokens[:-1] if ended else tokens
    wanted = subject.call("decode", ids=said).value("text", str)
    limit = MAX_TOKENS if ended else len(tokens)
    body = {"model": model, "prompt": one.prompt, "max_tokens": limit, "temperature": 0}
    whole = held.ask("POST", "/v1/completions", body)
    expect(whole.status == 200, f"/v1/completions answers {whole.status}: {whole.text[:200]}")
    choice, usage = whole.json["choices"][0], whole.json["usage"]
    expect(whole.json["object"] == "text_completion", f"the object of a completion is {whole.json['object']!r}")
    expect(choice["text"] == wanted, f"completion {choice['text']!r}; generate says {wanted!r}")
    right = counts(len(one.ids), len(tokens))
    expect(usage == usage | right, f"usage is {usage}; the tokens are {right}")
    reason = "stop" if ended else "length"
    expect(choice["finish_reason"] == reason, f"finish_reason is {choice['finish_reason']!r}, expected {reason!r}")
    chunks = events(held.ask("POST", "/v1/completions", body | {"stream": True, "stream_options": USAGE}))
    expect(not chunks[-1]["choices"], f"the last chunk holds the usage that was asked for and no choice: {chunks[-1]}")
    expect(chunks[-1]["usage"] == usage, f"the usage of a stream is {chunks[-1]['usage']}, of the whole {usage}")
    pieces = [chunk["choices"][0]["text"] for chunk in chunks[:-1]]
    expect("".join(pieces) == wanted, f"the streamed completion is {''.join(pieces)!r}, the whole one {wanted!r}")
    least = len(grows(subject, said))
    expect(
        sum(map(bool, pieces)) >= least,
        f"a completion of {len(tokens)} tokens was streamed in {sum(map(bool, pieces))} piece(s), its text grows "
        f"{least} times",
    )
    reasons = [chunk["choices"][0].get("finish_reason") for chunk in chunks[:-1]]
    expect([r for r in reasons if r] == [reason], f"finish_reason of the streamed chunks is {reasons}")
    expect(bool(reasons[-1]), f"the reason belongs to the last chunk: {reasons}")
    return wanted


def grows(subject: Subject, tokens: list[int]) -> list[int]:
    """After how many of the tokens their text has become longer by whole characters, as the checkpoint's own tokenizer
    has it."""
    own = prompts.tokenizer(subject.checkpoint)
    texts = [own.decode(tokens[:count]).rstrip("\ufffd") for count in range(len(tokens) + 1)]
    return [count for count, (before, after) in enumerate(pairwise(texts), 1) if len(after) > len(before)]


def stops(held: Server, model: str, text: str) -> None:
    """The answer ends before whichever stop string begins first, however it is asked for."""
    if len(text) < 5 or "\ufffd" in text[:4]:  # half a character, which no client can ask for
        return
    first, later = text[1:4], text[2:4]  # both are complete with the same character
    cut = text[: min(text.index(first), text.index(later))]
    body = {"model": model, "prompt": TEXT, "max_tokens": MAX_TOKENS, "temperature": 0, "stop": [later, first]}
    choice = held.ask("POST", "/v1/completions", body).json["choices"][0]
    expect(choice["text"] == cut, f"with the stop strings {later!r} and {first!r} of {text!r}: {choice['text']!r}")
    expect(choice["finish_reason"] == "stop", f"after a stop string finish_reason is {choice['finish_reason']!r}")
    chunks = events(held.ask("POST", "/v1/completions", body | {"stream": True}))
    streamed = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    expect(streamed == cut, f"the same streamed is {streamed!r}")


def defaults(subject: Subject, held: Server, model: str, asked: list[list[int]]) -> None:
    """A completion that names no length has at most 16 tokens: asked of a prompt whose answer is longer, if there is
    one. Where an end token comes first any limit above would do."""
    most = subject.facts.workload.max_context - DEFAULT_TOKENS - 1
    fitting = [ids for ids in asked if len(ids) <= most]
    lengths = [len(subject.continuation(ids, DEFAULT_TOKENS + 1, ignore_eos=False)) for ids in fitting]
    if not lengths:
        return
    longest = max(lengths)
    ids, right = fitting[lengths.index(longest)], min(longest, DEFAULT_TOKENS)
    usage = held.ask("POST", "/v1/completions", {"model": model, "prompt": ids, "temperature": 0}).json["usage"]
    expect(usage["completion_tokens"] == right, f"without max_tokens: {usage['completion_tokens']} tokens, not {right}")


def failing(subject: Subject) -> None:
    """A stream whose engine fails says so before it ends."""
    body = {"prompt": [1], "max_tokens": 2, "stream": True}
    reply = subject.call("application", body=body, name="served", failing=True)
    said = [line[5:].strip() for line in reply.value("text", str).splitlines() if line.startswith("data:")]
    errors = [line for line in said if line != "[DONE]" and "error" in json.loads(line)]
    expect(len(errors) == 1, f"a stream whose engine failed says {said}: no error is among it")


def bad_input(subject: Subject, held: Server, model: str) -> None:
    limit = subject.facts.workload.max_context - MAX_TOKENS
    long = "a b c d " * (subject.facts.workload.max_context // 2)
    cases: tuple[tuple[str, dict[str, Any] | str], ...] = (
        ("a body that is no JSON", "{"),
        ("no prompt", {"model": model, "max_tokens": 4}),
        ("max_tokens of -1", {"model": model, "prompt": TEXT, "max_tokens": -1}),
        ("a prompt that is too long", {"model": model, "prompt": long, "max_tokens": MAX_TOKENS}),
    )
    for what, body in cases:
        response = held.ask("POST", "/v1/completions", body)
        expect(response.status == 400, f"{what} must answer 400; it answers {response.status}: {response.text[:120]}")
        message = response.json["error"]["message"]
        expect(isinstance(message, str) and bool(message), f"{what}: the error object has no message")
    found = numbers(message)
    expect(
        str(limit) in found and len(found) > 1,
        f"the error of a long prompt must name its length and {limit}: {message}",
    )


GATES = (Gate("server", "server", "integration", server),)
