"""The experiments behind the error cases of contracts: each provokes one refusal and tells what it looked like."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_actors import checkpoint
from gpu_actors.gates.base import Subject

Words = Mapping[str, tuple[str, ...]]
MODEL = "served"
LEAST_WAITING = 16
"""Requests that a server must let wait (contract server)."""


@dataclass(frozen=True)
class Refusal:
    """How something was refused."""

    what: str
    """Name of the exception's class, `HTTP 400`, `exit status 2`; empty when it wasn't."""
    message: str = ""
    words: Words = field(default_factory=dict)
    """What a contract may ask of the message, in its words -> texts that must all stand in it."""
    any_class: bool = False
    """Whether the exception's class is left open."""
    note: str = ""
    """What else is wrong about it."""


def raised(
    subject: Subject, op: str, words: Words | None = None, *, any_class: bool = False, **arguments: Any
) -> Refusal:
    """The exception of an operation. Raises ChildFailure when the process crashes."""
    failure = subject.raised(op, **arguments)
    if failure is None:
        return Refusal("", "it returned", words or {}, any_class)
    return Refusal(failure.error_type, str(failure), words or {}, any_class)


# --- operators, cache, weights ----------------------------------------------------------------------------------------


def built(subject: Subject, compiler: str, words: Words) -> Refusal | None:
    """Set-up of a fresh copy with another compiler. None for an engine that compiles nothing."""
    if not any(row.native for row in subject.job.rows):
        return None
    return raised(subject, "setup_again", words, environment={"CXX": compiler}, tree_dir=str(subject.tree_dir))


def no_compiler(subject: Subject) -> Refusal | None:
    return built(subject, "/nowhere/c++", {"what was tried": ("/nowhere/c++",)})


def no_compilation(subject: Subject) -> Refusal | None:
    return built(subject, "c++ -include nothing-of-this-name.h", {"the compiler's words": ("nothing-of-this-name.h",)})


def past_capacity(subject: Subject) -> Refusal:
    facts, capacity, start = subject.facts.model, 8, 7
    row = np.ones((3, facts.kv_heads, facts.head_dim), dtype=np.float32)
    words = {"the last position": (str(start + len(row) - 1),), "the capacity": (str(capacity),)}
    return raised(subject, "cache", words, capacity=capacity, appends=[[0, start]], reads=[], k0=row, v0=row)


def tensor(subject: Subject) -> tuple[str, list[int]]:
    """A matrix of the checkpoint, and its shape."""
    name = "model.layers.0.mlp.up_proj.weight"
    return name, list(checkpoint.Checkpoint(subject.checkpoint).tensor(name).shape)


def taken(subject: Subject, tensors: list[tuple[str, list[int]]], words: Words, ignored: Any = None) -> Refusal:
    return raised(subject, "take", words, folder=str(subject.checkpoint), tensors=tensors, ignored=ignored)


def missing(subject: Subject) -> Refusal:
    return taken(subject, [("model.of_no_such_name", [1])], {"the tensor's name": ("model.of_no_such_name",)})


def taken_twice(subject: Subject) -> Refusal:
    return taken(subject, [tensor(subject)] * 2, {"the tensor's name": (tensor(subject)[0],)})


def other_shape(subject: Subject) -> Refusal:
    name, shape = tensor(subject)
    wrong = shape[::-1] if shape[0] != shape[1] else [2 * shape[0], shape[1] // 2]  # as many numbers, in another order
    words = {"the tensor's name": (name,), "its shape": (str(tuple(shape)),)}
    return taken(subject, [(name, wrong)], words | {"the shape that the engine is made for": (str(tuple(wrong)),)})


def left_over(subject: Subject) -> Refusal:
    first = min(checkpoint.Checkpoint(subject.checkpoint).names)  # of a long list only the start comes through
    return taken(subject, [], {"the tensor's name": (first,)}, ignored=["of_no_such_ending"])


def copy(subject: Subject, name: str, make: Callable[[Path], object]) -> str:
    """A folder that the child may read, made once."""
    folder = subject.copies / name
    if not folder.exists():
        make(folder)
    return str(folder)


def lacking(subject: Subject) -> Refusal:
    name = "model.layers.0.mlp.up_proj.weight"
    folder = copy(subject, "lacking_first", lambda to: checkpoint.renamed(subject.checkpoint, to, name))
    return raised(subject, "load_weights", {"the tensor's name": (name,)}, checkpoint=folder)


def unknown(subject: Subject) -> Refusal:
    subject.drop()  # all weights are read before the one that is too many is seen
    name = "model.layers.0.of_no_such_name.weight"
    folder = copy(subject, "with_another", lambda to: checkpoint.extended(subject.checkpoint, to, name))
    return raised(subject, "load_weights", {"the tensor's name": (name,)}, checkpoint=folder)


def cut_short(subject: Subject) -> Refusal:
    folder = copy(subject, "truncated", lambda to: checkpoint.truncated(subject.checkpoint, to))
    return raised(subject, "load_weights", any_class=True, checkpoint=folder)


def step_past_capacity(subject: Subject) -> Refusal:
    subject.load_model()
    words = {"the position": ("7",), "the capacity": ("5",)}
    return raised(subject, "step_at", words, position=7, capacity=5)


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
    ("setup", "setup", "a machine without a compiler, at set-up and never at the first request"): no_compiler,
    ("setup", "setup", "a source that does not compile, at set-up and never at the first request"): no_compilation,
    ("kv-cache", "KVCache.append", "positions past the capacity"): past_capacity,
    ("checkpoint", "Checkpoint.take", "a tensor that is missing"): missing,
    ("checkpoint", "Checkpoint.take", "a tensor that was taken already"): taken_twice,
    ("checkpoint", "Checkpoint.take", "a tensor of another shape"): other_shape,
    ("checkpoint", "Checkpoint.finish", "a tensor that nobody took and no ending allows to ignore"): left_over,
    ("model", "Model.step", "a position past the cache's capacity"): step_past_capacity,
    ("weights", "load_weights", "a checkpoint that lacks a tensor"): lacking,
    ("weights", "load_weights", "a checkpoint with a tensor that the engine does not know"): unknown,
    ("weights", "load_weights", "a weight file that is cut short"): cut_short,
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
