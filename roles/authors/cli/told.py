"""What a command's output tells of itself: tokens, money, and whether it failed. What it doesn't tell is unknown.

The output is one JSON document or JSON lines; what stands between them is passed over. Every shape that is known is
looked for, whatever the command is called, so that a template of the user's profits too:

- Claude Code: a result with `total_cost_usd`, `usage` and `is_error`;
- Codex: `turn.completed` with `usage`, once a turn, and `turn.failed`;
- OpenCode: steps that finish with `cost` and `tokens`;
- Gemini CLI: `stats.models.NAME.tokens`, and `error`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Told:
    """None: not told."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None
    failure: str = ""
    """What the command itself says went wrong."""


def read_output(output: str) -> Told:
    """Never raises: the output may be anything."""
    found = [part for document in documents(output) for part in parts(document)]
    return Told(
        prompt_tokens=total(part.prompt_tokens for part in found),
        completion_tokens=total(part.completion_tokens for part in found),
        usd=total(part.usd for part in found),
        failure=next((part.failure for part in found if part.failure), ""),
    )


def documents(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text: the whole of it, or those of its lines."""
    for text in (output, *output.splitlines()):
        try:
            value = json.loads(text) if text.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
            if text is output:
                return


def parts(document: dict[str, Any]) -> Iterator[Told]:
    """What one JSON object tells."""
    kind = document.get("type")
    if kind == "result":
        usage = fields(document, "usage")
        cached = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        failure = str(document.get("result") or document.get("subtype")) if document.get("is_error") is True else ""
        yield Told(
            total(count(usage.get(name)) for name in cached),
            count(usage.get("output_tokens")),
            money(document.get("total_cost_usd")),
            failure,
        )
    elif kind == "turn.completed":
        usage = fields(document, "usage")
        yield Told(count(usage.get("input_tokens")), count(usage.get("output_tokens")))
    elif kind == "turn.failed":
        yield Told(failure=str(fields(document, "error").get("message") or "the turn failed"))
    elif kind == "step_finish":
        step = fields(document, "part")
        used = fields(step, "tokens")
        cache = fields(used, "cache")
        prompt = total(map(count, (used.get("input"), cache.get("read"), cache.get("write"))))
        yield Told(prompt, total(map(count, (used.get("output"), used.get("reasoning")))), money(step.get("cost")))
    elif "stats" in document:
        for model in fields(fields(document, "stats"), "models").values():
            used = fields(model, "tokens") if isinstance(model, dict) else {}
            yield Told(count(used.get("prompt")), total(map(count, (used.get("candidates"), used.get("thoughts")))))
        if error := fields(document, "error"):
            yield Told(failure=str(error.get("message") or "it says that it failed"))


def fields(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def money(value: object) -> float | None:
    """Neither an infinite nor a negative one."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else None


def total(values: Iterable[N | None]) -> N | None:
    """None of nothing known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
