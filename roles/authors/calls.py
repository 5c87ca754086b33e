"""Calls of one model within a budget: price, reservation, retries, and what it all came to."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from roles.author import AuthorError, Usage
from roles.budget import Budget
from roles.completion import (
    CompletionError,
    CompletionReply,
    CompletionRequest,
    ErrorKind,
    Gateway,
    Message,
    Price,
    Tool,
)
from roles.settings import LitellmSettings

ABORT: dict[ErrorKind, str] = {
    "auth": "Set the provider's key in the environment (or api_key_env).",
    "payment": "The account has no credit left.",
    "not_found": "Check `model` and `api_base`.",
    "context_window": "The prompt is too long for this model: choose one with a larger context.",
    "bad_request": "The provider refuses the request as it is; check `model`, `temperature` and `max_tokens`.",
    "refused": "The provider's content filter refused.",
}
"""Errors that no repetition mends, each with what does."""
MAYBE_BILLED: tuple[ErrorKind, ...] = ("timeout", "connection")
"""Errors after which the provider may have done the work all the same: they are settled at the reservation."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 600.0
"""A provider that asks for a longer pause ends the work: the run's clock would go on."""
PROVIDER_OVERHEAD_TOKENS = 1024
"""What providers add to a prompt of their own, a tool preamble for example."""


@dataclass
class Tally:
    """What the calls of one answer came to."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def add(self, prompt_tokens: int, completion_tokens: int, usd: float) -> None:
        self.calls += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.usd += usd

    def usage(self, model: str, **done: Any) -> Usage:
        """`done`: fields of a Usage that say what was done beside calling the model."""
        return Usage(
            author="litellm",
            model=model,
            calls=self.calls,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            usd=self.usd,
            seconds=time.monotonic() - self.started,
            **done,
        )


class Calls:
    """Makes the calls of one author."""

    def __init__(
        self,
        settings: LitellmSettings,
        gateway: Gateway,
        budget: Budget,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.settings = settings
        self._gateway = gateway
        self._budget = budget
        self._sleep = sleep
        self._price: Price | None = None

    def call(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], tally: Tally) -> CompletionReply:
        """One reply, retried where that can help. Raises AuthorError, and whatever the budget raises."""
        s = self.settings
        request = CompletionRequest(
            model=s.model,
            messages=messages,
            tools=tools,
            temperature=s.temperature,
            max_tokens=s.max_tokens,
            timeout_s=s.timeout_s,
            api_base=s.api_base,
            api_key_env=s.api_key_env,
        )
        attempt = 0
        while True:
            try:
                return self._attempt(request, tally)
            except CompletionError as error:
                self._sleep(self._wait(error, attempt, tally))
                attempt += 1

    def _attempt(self, request: CompletionRequest, tally: Tally) -> CompletionReply:
        """Reserve, send, settle. A cut call and one without a usage report are settled at the reservation."""
        price = self._known_price()
        most = (request.prompt_bytes + PROVIDER_OVERHEAD_TOKENS, request.max_tokens)
        worst = cost(price, *most)
        reservation = self._budget.reserve(worst, sum(most))
        try:
            reply = self._gateway.complete(request)
        except CompletionError as error:
            spent = (*most, worst) if error.kind in MAYBE_BILLED else (0, 0, 0.0)
            self._settle(reservation, *spent, tally)
            raise
        if reply.prompt_tokens == 0:
            self._settle(reservation, *most, worst, tally)
            return reply
        own_price = self.settings.usd_per_million_prompt is not None
        usd = cost(price, reply.prompt_tokens, reply.completion_tokens) if own_price or reply.usd is None else reply.usd
        self._settle(reservation, reply.prompt_tokens, reply.completion_tokens, usd, tally)
        return reply

    def _settle(self, reservation: str, prompt: int, completion: int, usd: float, tally: Tally) -> None:
        self._budget.settle(reservation, usd, prompt + completion)
        tally.add(prompt, completion, usd)

    def _known_price(self) -> Price:
        """The settings' price, else litellm's. Raises AuthorError for a model that nobody has a price for."""
        s = self.settings
        if self._price is None and s.usd_per_million_prompt is not None and s.usd_per_million_completion is not None:
            self._price = Price(prompt=s.usd_per_million_prompt / 1e6, completion=s.usd_per_million_completion / 1e6)
        self._price = self._price or self._gateway.price(s.model)
        if self._price is None:
            raise AuthorError(
                f"no price is known for the model {s.model!r}, so no budget can hold. Give usd_per_million_prompt and "
                "usd_per_million_completion with this author (0 for a server of your own)."
            )
        return self._price

    def _wait(self, error: CompletionError, attempt: int, tally: Tally) -> float:
        """Seconds before the next attempt. Raises AuthorError when there shall be none."""
        model, usage = self.settings.model, tally.usage(self.settings.model)
        if error.kind in ABORT:
            raise AuthorError(f"the model {model!r} can't be used: {error}. {ABORT[error.kind]}", usage) from error
        if attempt >= self.settings.retries:
            raise AuthorError(
                f"the model {model!r} gave no answer in {attempt + 1} attempts (retries: {self.settings.retries}), "
                f"last: {error}",
                usage,
            ) from error
        if error.retry_after is not None:
            if error.retry_after > LONGEST_RETRY_AFTER_S:
                raise AuthorError(
                    f"the provider of {model!r} asks to wait {error.retry_after:.0f} s, at most "
                    f"{LONGEST_RETRY_AFTER_S:.0f} s are waited: {error}",
                    usage,
                ) from error
            return error.retry_after
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**attempt) * random.uniform(0.5, 1.0)


def cost(price: Price, prompt_tokens: int, completion_tokens: int) -> float:
    """USD."""
    return price.prompt * prompt_tokens + price.completion * completion_tokens
