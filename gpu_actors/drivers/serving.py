"""Experiments on an engine's server without a socket: its application is called in this process."""

import asyncio
import contextlib
import copy
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from .stages import PARTS, module


def acting(stream: Callable[..., Iterator[int]]) -> Any:
    """The loaded engine, but for what it says: that is the experiment's."""
    engine = copy.copy(PARTS["engine"])
    object.__setattr__(engine, "stream", stream)
    return engine


async def ask(app: Any, body: Any, leave: asyncio.Event | None = None, path: str = "/v1/completions") -> dict[str, Any]:
    """One POST: its status and text. The client goes away when `leave` is set."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
             "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
             "headers": [(b"content-type", b"application/json")], "server": ("here", 1), "client": ("", 1)}  # fmt: skip
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    messages = [{"type": "http.request", "body": data, "more_body": False}]
    found: dict[str, Any] = {"status": 0, "text": ""}

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found["status"] = message["status"]
        else:
            found["text"] += message.get("body", b"").decode()

    await app(scope, receive, send)
    return found


def run(coroutine: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def application(body: dict[str, Any] | str, name: str, failing: bool) -> dict[str, Any]:
    """The answer to one body. `failing`: the engine fails before its first token."""

    def stream(*_: Any, **__: Any) -> Iterator[int]:
        raise RuntimeError("this request was made to fail")
        yield 0

    engine = acting(stream) if failing else PARTS["engine"]
    return run(ask(module("server").application(engine, name), body))


def full(name: str, most: int) -> dict[str, Any]:
    """Requests at once until one is answered while the first is held up; its answer."""
    hold = threading.Event()

    def stream(*_: Any, **__: Any) -> Iterator[int]:
        hold.wait(10)
        yield 1

    async def crowd() -> dict[str, Any]:
        app = module("server").application(acting(stream), name)
        tasks: list[asyncio.Task[dict[str, Any]]] = []
        try:
            for _ in range(most):
                tasks.append(asyncio.create_task(ask(app, {"prompt": [1], "max_tokens": 1})))
                for _ in range(10):
                    await asyncio.sleep(0)
                if done := [task.result() for task in tasks if task.done()]:
                    return done[0]
        finally:
            hold.set()
            await asyncio.gather(*tasks)
        return {"status": 0, "text": f"{most} requests were let in"}

    return run(crowd())


def gone(name: str, count: int) -> dict[str, Any]:
    """How many of `count` tokens the engine still made for clients that go away: while theirs runs, while it waits."""
    made = {1: 0, 2: 0}
    first = threading.Event()

    def stream(prompt: list[int], *_: Any, **__: Any) -> Iterator[int]:
        for _step in range(count):
            first.set()
            made[prompt[0]] += 1
            time.sleep(0.01)
            yield 5

    async def leave() -> dict[str, Any]:
        app = module("server").application(acting(stream), name)
        left = asyncio.Event()
        bodies = [{"prompt": [number], "max_tokens": count, "stream": True} for number in (1, 2)]
        tasks = [asyncio.create_task(ask(app, body, left)) for body in bodies]
        while not first.is_set():
            await asyncio.sleep(0.005)
        left.set()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0.05)
        return {"running": made[1], "waiting": made[2]}

    return run(leave())


def parse(body: dict[str, Any], chat: bool) -> dict[str, Any]:
    module("server").parse(body, PARTS["engine"], chat)
    return {}


def answer(prompt: list[int], tokens: list[int], stop: list[str], how: str) -> dict[str, Any]:
    """An answer whose engine says `tokens`. how: read to the end, `left` after one piece, `crowded` out, `failing`."""
    server, scheduling = module("server"), module("scheduler")
    hold, started = threading.Event(), threading.Event()
    if how != "crowded":
        hold.set()

    def said(request: Any) -> Iterator[int]:
        started.set()
        hold.wait(10)
        for token in tokens:
            if how == "left":
                time.sleep(0.02)
            yield token
        if how == "failing":
            raise RuntimeError("this request was made to fail")

    async def read() -> dict[str, Any]:
        scheduler = scheduling.Scheduler(said, 1)
        try:
            job = server.parse({"prompt": prompt, "max_tokens": len(tokens), "stop": stop}, PARTS["engine"], False)
            if how == "crowded":
                scheduler.submit(scheduling.Request(prompt, 1, lambda token: None))
                await asyncio.to_thread(started.wait, 10)
                scheduler.submit(scheduling.Request(prompt, 1, lambda token: None))
            held = server.Answer(job, "m", False, PARTS["engine"].tokenizer, scheduler)
            found: dict[str, Any] = {"reasons": [held.finish_reason], "states": []}
            pieces, text = held.pieces(), ""
            async for piece in pieces:
                text += piece
                if how == "left":
                    found["states"].append(held.request.state)
                    break
            await pieces.aclose()
            found["reasons"].append(held.finish_reason)
            found["states"].append(held.request.state)
            return found | {"text": text, "whole": held.whole(text), "chunk": held.chunk(None)}
        finally:
            hold.set()
            await asyncio.to_thread(scheduler.close)

    return run(read())


def taken_port(checkpoint: str, port: int) -> dict[str, Any]:
    """The command's exit status and words when another process listens on the port, and whether it loaded first."""
    engine, loads, error = module("engine").Engine, [], io.StringIO()
    load = vars(engine)["load"]
    engine.load = classmethod(lambda *_: loads.append(1))
    arguments, status = sys.argv, 0
    sys.argv = ["server", checkpoint, "--host", "127.0.0.1", "--port", str(port)]
    try:
        with socket.create_server(("127.0.0.1", port)), contextlib.redirect_stderr(error):
            module("server").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv, engine.load = arguments, load
    return {"status": status, "text": error.getvalue(), "loaded": bool(loads)}


OPERATIONS = {
    "application": application,
    "full": full,
    "gone": gone,
    "parse": parse,
    "answer": answer,
    "taken_port": taken_port,
}
