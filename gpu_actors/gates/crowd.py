"""Several requests at once: over HTTP, each answered as it is alone; and without a socket, where the engine's tokens
are given, so that the server can be asked about texts that a model might not say."""

from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from benchmarks import prompts
from gpu_actors.gates.base import Subject
from gpu_actors.gates.client import (
    CHATS,
    MAX_TOKENS,
    TEXT,
    TEXTS,
    Asked,
    Server,
    continued,
    differ,
    expect,
    heard,
    responses,
)
from gpu_actors.gates.conversations import Talk

CROWD = 4
SCATTERED = "Größe, 河流 和 山脉, 🜁🜄𐍈🝆"
"""Characters of one to four bytes, the last of which few vocabularies have whole."""
LONG = 256
"""Tokens that a chat without a limit is given at most: far more than a completion's default of 16."""


def at_once(subject: Subject, held: Server, model: str, asked: list[Asked]) -> None:
    """Four requests of several lengths, streamed and whole, each of which says what `generate` says. Raises Fault."""
    bodies, wanted = [], []
    for i, one in enumerate(islice(cycle([*asked[:2], continued(subject, *long_characters(subject))]), CROWD)):
        limit = MAX_TOKENS - 2 * i  # the first is the longest: the others come while it runs
        body = {"model": model, "prompt": one.prompt, "max_tokens": limit, "temperature": 0, "stream": i % 2 == 0}
        bodies.append(body)
        said = one.tokens[:limit]
        ended = bool(said) and said[-1] in subject.facts.model.eos_tokens
        wanted.append(subject.call("decode", ids=said[:-1] if ended else said).value("text", str))
    answers = []
    for i, response in enumerate(held.ask_at_once(TEXTS, bodies)):
        answers.append(heard(response, bodies[i], f"request {i} of {CROWD} at once"))
        said_ = f"request {i} of {CROWD} at once is answered {answers[-1].text!r}; alone it is {wanted[i]!r}"
        expect(answers[-1].text == wanted[i], said_)
    differ(answers)


def long_characters(subject: Subject) -> tuple[str, list[int]]:
    """A text of another script, as much of it as the context has room for, and its ids."""
    language = next(name for name in prompts.languages() if not prompts.text(name)[:12].isascii())
    own, most = prompts.tokenizer(subject.checkpoint), subject.facts.workload.max_context - MAX_TOKENS
    text = prompts.text(language)[:12]
    while len(text) > 1 and len(own.encode(text).ids) > most:
        text = text[:-1]
    return text, own.encode(text).ids


@dataclass(frozen=True)
class Line:
    """A request, what the engine will say to it, and what the client must hear."""

    what: str
    body: dict[str, Any]
    prompt: list[int]
    tokens: list[int]
    text: str
    reason: str
    path: str = TEXTS


def spoken(subject: Subject, model: str, talk: Talk | None) -> None:
    """What a client hears where the engine says what this gate tells it to say. Raises Fault."""
    lines = [*texts(subject), *(chats(subject, talk) if talk else [])]
    sent = [{"path": x.path, "body": x.body, "prompt": x.prompt, "tokens": x.tokens} for x in lines]
    reply = subject.call("spoken", requests=sent, name=model)
    answers = []
    for line, response in zip(lines, responses(reply.value("answers", list[dict[str, Any]]), len(lines)), strict=True):
        what = f"{line.what}, one of {len(lines)} requests at once"
        found = heard(response, line.body, what)
        expect(found.text == line.text, f"{what}: it says {shown(found.text)}; the engine's text is {shown(line.text)}")
        expect(found.reason == line.reason, f"{what}: finish_reason is {found.reason!r}, not {line.reason!r}")
        answers.append(found)
    differ(answers)


def shown(text: str) -> str:
    """With its length: of a long one only the ends."""
    return f"{text!r}" if len(text) < 80 else f"{len(text)} characters, {text[:20]!r}...{text[-20:]!r}"


def texts(subject: Subject) -> list[Line]:
    """One that ends inside a character, one of such characters behind it; the start of a stop string at a text's end,
    and four stop strings of which the last begins first, both streamed and whole."""
    own = prompts.tokenizer(subject.checkpoint)
    most = subject.facts.workload.max_context - 1
    scattered, plain = (own.encode(text, add_special_tokens=False).ids[:most] for text in (SCATTERED, TEXT))
    inside = [n for n in range(1, len(scattered)) if own.decode(scattered[:n]).endswith("\ufffd")]
    halved = scattered[: inside[-1]] if inside else scattered
    text = own.decode(plain)
    stop = ["of no such text", text[-4:], text[-9:-6], text[2:5]]
    asked: list[tuple[str, list[int], dict[str, Any], str, str]] = [
        ("a text that ends inside a character", halved, {}, own.decode(halved), "length"),
        ("a text of long characters", scattered, {"stream": True}, own.decode(scattered), "length"),
    ]
    for more in ({"stream": True}, {}):
        kept = {"stop": [text[-3:] + " never"], **more}
        asked += [
            ("a text that ends in the start of a stop string", plain, kept, text, "length"),
            ("four stop strings", plain, {"stop": stop, **more}, text[: min(map(text.find, stop[1:]))], "stop"),
        ]
    return [
        Line(what, {"prompt": [i], "max_tokens": len(tokens), "temperature": 0, **more}, [i], tokens, said, reason)
        for i, (what, tokens, more, said, reason) in enumerate(asked, 1)
    ]


def chats(subject: Subject, talk: Talk) -> list[Line]:
    """Without a limit a chat goes on as far as the context does, and `max_completion_tokens` is a limit."""
    own = prompts.tokenizer(subject.checkpoint)
    room = min(subject.facts.workload.max_context - len(talk.ids), LONG)
    some = own.encode(TEXT, add_special_tokens=False).ids
    tokens = list(islice(cycle(some), room))
    few = min(3, room)
    return [
        Line("a chat without a limit", {"messages": talk.messages, "temperature": 0}, talk.ids, tokens,
             own.decode(tokens), "length", CHATS),
        Line(f"a chat with max_completion_tokens of {few}",
             {"messages": talk.messages, "temperature": 0, "max_completion_tokens": few}, talk.ids, tokens,
             own.decode(tokens[:few]), "length", CHATS),
    ]  # fmt: skip
