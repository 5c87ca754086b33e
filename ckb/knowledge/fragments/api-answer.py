# ---
# contract: api-answer
# title: One request's text as it grows, and the JSON around it
# constants: [EOS_TOKENS]
# ---
import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from .scheduler import Request, Scheduler
from .engine import TextStream, Tokenizer


class Answer:
    """The answer to one job: its text piece by piece, then why it ended."""

    def __init__(self, job: Job, model: str, chat: bool, tokenizer: Tokenizer, scheduler: Scheduler):
        """Submit the job. Raises QueueFull if too many wait."""
        self.job, self.model, self.chat, self.scheduler = job, model, chat, scheduler
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created, self.count, self.finish_reason = int(time.time()), 0, "length"
        self.text = TextStream(tokenizer, job.stop)
        loop, self.queue = asyncio.get_running_loop(), asyncio.Queue[int | None]()
        put = self.queue.put_nowait
        self.request = Request(job.prompt, job.max_tokens, lambda t: loop.call_soon_threadsafe(put, t), job.sampler)
        scheduler.submit(self.request)

    async def pieces(self) -> AsyncIterator[str]:
        """Text as soon as it is certain. Leaving early cancels the request. Raises RuntimeError if it failed."""
        try:
            while (token := await self.queue.get()) is not None:
                self.count += 1
                piece = self.text.feed(token)
                if self.text.stopped or token in EOS_TOKENS:
                    self.finish_reason = "stop"
                if piece:
                    yield piece
                if self.text.stopped:
                    return
            if rest := self.text.end():
                yield rest
            if self.request.state == "failed":
                raise RuntimeError("the engine failed; its log says why")
        finally:
            self.scheduler.cancel(self.request)

    def usage(self) -> dict[str, int]:
        prompt = len(self.job.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": self.count, "total_tokens": prompt + self.count}

    def frame(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices, **more}

    def whole(self, text: str) -> dict[str, Any]:
        """The answer as one object."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason, "logprobs": None}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return self.frame("chat.completion" if self.chat else "text_completion", [choice], usage=self.usage())

    def chunk(self, text: str | None, first: bool = False) -> dict[str, Any]:
        """One piece of a streamed answer; the last one has no text and says why it ended."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason if text is None else None}
        delta = {} if text is None else {"content": text}
        choice |= {"delta": {"role": "assistant", **delta} if first else delta} if self.chat else {"text": text or ""}
        return self.frame("chat.completion.chunk" if self.chat else "text_completion", [choice])
