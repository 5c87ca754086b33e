"""One call of a language model, as data: what goes to the gateway and what comes back."""

from typing import Literal, Protocol

from pydantic import Field, JsonValue

from ckb.facts import Frozen


class ToolCall(Frozen):
    """A tool call as the model wrote it: nothing about it has been checked."""

    id: str
    name: str
    arguments: str
    """JSON text, perhaps malformed."""


class Message(Frozen):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    tool_call_id: str = ""
    """Of a tool's message: the call that it answers."""


class Tool(Frozen):
    """A tool that a model may call."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    """JSON schema of the arguments."""


class CompletionRequest(Frozen):
    model: str
    messages: tuple[Message, ...] = Field(min_length=1)
    tools: tuple[Tool, ...] = ()
    temperature: float
    max_tokens: int
    timeout_s: float
    api_base: str | None = None
    api_key_env: str | None = None
    """Name of the environment variable, in the gateway's process, that holds the key."""

    @property
    def prompt_bytes(self) -> int:
        """Size of the prompt. No tokenizer makes more tokens than bytes."""
        return sum(len(part.model_dump_json().encode()) for part in (*self.messages, *self.tools))


class CompletionReply(Frozen):
    message: Message
    finish_reason: str
    """stop, tool_calls, length, content_filter."""
    prompt_tokens: int
    """0 when the provider reported no usage."""
    completion_tokens: int
    usd: float | None
    """What litellm's price table makes of it, cached tokens and tiers included; None for a model of unknown price."""
    seconds: float


class Price(Frozen):
    """Most that one token can cost, USD."""

    prompt: float
    completion: float


ErrorKind = Literal[
    "auth",
    "payment",
    "not_found",
    "context_window",
    "bad_request",
    "refused",
    "rate_limit",
    "unreachable",
    "timeout",
    "connection",
    "server",
]
"""unreachable: no connection was made; connection: it was lost on the way; server: its fault, any 5xx."""


class CompletionError(Exception):
    """A call that got no answer. The message holds no secret."""

    def __init__(self, kind: ErrorKind, message: str, retry_after: float | None = None):
        super().__init__(kind, message, retry_after)  # all of them, so that it survives pickling between processes
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        """Seconds that the provider asked to wait."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Gateway(Protocol):
    """The one place that talks to providers; one process of a run imports what that takes."""

    def complete(self, request: CompletionRequest) -> CompletionReply:
        """Makes one attempt. Raises CompletionError."""
        ...

    def price(self, model: str) -> Price | None:
        """Most that a token of the model costs, or None if nobody knows."""
        ...
