"""A server that speaks the dialects of others, and misbehaves as it is told: what baselines are tried on.

    python stand_in_server.py CHECKPOINT --port P [--engine FOLDER] [--dialect vllm] [--fault NAME] [--after N]

Tokens are those of the engine in FOLDER, which is a right one, or else numbers that mean nothing. `--fault` holds from
the answer number N on (0: the first).
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import tokenizers

MODEL = "served"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", type=Path)
    parser.add_argument(
        "--dialect", default="vllm", choices=["vllm", "old-vllm", "sglang", "increments", "mlx", "text"]
    )
    parser.add_argument("--fault", default="")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--context", type=int, default=4096)
    return parser.parse_known_args()[0]  # the flags of a preset are none of its own


ASKED = arguments()
CODEC = tokenizers.Tokenizer.from_file(str(ASKED.checkpoint / "tokenizer.json"))
STATE: dict[str, Any] = {"answers": 0, "engine": None}


def tokens(prompt: list[int], count: int) -> Iterator[int]:
    if STATE["engine"]:
        yield from STATE["engine"].stream(prompt, count, ignore_eos=True)
    else:
        yield from ((300 + 7 * i) % 384 for i in range(count))


def grouped(values: Iterator[int], size: int) -> Iterator[list[int]]:
    held = []
    for value in values:
        held.append(value)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        card = {"id": ASKED.model, "max_model_len": ASKED.context}
        answers = {"/v1/models": {"data": [card]}, "/health": {}, "/version": {"version": "1.2.3"}}
        answers["/get_server_info"] = {"version": "4.5.6"}
        if ASKED.fault == "no-openai":
            answers = {}
        found = answers.get(self.path)
        self.whole(200 if found is not None else 404, found or {})

    def whole(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def say(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self.chunk(f"data: {text}\n\n".encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = ASKED.fault if STATE["answers"] >= ASKED.after else ""
        STATE["answers"] += 1
        native = self.path == "/generate"
        sampling = body["sampling_params"] if native else body
        count = sampling["max_new_tokens" if native else "max_tokens"]
        prompt = body["input_ids"] if native else body["prompt"]
        if fault == "500" or body.get("model", ASKED.model) != ASKED.model:
            return self.whole(500, {"error": {"message": "it has a bad day"}})
        if ASKED.dialect in ("mlx", "text") and not isinstance(prompt, str):
            return self.whole(400, {"error": {"message": "prompt must be a string"}})
        if ASKED.dialect == "text" and "ignore_eos" in body:
            return self.whole(422, {"error": {"message": "unexpected key ignore_eos"}})
        if isinstance(prompt, str):
            prompt = CODEC.encode(prompt, add_special_tokens=False).ids
        read = len(prompt) + (fault == "adds")
        count -= 3 * (fault == "short")
        size = {"pieces": 3, "one-piece": count}.get(fault, 1)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        said: list[int] = []
        for group in grouped(tokens(prompt, count), size):
            if fault == "hang" and said:
                time.sleep(600)
            time.sleep(0.05 * (fault == "slow"))
            if fault == "dies" and said:
                print("out of memory, says the stand-in", flush=True)
                os._exit(3)
            said += group
            self.piece(body, group, said, read)
        self.end(body, said, read, fault)
        return None

    def piece(self, body: dict[str, Any], group: list[int], said: list[int], read: int) -> None:
        if ASKED.dialect in ("sglang", "increments"):
            told = {"prompt_tokens": read, "completion_tokens": len(said)}
            shown = group if ASKED.dialect == "increments" else said
            self.say({"text": "", "output_ids": shown, "meta_info": told})
            return
        choice: dict[str, Any] = {"index": 0, "text": CODEC.decode(group), "finish_reason": None}
        if ASKED.dialect == "vllm" and body.get("return_token_ids"):
            choice["token_ids"] = group
        if ASKED.dialect == "mlx" and body.get("logprobs"):
            choice["logprobs"] = {"tokens": group}
        self.say({"choices": [choice]})

    def end(self, body: dict[str, Any], said: list[int], read: int, fault: str) -> None:
        if self.path != "/generate":
            self.say({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
            if (body.get("stream_options") or {}).get("include_usage") and fault != "no-usage":
                self.say({"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": len(said)}})
        self.say("[DONE]")
        self.chunk(b"")


if ASKED.fault == "exits":
    sys.exit("no such model, says the stand-in")
if ASKED.fault == "never":
    print("loading for ever", flush=True)
    time.sleep(600)
if ASKED.engine:
    sys.path.insert(0, str(ASKED.engine.parent))
    STATE["engine"] = import_module(f"{ASKED.engine.name}.engine").Engine.load(ASKED.checkpoint)
ThreadingHTTPServer(("127.0.0.1", ASKED.port), Handler).serve_forever()
