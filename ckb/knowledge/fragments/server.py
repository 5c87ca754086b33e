# ---
# contract: server
# title: Starlette routes over one scheduler
# ---
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .engine import Engine
from .scheduler import QueueFull, Scheduler


def refusal(status: int, message: str, kind: str = "invalid_request_error") -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)


async def events(answer: Answer) -> AsyncIterator[str]:
    """A streamed answer as server-sent events."""
    try:
        if answer.chat:
            yield f"data: {json.dumps(answer.chunk('', first=True))}\n\n"
        async for piece in answer.pieces():
            yield f"data: {json.dumps(answer.chunk(piece))}\n\n"
        yield f"data: {json.dumps(answer.chunk(None))}\n\n"
        if answer.job.stream_usage:
            yield f"data: {json.dumps(answer.frame(answer.chunk(None)['object'], [], usage=answer.usage()))}\n\n"
    except RuntimeError as error:
        yield f"data: {json.dumps({'error': {'message': str(error), 'type': 'server_error'}})}\n\n"
    yield "data: [DONE]\n\n"


def application(engine: Engine, name: str) -> Starlette:
    """The API of one engine; `name` is what clients call the model."""
    scheduler = Scheduler(lambda r: engine.stream(r.prompt, r.max_new_tokens, sampler=r.sampler))

    async def complete(http: HTTPRequest) -> Response:
        chat = http.url.path.endswith("/chat/completions")
        try:
            body: Any = await http.json()
            if not isinstance(body, dict):
                raise ValueError("the body must be a JSON object")
            if body.get("model", name) != name:
                return refusal(404, f"there is no model {body['model']!r} here, only {name!r}")
            answer = Answer(parse(body, engine, chat), name, chat, engine.tokenizer, scheduler)
        except ValueError as error:
            return refusal(400, str(error))
        except QueueFull as error:
            return refusal(429, str(error), "rate_limit_error")
        if answer.job.stream:
            return StreamingResponse(events(answer), media_type="text/event-stream")
        return await collect(answer, http)

    async def collect(answer: Answer, http: HTTPRequest) -> Response:
        text = ""
        try:
            async for piece in answer.pieces():
                text += piece
                if await http.is_disconnected():
                    scheduler.cancel(answer.request)
        except RuntimeError as error:
            return refusal(500, str(error), "server_error")
        return JSONResponse(answer.whole(text))

    async def models(_: HTTPRequest) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "local"}]})

    async def health(_: HTTPRequest) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [Route(f"/v1/{path}", complete, methods=["POST"]) for path in ("completions", "chat/completions")]
    return Starlette(routes=[*routes, Route("/v1/models", models), Route("/health", health)])
