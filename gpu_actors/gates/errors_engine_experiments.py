"""The experiments behind the error cases of contracts, of the engine and everything round it: sampler, scheduler,
tokenizer, requests and the server. What one tells is a Refusal (errors_experiments.py).
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_actors.gates.base import Subject
from gpu_actors.gates.errors_experiments import Refusal, Words, copy, raised

MODEL = "served"
LEAST_WAITING = 16
"""Requests that a server must let wait (contract server)."""


# --- engine, sampler, scheduler ---------------------------------------------------------------------------------------


def limit(subject: Subject) -> tuple[int, int]:
    """New tokens, and the longest prompt that leaves room for them."""
    count = min(8, subject.facts.workload.max_context // 2)
    return count, subject.facts.workload.max_context - count


def prompts_of(subject: Subject, *prompts: list[int], op: str, words: Words | None = None) -> Refusal:
    subject.load_engine()
    count, _ = limit(subject)
    if op == "called":
        return raised(subject, op, words, prompt=prompts[0], max_new_tokens=count)
    return raised(subject, op, words, prompts=list(prompts), max_new_tokens=count, ignore_eos=True)


def too_long(subject: Subject, op: str) -> Refusal:
    _, most = limit(subject)
    words = {"the prompt's length": (str(most + 1),), "MAX_CONTEXT - max_new_tokens": (str(most),)}
    return prompts_of(subject, [1] * (most + 1), op=op, words=words)


def strange_token(subject: Subject) -> Refusal:
    vocab = subject.facts.model.vocab
    words = {"the largest token id": (str(vocab - 1),), "the one given": (str(vocab + 7),)}
    return prompts_of(subject, [1, vocab + 7], op="called", words=words)


def greedy_only(subject: Subject) -> Refusal | None:
    if subject.facts.workload.decoding != "greedy":
        return None
    words = {"temperature": ("temperature",), "its value": ("0.7",)}
    return raised(subject, "sampler_of", words, body={"temperature": 0.7})


def out_of_range(subject: Subject) -> Refusal | None:
    """One parameter after the other; the first that isn't refused rightly is told."""
    if subject.facts.workload.decoding != "sample":
        return None
    found = Refusal("")
    for name, value, most in (("temperature", 2.5, "2"), ("top_k", -3, ""), ("top_p", 1.5, "1")):
        words = {"the parameter's name": (name,), "its range": (most,), "its value": (str(value),)}
        found = raised(subject, "sampler_of", words, body={name: value})
        if found.what != "ValueError" or any(text not in found.message for texts in words.values() for text in texts):
            break
    return found


def crowded(subject: Subject) -> Refusal:
    return raised(subject, "crowded", {"how many wait": ("3",)}, max_waiting=3)


REASON = "nobody may say this"
TEMPLATE = "{% if messages[0]['content'] == 'No' %}{{ raise_exception('" + REASON + "') }}{% endif %}Said"


def conversation(subject: Subject, said: str, template: str, words: Words) -> Refusal:
    """What the tokenizer of a checkpoint with another chat template, or none, says to a conversation."""

    def make(folder: Path) -> None:
        folder.mkdir()
        shutil.copy(subject.checkpoint / "tokenizer.json", folder)
        if template:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")

    folder = copy(subject, "own_template" if template else "no_template", make)
    return raised(subject, "chat_at", words, folder=folder, messages=[{"role": "user", "content": said}])


def no_template(subject: Subject) -> Refusal:
    return conversation(subject, "Yes", "", {"chat template": ("chat template",)})


def refusing_template(subject: Subject) -> Refusal:
    """One conversation is rendered, the next one refused."""
    words = {"the template's reason": (REASON,)}
    allowed = conversation(subject, "Yes", TEMPLATE, words)
    if allowed.what:
        return Refusal(allowed.what, allowed.message, words, note="a conversation that the template renders is refused")
    return conversation(subject, "No", TEMPLATE, words)


# --- server -----------------------------------------------------------------------------------------------------------


def parsed(subject: Subject, *, chat: bool = False, words: Words | None = None, **body: Any) -> Refusal:
    subject.load_engine()
    return raised(subject, "parse", words, body=body, chat=chat)


def not_offered(subject: Subject) -> Refusal:
    words = {"the field's name": ("n",), "its value": ("3",)}
    found = parsed(subject, prompt=[1], n=3, words=words)
    other = parsed(subject, prompt=[1], suffix="and so on", words=words)
    right = other.what == found.what and "suffix" in other.message and "and so on" in other.message
    return found if right else other


def no_prompt(subject: Subject) -> Refusal:
    found = parsed(subject, max_tokens=4)
    return found if found.what != "ValueError" else parsed(subject, prompt={"a": 1})


def no_messages(subject: Subject) -> Refusal:
    found = parsed(subject, chat=True, messages="Hello")
    return found if found.what != "ValueError" else parsed(subject, chat=True, messages=[{"role": "user"}])


def no_count(subject: Subject) -> Refusal:
    return parsed(subject, prompt=[1], max_tokens=-7, words={"the value": ("-7",)})


def no_room(subject: Subject) -> Refusal:
    count, most = limit(subject)
    words = {"the prompt's length": (str(most + 1),), "the longest that fits": (str(most),)}
    empty = parsed(subject, prompt=[], max_tokens=count)
    return (
        parsed(subject, prompt=[1] * (most + 1), max_tokens=count, words=words) if empty.what == "ValueError" else empty
    )


