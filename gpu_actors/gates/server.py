"""The engine's HTTP server, started as its user would, asked from inside the sandbox, judged here."""

import json
from dataclasses import dataclass
from typing import Any

from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.integration import MESSAGES, numbers
from gpu_actors.readable import site_folders

TEXT = "The river runs down from the hills and"
MAX_TOKENS = 8


@dataclass(frozen=True)
class Response:
    status: int
    type: str
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Server:
    """The running server; every method raises ChildFailure when it can't be reached."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self.port = subject.child.sandbox.port  # the one that a sandbox without a network of its own may bind
        site = [str(folder) for folder in site_folders()]
        arguments = {"checkpoint": str(subject.checkpoint), "tree_dir": str(subject.tree_dir), "port": self.port}
        subject.call("start_server", **arguments, packages=site)

    def ask(self, method: str, path: str, body: dict[str, Any] | str | None = None) -> Response:
        timeout = min(60.0, self._subject.seconds_left)
        values = {"port": self.port, "method": method, "path": path, "body": body, "timeout_s": timeout}
        reply = self._subject.call("http", **values)
        return Response(reply.value("status", int), reply.value("type", str), reply.value("text", str))

    def stop(self) -> None:
        self._subject.call("stop_server")


class Fault(Exception):
    """The first thing about the server that is wrong, in words."""


def expect(condition: bool, fault: str) -> None:
    if not condition:
        raise Fault(fault)


def server(subject: Subject) -> Finding:
    subject.load_engine()
    held = Server(subject)
    try:
        health = held.ask("GET", "/health")
        expect(health.status == 200, f"/health answers {health.status}")
        models = held.ask("GET", "/v1/models").json
        expect(models.get("object") == "list" and len(models["data"]) > 0, f"/v1/models answers {str(models)[:120]}")
        model = models["data"][0]["id"]
        completions(subject, held, model)
        chat(held, model)
        bad_input(subject, held, model)
    except Fault as fault:
        return failed(str(fault))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return failed(f"an answer is not of the OpenAI form: {error!r}")
    finally:
        if subject.child.alive:
            held.stop()
    return passed("health, models, completions and chat, streamed and whole, usage, four kinds of bad input")


def completions(subject: Subject, held: Server, model: str) -> None:
    """The text is that of `generate`, streamed or not, and usage counts its tokens."""
    ids = subject.call("tokenizer", text=TEXT).value("ids", list[int])
    tokens = subject.continuation(ids, MAX_TOKENS, ignore_eos=False)
    ended = bool(tokens) and tokens[-1] in subject.facts.model.eos_tokens
    wanted = subject.call("decode", ids=tokens[:-1] if ended else tokens).value("text", str)
    body = {"model": model, "prompt": TEXT, "max_tokens": MAX_TOKENS, "temperature": 0}
    whole = held.ask("POST", "/v1/completions", body)
    expect(whole.status == 200, f"/v1/completions answers {whole.status}: {whole.text[:200]}")
    choice, usage = whole.json["choices"][0], whole.json["usage"]
    expect(choice["text"] == wanted, f"completion {choice['text']!r}; generate says {wanted!r}")
    counted = (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])
    right = (len(ids), len(tokens), len(ids) + len(tokens))
    expect(counted == right, f"usage (prompt, completion, total) is {counted}; the tokens are {right}")
    reason = "stop" if ended else "length"
    expect(choice["finish_reason"] == reason, f"finish_reason is {choice['finish_reason']!r}, expected {reason!r}")
    chunks = events(held.ask("POST", "/v1/completions", body | {"stream": True}))
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])
    expect(text == wanted, f"the streamed completion is {text!r}, the whole one {wanted!r}")
    expect(len(chunks) > 1, f"a completion of {len(tokens)} tokens was streamed in {len(chunks)} piece(s)")
    reasons = [chunk["choices"][0].get("finish_reason") for chunk in chunks if chunk["choices"]]
    expect([r for r in reasons if r] == [reason], f"finish_reason of the streamed chunks is {reasons}")


def chat(held: Server, model: str) -> None:
    body = {"model": model, "messages": MESSAGES, "max_tokens": MAX_TOKENS, "temperature": 0}
    whole = held.ask("POST", "/v1/chat/completions", body)
    if whole.status == 400 and "template" in whole.text:
        return  # a base model: there is no way to write a conversation
    expect(whole.status == 200, f"/v1/chat/completions answers {whole.status}: {whole.text[:200]}")
    message = whole.json["choices"][0]["message"]
    expect(message["role"] == "assistant", f"the role of the answer is {message['role']!r}")
    chunks = events(held.ask("POST", "/v1/chat/completions", body | {"stream": True}))
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    expect(text == message["content"], f"the streamed chat answer is {text!r}, the whole one {message['content']!r}")


def events(response: Response) -> list[dict[str, Any]]:
    """The JSON of each server-sent event; the stream must end with [DONE]."""
    expect(response.status == 200, f"a streamed request answers {response.status}: {response.text[:200]}")
    expect(response.type.startswith("text/event-stream"), f"a stream has content type {response.type!r}")
    lines = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
    expect(bool(lines) and lines[-1] == "[DONE]", "a stream must end with `data: [DONE]`")
    return [json.loads(line) for line in lines[:-1]]


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
