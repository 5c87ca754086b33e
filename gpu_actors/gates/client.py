"""How a gate asks the engine's server, and what it may expect of any answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_actors.gates.base import Subject
from gpu_actors.readable import site_folders

TEXTS, CHATS = "/v1/completions", "/v1/chat/completions"
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


@dataclass(frozen=True)
class Asked:
    """What a client sends as a prompt, its ids, and what `generate` says to it, at most MAX_TOKENS."""

    prompt: list[int] | str
    ids: list[int]
    tokens: list[int]


def continued(subject: Subject, prompt: list[int] | str, ids: list[int]) -> Asked:
    """Raises ChildFailure."""
    return Asked(prompt, ids, subject.continuation(ids, MAX_TOKENS, ignore_eos=False))


class Fault(Exception):
    """The first thing about the server that is wrong, in words."""


def expect(condition: bool, fault: str) -> None:
    if not condition:
        raise Fault(fault)


class Server:
    """The running server; every method raises ChildFailure when it can't be reached."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self.port = subject.child.sandbox.port  # the one that a sandbox without a network of its own may bind
        site = [str(folder) for folder in site_folders()]
        arguments = {"checkpoint": str(subject.checkpoint), "tree_dir": str(subject.tree_dir), "port": self.port}
        subject.call("start_server", **arguments, packages=site)

    def ask(self, method: str, path: str, body: dict[str, Any] | str | None = None) -> Response:
        reply = self._subject.call("http", method=method, path=path, body=body, **self._reach())
        return Response(reply.value("status", int), reply.value("type", str), reply.value("text", str))

    def ask_at_once(self, path: str, bodies: list[dict[str, Any]]) -> list[Response]:
        """One answer a body, each over a connection of its own, all of them sent at the same time."""
        reply = self._subject.call("http_at_once", path=path, bodies=bodies, **self._reach())
        return responses(reply.value("answers", list[dict[str, Any]]), len(bodies))

    def _reach(self) -> dict[str, Any]:
        return {"port": self.port, "timeout_s": min(60.0, self._subject.seconds_left)}

    def stop(self) -> None:
        self._subject.call("stop_server")


def responses(found: list[dict[str, Any]], count: int) -> list[Response]:
    expect(len(found) == count, f"{count} requests at once have {len(found)} answers")
    return [Response(int(one["status"]), str(one["type"]), str(one["text"])) for one in found]


def events(response: Response) -> list[dict[str, Any]]:
    """The JSON of each server-sent event; the stream must end with [DONE]."""
    expect(response.status == 200, f"a streamed request answers {response.status}: {response.text[:200]}")
    expect(response.type.startswith("text/event-stream"), f"a stream has content type {response.type!r}")
    lines = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
    expect(bool(lines) and lines[-1] == "[DONE]", "a stream must end with `data: [DONE]`")
    return [json.loads(line) for line in lines[:-1]]


def counts(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@dataclass(frozen=True)
class Heard:
    """What any answer says, whole or streamed, to a text or a conversation."""

    text: str
    reason: str
    id: str


def heard(response: Response, body: Mapping[str, Any], what: str) -> Heard:
    """Raises Fault where it is no right answer to the body; `what` was asked, in words."""
    expect(response.status == 200, f"{what}: it answers {response.status}: {response.text[:200]}")
    frames = events(response) if body.get("stream") else [response.json]
    choices = [choice for frame in frames for choice in frame.get("choices", [])]
    expect(bool(choices), f"{what}: there is no choice in {response.text[:200]}")
    said = [choice.get("delta") or choice.get("message") or choice for choice in choices]
    ids = {frame["id"] for frame in frames}
    expect(len(ids) == 1, f"{what}: the chunks of one stream have {len(ids)} ids")
    (name,) = ids
    expect(isinstance(name, str) and bool(name), f"{what}: the id of the answer is {name!r}")
    text = "".join(str(part.get("text") or part.get("content") or "") for part in said)
    return Heard(text, str(choices[-1].get("finish_reason")), name)


def differ(answers: list[Heard]) -> None:
    """Raises Fault where two answers share an id."""
    ids = [answer.id for answer in answers]
    expect(len(set(ids)) == len(ids), f"{len(ids)} answers have {len(set(ids))} ids: {ids[0]!r} is the first one's")
