"""A client of completion servers: asks for so many greedy tokens, and notes on our clock when each piece arrived.

Tokens are counted by their ids where a server sends ids, else by its own usage, never by the pieces of the stream: a
piece may hold several tokens, and a token may show no text.
"""

import http.client
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.baselines.records import Counted, Dialect
from gpu_actors.child import ChildFailure

LINE_LIMIT = 1024**2
"""Bytes of one line of a stream."""
LINES_A_TOKEN = 16
"""A stream with more lines for each token asked for goes on for ever."""
REPLY_LIMIT = 16 * 1024**2
BROKEN = (http.client.HTTPException, OSError)


@dataclass
class Answer:
    """What has arrived of one answer."""

    ids: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    """When each id arrived; of an answer without ids, when each piece did that holds text or says why it ended."""
    pieces: int = 0
    """Parts of the stream that hold ids or text."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    done: bool = False
    """It ended as the protocol says."""

    @property
    def counted(self) -> Counted | None:
        """What its length is known by; None: by nothing."""
        if self.ids:
            return "token ids"
        return None if self.completion_tokens is None else "usage"

    def token_times_ns(self, most: int) -> list[int]:
        """A time for each token, at most `most` + 1 of them. Without ids only the first and the last are exact: in
        between a token has the time of some piece, and the last piece's where there are more tokens than pieces."""
        if self.ids or not self.times_ns:
            return self.times_ns
        count = min(self.completion_tokens or 0, most + 1)
        padded = self.times_ns[:-1] + [self.times_ns[-1]] * max(1, count - len(self.times_ns) + 1)
        return [*padded[: count - 1], padded[-1]] if count else []


class Client:
    """Asks one server. Every request has a connection of its own: a server that was stopped meanwhile closes idle
    ones. Raises ChildFailure: TIMEOUT, CRASHED (nobody there, or gone in the middle), RAISED (it refuses), PROTOCOL."""

    def __init__(self, url: str, key: str = ""):
        """`url`: the server's root, without /v1. `key`: for an Authorization header, "" for none."""
        parts = urlsplit(url)
        self.url = url
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def get(self, path: str, deadline_s: float) -> tuple[int, Any]:
        """Status and JSON (None if it is none)."""
        connection = self._connection(deadline_s)
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            response = connection.getresponse()
            data = response.read(REPLY_LIMIT)
        except BROKEN as error:
            raise self._broken(error) from error
        finally:
            connection.close()
        return response.status, as_json(data)

    def events(self, path: str, body: dict[str, Any], lines: int, deadline_s: float) -> Iterator[tuple[Any, int]]:
        """The JSON of each server-sent event of at most so many lines, with the clock when its line was read; ends
        with None for `[DONE]`, or without when the server just ends."""
        end = time.monotonic() + deadline_s
        connection = self._connection(deadline_s)
        try:
            connection.request("POST", self._path + path, json.dumps(body), self._headers)
            sock = connection.sock
            response = connection.getresponse()
            if response.status != 200:
                raise ChildFailure("RAISED", f"HTTP {response.status}: {response.read(2000).decode(errors='replace')}")
            for count in itertools.count(1):
                if time.monotonic() > end or count > lines:
                    raise ChildFailure("TIMEOUT", f"its stream did not end within {deadline_s:.0f} s or {lines} lines")
                sock.settimeout(max(0.01, end - time.monotonic()))
                line = response.readline(LINE_LIMIT)
                at_ns = time.perf_counter_ns()
                if not line:
                    return
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    yield (None if data == b"[DONE]" else event(data)), at_ns
        except BROKEN as error:
            raise self._broken(error) from error
        finally:
            connection.close()

    def _connection(self, deadline_s: float) -> http.client.HTTPConnection:
        if deadline_s <= 0:  # which a socket takes for an error of ours
            raise ChildFailure("TIMEOUT", f"the deadline had passed before {self.url} was asked")
        return self._kind(self._host, self._port, timeout=deadline_s)

    def _broken(self, error: Exception) -> ChildFailure:
        if isinstance(error, TimeoutError):
            return ChildFailure("TIMEOUT", f"{self.url} did not answer within the deadline")
        return ChildFailure("CRASHED", f"{self.url}: {type(error).__name__}: {error}")


def as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def event(data: bytes) -> dict[str, Any]:
    found = as_json(data)
    if not isinstance(found, dict):
        raise ChildFailure("PROTOCOL", f"its stream holds something else than JSON objects: {data[:80]!r}")
    if found.get("error"):
        raise ChildFailure("RAISED", f"it broke off: {str(found['error'])[:300]}")
    return found


def ask(
    client: Client,
    dialect: Dialect,
    model: str,
    prompt: Sequence[int] | str,
    new_tokens: int,
    body: dict[str, Any],
    deadline_s: float,
) -> Answer:
    """One greedy completion of `new_tokens` tokens, streamed."""
    text = isinstance(prompt, str)
    if dialect == "sglang":
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, **body}
        asked: dict[str, Any] = {"text" if text else "input_ids": prompt, "sampling_params": sampling, "stream": True}
        path, take = "/generate", take_sglang
    else:
        asked = {"model": model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "stream": True, **body}
        path, take = "/v1/completions", take_openai
    answer = Answer()
    for found, at_ns in client.events(path, asked, LINES_A_TOKEN * (new_tokens + 8), deadline_s):
        if found is None:
            answer.done = True
            break
        try:
            take(answer, found, at_ns)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ChildFailure("PROTOCOL", f"a piece of its stream is not of the {dialect} form: {error!r}") from error
    return answer


def take_openai(answer: Answer, piece: dict[str, Any], at_ns: int) -> None:
    """Ids stand in a choice's `token_ids` (vLLM), or are the `tokens` of its log-probabilities (mlx_lm)."""
    for choice in piece["choices"]:
        ids = choice.get("token_ids") or (choice.get("logprobs") or {}).get("tokens") or []
        ids = ids if all(type(token) is int for token in ids) else []
        answer.ids += ids
        answer.pieces += bool(ids or choice.get("text"))
        if answer.ids:
            answer.times_ns += [at_ns] * len(ids)
        elif choice.get("text") or choice.get("finish_reason"):
            answer.times_ns.append(at_ns)
    if usage := piece.get("usage"):
        answer.prompt_tokens = usage["prompt_tokens"]
        answer.completion_tokens = usage["completion_tokens"]


def take_sglang(answer: Answer, piece: dict[str, Any], at_ns: int) -> None:
    """`output_ids` holds all ids so far, or, if the server streams increments, the new ones: the count beside them
    tells."""
    ids, told = piece["output_ids"], piece["meta_info"]
    answer.prompt_tokens = told["prompt_tokens"]
    answer.completion_tokens = told["completion_tokens"]
    fresh = ids[len(answer.ids) :] if len(ids) == answer.completion_tokens else ids
    answer.ids += fresh
    answer.pieces += bool(fresh)
    answer.times_ns += [at_ns] * len(fresh)
