import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .engine import Engine
from .facts import EOS_TOKENS


def choice(chat: bool, text: str, reason: str | None, streamed: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    said = {"delta" if streamed else "message": message} if chat else {"text": text}
    return {"index": 0, "finish_reason": reason, **said}


def application(engine: Engine, name: str) -> Starlette:
    def answer(body: dict[str, Any], chat: bool) -> Response:
        count = body.get("max_tokens", 16)
        if body.get("model", name) != name or not isinstance(count, int) or count < 1:
            raise ValueError(f"max_tokens must be at least 1 and the model {name}, not {count}")
        prompt = engine.tokenizer.chat(body["messages"]) if chat else engine.tokenizer.encode(body["prompt"])
        tokens = list(engine.stream(prompt, count))
        reason = "stop" if tokens[-1] in EOS_TOKENS else "length"
        kept = tokens[:-1] if reason == "stop" else tokens
        texts = [engine.tokenizer.decode(kept[: i + 1]) for i in range(len(kept))]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        usage["total_tokens"] = len(prompt) + len(tokens)
        if body.get("stream"):
            told = usage if (body.get("stream_options") or {}).get("include_usage") else None
            return StreamingResponse(frames(chat, texts, reason, told), media_type="text/event-stream")
        return JSONResponse({"choices": [choice(chat, texts[-1] if texts else "", reason, False)], "usage": usage})

    async def complete(request: Request) -> Response:
        try:
            return answer(await request.json(), request.url.path.endswith("chat/completions"))
        except (ValueError, KeyError) as error:
            return JSONResponse({"error": {"message": repr(error), "type": "invalid_request_error"}}, 400)

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [Route(f"/v1/{path}", complete, methods=["POST"]) for path in ("completions", "chat/completions")]
    return Starlette(routes=[*routes, Route("/v1/models", models), Route("/health", health)])


def frames(chat: bool, texts: list[str], reason: str, usage: dict[str, int] | None) -> Iterator[str]:
    sent = ""
    for text in texts:
        if not text.endswith("\ufffd"):
            yield f"data: {json.dumps({'choices': [choice(chat, text[len(sent) :], None, True)]})}\n\n"
            sent = text
    rest = (texts[-1] if texts else "")[len(sent) :]
    yield f"data: {json.dumps({'choices': [choice(chat, rest, reason, True)]})}\n\n"
    if usage:
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    app = application(Engine.load(options.checkpoint), options.checkpoint.name)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
