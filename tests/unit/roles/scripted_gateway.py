"""A gateway that replies what a test wrote down: where the conversation matters, and not how it is carried."""

import json

from roles.completion import CompletionReply, CompletionRequest, Message, Price, ToolCall

Calls = tuple[tuple[str, dict[str, object]], ...]
ANSWER: Calls = (("answer", {"findings": []}),)


class Script:
    """A gateway (roles.completion.Gateway) that replies with the tool calls it was given, one reply a turn."""

    def __init__(self, *turns: Calls):
        self._turns = list(turns)
        self.requests: list[CompletionRequest] = []

    def complete(self, request: CompletionRequest) -> CompletionReply:
        self.requests.append(request)
        calls = self._turns.pop(0)
        made = tuple(ToolCall(id=f"c{n}", name=name, arguments=json.dumps(a)) for n, (name, a) in enumerate(calls))
        return CompletionReply(
            message=Message(role="assistant", tool_calls=made),
            finish_reason="tool_calls",
            prompt_tokens=10,
            completion_tokens=2,
            usd=0.0,
            seconds=0.1,
        )

    def price(self, model: str) -> Price:
        return Price(prompt=0.0, completion=0.0)

    @property
    def told(self) -> list[str]:
        """What the tools of the last turn but one replied."""
        messages = self.requests[-1].messages
        last = max(n for n, message in enumerate(messages) if message.role == "assistant")
        return [message.content for message in messages[last + 1 :]]


def query(**arguments: object) -> Calls:
    return (("query_knowledge", arguments),)
