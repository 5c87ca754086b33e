"""Single calls that a person asks for at the command line: `authors check`, and the words of `init`."""

import re
from pathlib import Path

from ckb.facts import Frozen
from roles.author import AuthorError
from roles.authors.calls import Calls, Tally
from roles.authors.gateway import LitellmGateway
from roles.budget import Unlimited
from roles.completion import Gateway
from roles.render import render_prompt
from roles.replies import FormatError, json_text, parse, tool
from roles.settings import AuthorConfig, ComposerSettings, LitellmSettings, ReplaySettings
from roles.transcript import AnswerRecord, read_transcript

CHECK_TOKENS = 2048
"""Enough for a model that thinks before its answer of ten tokens."""
CHECK_TIMEOUT_S = 60.0
YAML_BLOCK = re.compile(r"^(`{3,})(?:ya?ml)?\n(.*?)^\1", re.DOTALL | re.MULTILINE)


class AuthorCheck(Frozen):
    """What an author turned out to be able to do."""

    author: str
    model: str = ""
    answer: str
    """How it answers, in words."""
    usd: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Latency of the one call."""


class CheckAnswer(Frozen):
    word: str
    sum: int


def check_author(settings: AuthorConfig, gateway: Gateway | None = None, home: Path = Path()) -> AuthorCheck:
    """One small priced call of a model; the other authors cost nothing and say what they have. `home` is where
    relative transcript paths start.

    Raises AuthorError for a model that can't be used, TranscriptError for a transcript that can't be read.
    """
    match settings:
        case ComposerSettings():
            return AuthorCheck(author="composer", answer="embedded: no call, no cost")
        case ReplaySettings():
            records = read_transcript(home / settings.transcript)
            count = sum(isinstance(record, AnswerRecord) for record in records)
            return AuthorCheck(author="replay", answer=f"{count} recorded answers")
        case LitellmSettings():
            return _check_model(settings, gateway or LitellmGateway())


def _check_model(settings: LitellmSettings, gateway: Gateway) -> AuthorCheck:
    small = {
        "max_tokens": min(settings.max_tokens, CHECK_TOKENS),
        "timeout_s": min(settings.timeout_s, CHECK_TIMEOUT_S),
        "retries": 0,
    }
    tally = Tally()
    tools = (tool("answer", "Hands in the answer.", CheckAnswer),)
    prompt = render_prompt("check", {"schema": CheckAnswer.model_json_schema()})
    reply = Calls(settings.model_copy(update=small), gateway, Unlimited()).call(prompt, tools, tally)
    calls = reply.message.tool_calls
    try:
        answer = parse(CheckAnswer, calls[0].arguments if calls else json_text(reply.message.content))
        right = answer.sum == 42
        shape = f"{'by tool call' if calls else 'as plain JSON'}{'' if right else f', but says 19 + 23 = {answer.sum}'}"
    except FormatError as error:
        shape = f"not in the format ({error}): this model can't answer for a role"
    return AuthorCheck(
        author="litellm",
        model=settings.model,
        answer=shape,
        usd=tally.usd,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
        seconds=reply.seconds,
    )


def complete_target(words: str, draft: str, settings: LitellmSettings, gateway: Gateway | None = None) -> str:
    """The Target's YAML after a model has read the user's words. The caller validates it. Raises AuthorError."""
    calls = Calls(settings, gateway or LitellmGateway(), Unlimited())
    tally = Tally()
    reply = calls.call(render_prompt("target", {"words": words, "draft": draft}), (), tally)
    block = YAML_BLOCK.search(reply.message.content)
    if block is None:
        raise AuthorError(
            f"the model {settings.model!r} answered without a fenced yaml block; write the Target without words and "
            "edit it",
            tally.usage(settings.model),
        )
    return block.group(2)
