"""Finding a released engine, and talking with its server: a stand-in that speaks the same protocol in 40 lines."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ckb.errors import UserError
from ckb.hashing import tree_sha256
from swarm.chat import Conversation, ServerError
from swarm.cli import main
from swarm.engines import changed_since_release, find_engine, free_port, running_server

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.reply(200, {"data": [{"id": "tiny"}]})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body["messages"]
        if body["model"] != "tiny" or len(messages) > 3 or messages[-1]["content"] == "too long":
            return self.reply(400, {"error": {"message": "the prompt has 99 tokens, 64 fit"}})
        words = f"{len(messages)} {messages[-1]['content']}".split(" ")
        pieces = [{"role": "assistant"}, *({"content": w} for w in words), {}]
        data = "".join(f"data: {json.dumps({'choices': [{'delta': p}]})}\\n\\n" for p in pieces)
        data += f"data: {json.dumps({'choices': [], 'usage': {}})}\\n\\ndata: [DONE]\\n\\n"
        self.reply(200, data)
    def reply(self, status, value):
        data = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

port = int(sys.argv[sys.argv.index("--port") + 1])
print("checkpoint", sys.argv[1], flush=True)
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "config.json").write_text("{}")
    folder = tmp_path / "engines" / "demo" / "engine_1"
    folder.mkdir(parents=True)
    (folder / "server.py").write_text(SERVER)
    manifest = {"tree": tree_sha256(folder), "checkpoint": "models", "more": 1}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder.parent / "latest").symlink_to("engine_1")
    return folder


@pytest.fixture
def conversation(engine: Path) -> Iterator[Conversation]:
    with running_server(engine, Path("models")) as url:
        talk = Conversation(url)
        yield talk
        talk.close()


@pytest.mark.parametrize("name", ["engines/demo/engine_1", "engines/demo", "demo", "demo/engine_1"])
def test_an_engine_is_found_by_path_by_name_and_by_its_target(engine: Path, name: str) -> None:
    assert find_engine(name) == engine
    assert find_engine(str(engine)) == engine


def test_an_unknown_engine_lists_those_that_are_there(engine: Path) -> None:
    with pytest.raises(UserError, match="there are: demo/engine_1"):
        find_engine("other")


def test_a_changed_file_is_noticed_and_a_report_is_no_change(engine: Path) -> None:
    (engine / "report.html").write_text("<p>")
    assert not changed_since_release(engine)
    (engine / "server.py").write_text(SERVER + "\n")
    assert changed_since_release(engine)


def test_a_conversation_streams_and_starts_anew_when_it_no_longer_fits(conversation: Conversation) -> None:
    assert list(conversation.ask("one two")) == ["", "1", "one", "two", ""]
    assert "".join(conversation.ask("three")) == "3three"
    again = "".join(conversation.ask("four"))
    assert again.startswith("(the conversation no longer fits")
    assert again.endswith("1four")
    assert "".join(conversation.ask("five")) == "3five"


def test_what_the_server_refuses_is_told_and_forgotten(conversation: Conversation) -> None:
    with pytest.raises(ServerError, match="the prompt has 99 tokens, 64 fit"):
        list(conversation.ask("too long"))
    assert "".join(conversation.ask("short")) == "1short"


def test_chat_answers_the_lines_of_a_pipe(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\ntoo long\nbye\n"))
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        assert main(["chat", "demo"]) == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), handlers, strict=True):
            signal.signal(number, handler)
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "1hello",
        "(the conversation no longer fits into the engine's context: it starts anew)",
        "",
        "1bye",
    ]
    assert "the engine refuses (400): the prompt has 99 tokens" in output.err


def test_serve_ends_its_child_when_it_is_told_to_stop(engine: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "swarm", "serve", str(engine), "--port", str(port)]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout
            assert serving.stdout.readline() == f"engine_1 on http://127.0.0.1:{port}/v1\n"
            assert serving.stdout.readline() == f"checkpoint {engine.parents[2] / 'models'}\n"
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                try:
                    assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            serving.terminate()
            assert serving.wait(20) == 0
        finally:
            serving.kill()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/health")
