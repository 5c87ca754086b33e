import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .engine import Engine
from .facts import EOS_TOKENS, MAX_CONTEXT

NUMBERS = itertools.count()


def object_of(chat: bool, streamed: bool) -> str:
    return f"chat.completion{'.chunk' if streamed else ''}" if chat else "text_completion"


def choice(chat: bool, text: str, reason: str | None, streamed: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    said = {"delta" if streamed else "message": message} if chat else {"text": text}
    return {"index": 0, "finish_reason": reason, **said}


def cut(text: str, stop: list[str]) -> str:
    """The text before the first stop string."""
    return text[: min([len(text), *(text.index(word) for word in stop if word in text)])]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as one text."""
    content = message["content"]
    return message if isinstance(content, str) else {**message, "content": "".join(part["text"] for part in content)}


def limit(body: dict[str, Any], chat: bool, prompt: list[int]) -> int:
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    return next((body[name] for name in names if name in body), MAX_CONTEXT - len(prompt) if chat else 16)


class Answer:
    """Makes everything, then gives it out."""

    def __init__(self, engine: Engine, prompt: list[int], count: int, stop: list[str]):
        tokens = list(engine.stream(prompt, count))
        kept = tokens[:-1] if tokens[-1] in EOS_TOKENS else tokens
        whole = [engine.tokenizer.decode(kept[: i + 1]) for i in range(len(kept))]
        last = whole[-1] if whole else ""
        self.text = cut(last, stop)
        self.texts = [text[: len(self.text)] for text in whole]
        self.reason = "stop" if kept != tokens or self.text != last else "length"
        self.usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        self.usage["total_tokens"] = len(prompt) + len(tokens)


def application(engine: Engine, name: str) -> Starlette:
    def answer(body: dict[str, Any], chat: bool) -> Response:
        asked, stop = body["messages" if chat else "prompt"], body.get("stop") or []
        ids = engine.tokenizer.chat([plain(message) for message in asked]) if chat else asked
        prompt = engine.tokenizer.encode(ids) if isinstance(ids, str) else ids
        count = limit(body, chat, prompt)
        if body.get("model", name) != name or not isinstance(count, int) or count < 1:
            raise ValueError(f"max_tokens must be at least 1 and the model {name}, not {count}")
        words = [stop] if isinstance(stop, str) else stop
        engine.stream(prompt, count)  # which refuses what is too long before it makes anything
        if body.get("stream"):
            told = bool((body.get("stream_options") or {}).get("include_usage"))
            made = frames(chat, lambda: Answer(engine, prompt, count, words), told)
            return StreamingResponse(made, media_type="text/event-stream")
        found = Answer(engine, prompt, count, words)
        choices = [choice(chat, found.text, found.reason, False)]
        whole = {"id": f"answer-{next(NUMBERS)}", "object": object_of(chat, False), "choices": choices}
        return JSONResponse({**whole, "usage": found.usage})

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


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def frames(chat: bool, make: Callable[[], Answer], told: bool) -> Iterator[str]:
    head, sent = {"id": f"answer-{next(NUMBERS)}", "object": object_of(chat, True)}, ""
    try:
        made = make()
        for text in made.texts:
            if not text.endswith("\ufffd"):
                yield event({**head, "choices": [choice(chat, text[len(sent) :], None, True)]})
                sent = text
        rest = made.text[len(sent) :]
        yield event({**head, "choices": [choice(chat, rest, made.reason, True)]})
        if told:
            yield event({**head, "choices": [], "usage": made.usage})
    except RuntimeError as error:
        yield event({"error": {"message": str(error)}})
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
