# ---
# contract: api-request
# title: An OpenAI request body, checked
# constants: [MAX_CONTEXT]
# ---
from dataclasses import dataclass
from typing import Any

from .engine import Engine
from .sampler import Sampler

NEUTRAL = {"n": 1, "best_of": 1, "echo": False, "logprobs": False, "suffix": "", "tools": [], "logit_bias": {}}
"""Fields that this server does not offer, with the one value that asks for nothing."""


@dataclass(frozen=True)
class Job:
    """What one request asks for."""

    prompt: list[int]
    max_tokens: int
    stop: tuple[str, ...]
    sampler: Sampler
    stream: bool
    stream_usage: bool


def texts(value: Any) -> tuple[str, ...]:
    """`stop`: nothing, a string or a list of strings."""
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) and text for text in values):
        raise ValueError(f"stop must be a string or a list of strings, not {value!r}")
    return tuple(values)


def conversation(messages: Any) -> list[dict[str, Any]]:
    """`messages`, each content as one string."""
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    plain = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise ValueError(f"a message needs a role and text content, not {message!r}")
        plain.append({**message, "content": content})
    return plain


def tokens(prompt: Any, engine: Engine) -> list[int]:
    """`prompt`: a text or its token ids."""
    if isinstance(prompt, str):
        return engine.tokenizer.encode(prompt)
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise ValueError("prompt must be one string or one list of token ids")
    return prompt


def parse(body: dict[str, Any], engine: Engine, chat: bool) -> Job:
    """The job that a request body describes. Raises ValueError for what this engine can't do."""
    for name, nothing in NEUTRAL.items():
        if body.get(name) not in (None, nothing):
            raise ValueError(f"{name} = {body[name]!r} is not supported")
    prompt = engine.tokenizer.chat(conversation(body.get("messages"))) if chat else tokens(body.get("prompt"), engine)
    limit = body.get("max_completion_tokens") if chat else None
    limit = body.get("max_tokens") if limit is None else limit
    limit = (max(1, MAX_CONTEXT - len(prompt)) if chat else 16) if limit is None else limit
    if type(limit) is not int or limit < 1:
        raise ValueError(f"max_tokens must be a positive integer, not {limit!r}")
    engine.check(prompt, limit)
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Job(prompt, limit, texts(body.get("stop")), Sampler.from_request(body), bool(body.get("stream")), usage)
