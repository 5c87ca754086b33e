"""The one class that imports litellm, which takes 6 s and 200 MB: one process of a run holds it.

Only making one loads litellm; importing this module doesn't.
"""

import os
import queue
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from roles.completion import (
    CompletionError,
    CompletionReply,
    CompletionRequest,
    ErrorKind,
    Message,
    Price,
    ToolCall,
)
from roles.redact import redact

BY_NAME: dict[str, ErrorKind] = {
    "ConnectError": "unreachable",
    "ConnectTimeout": "unreachable",
    "ContextWindowExceededError": "context_window",
    "ContentPolicyViolationError": "refused",
    "Timeout": "timeout",
}
"""Exceptions, of litellm or of the client beneath it, that say more than their HTTP status."""
BY_STATUS: dict[int, ErrorKind] = {
    400: "bad_request",
    401: "auth",
    402: "payment",
    403: "auth",
    404: "not_found",
    413: "context_window",
    422: "bad_request",
    429: "rate_limit",
}
BY_WORDS: dict[str, ErrorKind] = {
    "insufficient_quota": "payment",
    "credit balance": "payment",
    "context_length_exceeded": "context_window",
}
"""What providers write into a 429 or a 400 that waiting or another try won't mend."""
LONGEST_MESSAGE = 600
NO_KEY = "none"
"""Sent to a server of the user's own: the client refuses to send no key at all."""


class LitellmGateway:
    """Makes completion calls through litellm. Safe to call from several threads at once."""

    def __init__(self) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it fetches a price table when imported
        os.environ["LITELLM_MODE"] = "PRODUCTION"  # otherwise it reads keys from a .env file of any parent folder
        import litellm
        import openai

        litellm.drop_params = True
        litellm.suppress_debug_info = True
        self._litellm: Any = litellm
        self._provider_error: type[Exception] = openai.OpenAIError

    def complete(self, request: CompletionRequest) -> CompletionReply:
        """One attempt, over at the deadline whatever the server does. Raises CompletionError."""
        box: queue.SimpleQueue[CompletionReply | Exception] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                box.put(self._attempt(request))
            except Exception as error:  # carried over to the caller's thread, where it is raised again
                box.put(error)

        # litellm's own timeout restarts with each byte; a daemon thread can be left behind at the deadline.
        threading.Thread(target=attempt, name="completion", daemon=True).start()
        try:
            outcome = box.get(timeout=request.timeout_s)
        except queue.Empty:
            raise CompletionError("timeout", f"no whole answer within timeout_s = {request.timeout_s:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def price(self, model: str) -> Price | None:
        """From litellm's own table; of tiered prices the highest."""
        try:
            entry = self._litellm.model_cost[self._litellm.get_model_info(model)["key"]]
        except self._litellm.exceptions.ModelNotMappedError:
            return None
        prompt, completion = highest(entry, "input_cost_per_token"), highest(entry, "output_cost_per_token")
        return None if prompt is None or completion is None else Price(prompt=prompt, completion=completion)

    def _attempt(self, request: CompletionRequest) -> CompletionReply:
        started = time.monotonic()
        try:
            response = self._litellm.completion(
                model=request.model,
                messages=[wire_message(m) for m in request.messages],
                tools=[{"type": "function", "function": t.model_dump()} for t in request.tools] or None,
                temperature=request.temperature,
                max_tokens=request.max_tokens,
                timeout=request.timeout_s,
                api_base=request.api_base,
                api_key=key_of(request),
                max_retries=0,  # retries are decided where the budget is kept
            )
        except self._provider_error as error:
            raise self._about_keys(typed(error), request) from None  # the chain would carry headers and keys along
        return self._reply(response, time.monotonic() - started)

    def _about_keys(self, error: CompletionError, request: CompletionRequest) -> CompletionError:
        """A key that isn't there fails in the client, before anything is sent, and litellm calls that a fault of the
        server: it would be tried again and again."""
        if error.kind != "server" or request.api_base or request.api_key_env or "api_key" not in error.message:
            return error
        missing = self._litellm.validate_environment(request.model)["missing_keys"]
        if not missing:
            return error
        return CompletionError("auth", f"the environment variable {' or '.join(missing)} is not set")

    def _reply(self, response: Any, seconds: float) -> CompletionReply:
        choice = response.choices[0]
        calls = tuple(
            ToolCall(id=call.id or f"call_{i}", name=call.function.name or "", arguments=call.function.arguments or "")
            for i, call in enumerate(choice.message.tool_calls or ())
        )
        return CompletionReply(
            message=Message(role="assistant", content=choice.message.content or "", tool_calls=calls),
            finish_reason=choice.finish_reason or "",
            prompt_tokens=response.usage.prompt_tokens or 0,
            completion_tokens=response.usage.completion_tokens or 0,
            usd=self._cost(response),
            seconds=seconds,
        )

    def _cost(self, response: Any) -> float | None:
        """litellm works the cost out itself when the reply comes in."""
        cost = response._hidden_params.get("response_cost")
        return None if cost is None else float(cost)


def typed(error: Exception) -> CompletionError:
    """What went wrong, without secrets."""
    message = redact(" ".join(str(error).split()))[:LONGEST_MESSAGE]
    kind = kind_of(error)
    if kind in ("rate_limit", "bad_request"):
        words = f"{message} {getattr(error, 'body', None)}"
        kind = next((known for sign, known in BY_WORDS.items() if sign in words), kind)
    headers = getattr(error, "litellm_response_headers", None) or {}
    return CompletionError(kind, message, retry_after(headers, time.time()))


def kind_of(error: Exception) -> ErrorKind:
    """litellm calls a lost connection an error 500: only what lies beneath it tells them apart."""
    chain: list[BaseException] = [error]
    while len(chain) < 10 and (below := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(below)
    names = [c.__name__ for link in chain for c in type(link).__mro__]
    for name, kind in BY_NAME.items():
        if name in names:
            return kind
    if kind_by_status := BY_STATUS.get(getattr(error, "status_code", 0)):
        return kind_by_status
    return "connection" if "TransportError" in names else "server"


def key_of(request: CompletionRequest) -> str | None:
    """The key to send; None leaves it to litellm, which knows the provider's usual environment variable."""
    if request.api_key_env is None:
        return None if request.api_base is None else NO_KEY
    if key := os.environ.get(request.api_key_env):
        return key
    raise CompletionError("auth", f"the environment variable {request.api_key_env} (api_key_env) is not set")


def wire_message(message: Message) -> dict[str, object]:
    """A message as the OpenAI format has it."""
    wire: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["content"] = message.content or None  # some providers refuse an empty text beside tool calls
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
    return wire


def highest(entry: Mapping[str, object], name: str) -> float | None:
    """The highest of a price and its tiers for long prompts; None when the table has no price."""
    tiers = [v for k, v in entry.items() if k == name or (k.startswith(f"{name}_above_") and k.endswith("_tokens"))]
    prices = [float(v) for v in tiers if isinstance(v, int | float)]
    return max(prices) if name in entry and prices else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, from a Retry-After header in seconds or as a date; None without a readable one."""
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None