def answered(subject: Subject, how: str) -> Refusal:
    subject.load_engine()
    return raised(subject, "answer", prompt=[1], tokens=[5, 5], stop=[], how=how)


def http(subject: Subject, body: Any, words: Words, *, failing: bool = False, kind: str = "") -> Refusal:
    """The answer to one request, which must be an error object, of a kind if one is given."""
    subject.load_engine()
    return _object(subject.call("application", body=body, name=MODEL, failing=failing).values, words, kind)


def _object(values: Mapping[str, Any], words: Words, kind: str = "") -> Refusal:
    status, text = values.get("status"), str(values.get("text"))
    try:
        error = json.loads(text)["error"]
        message = f"{error['message']} ({error['type']})"
        note = "" if error["message"] and (not kind or error["type"] == kind) else f"an error object of type {kind}"
    except (ValueError, KeyError, TypeError):
        return Refusal(
            f"HTTP {status}", text, words, note="the body is no OpenAI error object with a message and a type"
        )
    return Refusal(f"HTTP {status}", message, words, note=note and f"the body is not {note}: {text[:200]}")


def no_json(subject: Subject) -> Refusal:
    return http(subject, "{", {"an OpenAI error object with a message": ()})


def long_body(subject: Subject) -> Refusal:
    count, most = limit(subject)
    asked = "an OpenAI error object with parse's message, for a long prompt its length and the limit"
    body = {"prompt": [1] * (most + 1), "max_tokens": count}
    return http(subject, body, {asked: (str(most + 1), str(most))})


def other_model(subject: Subject) -> Refusal:
    words = {"that name": ("another",), "the one that is served": (MODEL,)}
    return http(subject, {"model": "another", "prompt": [1]}, words)


def full_queue(subject: Subject) -> Refusal:
    subject.load_engine()
    words = {"an OpenAI error object of type rate_limit_error": ("rate_limit_error",)}
    values = subject.call("full", name=MODEL, most=400).values
    waited, may = values.get("waited"), values.get("may_wait")
    right = waited == may and isinstance(may, int) and may >= LEAST_WAITING
    note = f"{waited} requests waited; MAX_WAITING of scheduler.py is {may}, at least {LEAST_WAITING} may"
    found = _object(values, words)
    return found if right or found.note else replace(found, note=note)


def failed_engine(subject: Subject) -> Refusal:
    words = {"an OpenAI error object of type server_error": ("server_error",)}
    return http(subject, {"prompt": [1], "max_tokens": 2}, words, failing=True)


def taken_port(subject: Subject) -> Refusal:
    subject.load_engine()
    port = subject.child.sandbox.port
    reply = subject.call("taken_port", checkpoint=str(subject.checkpoint), port=port)
    words = {"the host and port": (f"127.0.0.1:{port}",), "why it can't be had": (os.strerror(errno.EADDRINUSE),)}
    note = "the weights were loaded before the port was bound" if reply.value("loaded", bool) else ""
    return Refusal(f"exit status {reply.value('status', int)}", reply.value("text", str), words, note=note)


EXPERIMENTS: dict[tuple[str, str, str], Callable[[Subject], Refusal | None]] = {
    ("engine", "Engine.generate", "an empty prompt"): lambda s: prompts_of(s, [1], [], op="generate"),
    ("engine", "Engine.stream", "an empty prompt, when it is called and not later"): lambda s: prompts_of(
        s, [], op="called"
    ),
    ("engine", "Engine.generate", "a prompt of more than MAX_CONTEXT - max_new_tokens tokens"): lambda s: too_long(
        s, "generate"
    ),
    (
        "engine",
        "Engine.stream",
        "a prompt of more than MAX_CONTEXT - max_new_tokens tokens, when it is called and not later",
    ): lambda s: too_long(s, "called"),
    ("engine", "Engine.stream", "a token id that is not of this vocabulary"): strange_token,
    ("sampler", "Sampler.from_request", "a temperature above 0 on an engine that decodes greedily"): greedy_only,
    (
        "sampler",
        "Sampler.from_request",
        "a temperature, top_k or top_p out of its range on an engine that samples",
    ): out_of_range,
    ("scheduler", "Scheduler.submit", "a request when max_waiting wait, at once"): crowded,
    ("tokenizer", "Tokenizer.chat", "a conversation when the checkpoint has no chat template"): no_template,
    ("tokenizer", "Tokenizer.chat", "a conversation that the template refuses"): refusing_template,
    ("api-request", "parse", "a known field that is not offered and asks for something"): not_offered,
    ("api-request", "parse", "a prompt that is missing or neither a text nor a list of token ids"): no_prompt,
    ("api-request", "parse", "messages that are no list of roles with text contents"): no_messages,
    ("api-request", "parse", "a max_tokens that is no positive integer"): no_count,
    ("api-request", "parse", "a prompt that is empty or leaves no room for max_tokens"): no_room,
    ("api-answer", "Answer", "a job when too many wait"): lambda s: answered(s, "crowded"),
    ("api-answer", "Answer.pieces", "a request that failed"): lambda s: answered(s, "failing"),
    ("server", "application", "a body that is no JSON object"): no_json,
    ("server", "application", "a request that parse refuses"): long_body,
    ("server", "application", "another model's name"): other_model,
    ("server", "application", "a request when the queue is full"): full_queue,
    ("server", "application", "a request whose engine failed before the first byte"): failed_engine,
    ("serve-command", "main", "a port that is taken, before the weights are loaded"): taken_port,
}
"""(contract, function, condition) -> what provokes it; None of an experiment: this Target has no such case."""
