"""A conversation that the server is sent: it reaches the model whole, as the checkpoint's own template writes it."""

from dataclasses import dataclass
from typing import Any

from gpu_actors.gates.base import Subject
from gpu_actors.gates.client import CHATS, MAX_TOKENS, Server, counts, differ, events, expect, heard
from gpu_actors.gates.integration import MESSAGES, chat_template, conversation


@dataclass(frozen=True)
class Talk:
    """What a client sends, and the ids that the checkpoint's own files make of it."""

    messages: list[dict[str, Any]]
    ids: list[int]


def chat(subject: Subject, held: Server, model: str) -> Talk | None:
    """A conversation of every role, the last message in two parts, answered as `generate` continues the template's ids.
    None where the checkpoint has no template, or its context no room for it. Raises Fault."""
    body: dict[str, Any] = {"model": model, "messages": MESSAGES, "max_tokens": MAX_TOKENS, "temperature": 0}
    if chat_template(subject) is None:
        whole = held.ask("POST", CHATS, body)
        said = f"a chat for a checkpoint without a template must answer 400 and name the template: {whole.text[:200]}"
        expect(whole.status == 400 and "template" in whole.text, said)
        return None
    talk = in_parts(subject)
    if talk is None:
        return None
    tokens = subject.continuation(talk.ids, MAX_TOKENS, ignore_eos=False)
    ended = bool(tokens) and tokens[-1] in subject.facts.model.eos_tokens
    wanted = subject.call("decode", ids=tokens[:-1] if ended else tokens).value("text", str)
    body |= {"messages": talk.messages}
    whole = held.ask("POST", CHATS, body)
    answer = heard(whole, body, "a chat")
    roles = [message["role"] for message in talk.messages]
    right = counts(len(talk.ids), len(tokens))
    usage = whole.json["usage"]
    expect(usage == usage | right, f"usage of a chat of {roles}, the last in parts, is {usage}; the tokens are {right}")
    expect(answer.text == wanted, f"a chat of {roles}, the last in parts, says {answer.text!r}; generate {wanted!r}")
    expect(whole.json["object"] == "chat.completion", f"the object of a chat is {whole.json['object']!r}")
    role = whole.json["choices"][0]["message"]["role"]
    expect(role == "assistant", f"the role of the answer is {role!r}")
    response = held.ask("POST", CHATS, body | {"stream": True})
    streamed = heard(response, {"stream": True}, "a streamed chat")
    expect(streamed.text == wanted, f"the streamed chat answer is {streamed.text!r}, the whole one {wanted!r}")
    differ([answer, streamed])
    chunks = events(response)
    kinds = {chunk["object"] for chunk in chunks}
    expect(kinds == {"chat.completion.chunk"}, f"the objects of a streamed chat are {sorted(kinds)}")
    first = chunks[0]["choices"][0]["delta"]
    expect(first.get("role") == "assistant", f"a streamed chat begins with {first}, which has no role")
    return talk


def in_parts(subject: Subject) -> Talk | None:
    """None if the context has no room for it and an answer."""
    plain, ids = conversation(subject)
    if len(ids) + MAX_TOKENS > subject.facts.workload.max_context:
        return None
    *before, last = plain
    half = len(last["content"]) // 2
    parts = [{"type": "text", "text": text} for text in (last["content"][:half], last["content"][half:])]
    return Talk([*before, {**last, "content": parts}], ids)
