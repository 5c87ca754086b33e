"""What of a model's replies goes back to it with the next turn.

Providers charge the whole conversation anew at every turn, and some of them refuse one in which a tool call's arguments
are no JSON object: a reply that was of no use must neither cost for ever nor end the work.
"""

import json

from roles.completion import Message, ToolCall

LONGEST_USELESS = 8_000
"""Characters of a refused reply that its author is shown again."""


def said_again(message: Message, *, useless: bool) -> Message:
    """A reply as its author reads it in the next turn. `useless`: whether (part of) it was refused."""
    calls = tuple(_readable(call) for call in message.tool_calls)
    content = _shortened(message.content) if useless else message.content
    return message.model_copy(update={"content": content, "tool_calls": calls})


def _readable(call: ToolCall) -> ToolCall:
    try:
        if isinstance(json.loads(call.arguments), dict):
            return call
    except (ValueError, RecursionError):
        pass
    return call.model_copy(update={"arguments": json.dumps({"not_json": _shortened(call.arguments)})})


def _shortened(text: str) -> str:
    left_out = len(text) - LONGEST_USELESS
    if left_out <= 0:
        return text
    half = LONGEST_USELESS // 2
    return f"{text[:half]}\n[{left_out:,} characters left out]\n{text[-half:]}"
