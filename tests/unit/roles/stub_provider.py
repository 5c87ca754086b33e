"""An OpenAI-compatible server in this process, which answers from a script. Only this edge is faked: the client, the
HTTP and litellm in between are real."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Says:
    """A good HTTP answer, whatever it holds."""

    content: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    """(tool, arguments as the model wrote them)."""
    prompt_tokens: int = 100
    completion_tokens: int = 20
    finish: str = ""
    usage: bool = True


@dataclass(frozen=True)
class Fails:
    """An HTTP error."""

    status: int
    message: str = "no"
    headers: tuple[tuple[str, str], ...] = ()
    code: str | None = None


@dataclass(frozen=True)
class Cuts:
    """Closes the connection after some bytes of the answer; 0 is before the first."""

    after: int = 0


@dataclass(frozen=True)
class Drips:
    """Sends one byte at a time, for ever: each read succeeds, and the answer never ends."""

    pause_s: float = 0.05


Step = Says | Fails | Cuts | Drips


@dataclass
class StubProvider:
    script: list[Step] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    port: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, *steps: Step) -> None:
        """The next answers; what was asked before is forgotten."""
        self.script, self.requests, self.keys = list(steps), [], []


def body_of(step: Says) -> bytes:
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(step.calls)
    ]
    message = {"role": "assistant", "content": step.content, **({"tool_calls": calls} if calls else {})}
    total = step.prompt_tokens + step.completion_tokens
    usage = {"prompt_tokens": step.prompt_tokens, "completion_tokens": step.completion_tokens, "total_tokens": total}
    choice = {"index": 0, "message": message, "finish_reason": step.finish or ("tool_calls" if calls else "stop")}
    reply = {"id": "stub", "object": "chat.completion", "created": 0, "model": "stub", "choices": [choice]}
    return json.dumps(reply | ({"usage": usage} if step.usage else {})).encode()


class Handler(BaseHTTPRequestHandler):
    stub: StubProvider

    def do_POST(self) -> None:
        stub = self.stub
        stub.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        stub.keys.append(self.headers.get("Authorization", ""))
        step = stub.script.pop(0) if stub.script else Fails(500, "the script of the stub is over")
        match step:
            case Says():
                self.send(200, body_of(step))
            case Fails():
                error = {"error": {"message": step.message, "type": "stub", "code": step.code}}
                self.send(step.status, json.dumps(error).encode(), step.headers)
            case Cuts(after):
                if after:
                    self.send(200, body_of(Says("x" * after)), cut=after)
                self.close_connection = True
            case Drips(pause_s):
                self.send(200, b"{" + b" " * 1_000_000, cut=1)
                while not stub.stopping.wait(pause_s):
                    try:
                        self.wfile.write(b" ")
                    except OSError:
                        return

    def send(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = (), cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def stub_provider() -> Iterator[StubProvider]:
    """Runs the server while the block runs."""
    stub = StubProvider()
    handler = type("BoundHandler", (Handler,), {"stub": stub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        stub.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            stub.stopping.set()
            time.sleep(0.1)  # drips end
            server.shutdown()
            thread.join()
