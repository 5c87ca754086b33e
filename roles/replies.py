"""From a model's text to typed records: tool arguments, or JSON somewhere in a reply."""

import json
import re
from typing import TypeVar

from pydantic import ValidationError

from ckb.facts import Frozen
from roles.completion import Tool

M = TypeVar("M", bound=Frozen)
FENCED = re.compile(r"^```(?:json)?\n(.*?)^```", re.DOTALL | re.MULTILINE)


MOST_LINES, LONGEST_LINE = 20, 300
"""Faults of one record that are told, and the characters of each: names in it may be anything."""


class FormatError(Exception):
    """A reply that can't be used; the message tells the model what to mend."""


def tool(name: str, description: str, arguments: type[Frozen]) -> Tool:
    return Tool(name=name, description=description, parameters=arguments.model_json_schema())


def parse(kind: type[M], text: str) -> M:
    """A record from JSON text. Raises FormatError with its faults, up to a number that can be read."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        found = error.errors()
        lines = [f"- {'.'.join(map(str, e['loc'])) or 'the JSON'}: {e['msg']}"[:LONGEST_LINE] for e in found]
        more = [f"- and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        raise FormatError("\n".join([*lines[:MOST_LINES], *more])) from error


def json_text(content: str) -> str:
    """The JSON object in a text: all of it, a fenced block, or what stands between the outermost braces."""
    first, last = content.find("{"), content.rfind("}")
    if first < 0 or last < first:
        raise FormatError("the reply holds neither a tool call nor a JSON object")
    outermost = content[first : last + 1]
    for candidate in (content, *FENCED.findall(content)):
        try:
            json.loads(candidate)
        except json.JSONDecodeError:
            continue
        return str(candidate)
    return outermost
