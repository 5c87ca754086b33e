"""Single calls that a person asks for at the command line: `authors check`, and the words of `init`."""

import re
import tempfile
from pathlib import Path

from ckb.facts import Frozen
from roles.author import AuthorError
from roles.authors.calls import Calls, Tally
from roles.authors.cli.author import failure, run, variables_of
from roles.authors.cli.bill import Bill
from roles.authors.cli.files import ANSWER_FILE, BRIEF_FILE
from roles.authors.cli.shell import Shell
from roles.authors.cli.workplace import Workplace
from roles.authors.gateway import LitellmGateway
from roles.budget import Unlimited
from roles.completion import Gateway
from roles.redact import redact
from roles.render import render_prompt
from roles.replies import FormatError, json_text, parse, tool
from roles.settings import CliSettings, ComposerSettings, LitellmSettings, ReplaySettings, SingleAuthor
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
    usd: float | None = 0.0
    """None, as for the tokens: not known."""
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    seconds: float = 0.0
    """Latency of the one call."""


class CheckAnswer(Frozen):
    word: str
    sum: int


def check_author(
    settings: SingleAuthor, gateway: Gateway | None = None, home: Path = Path(), shell: Shell | None = None
) -> AuthorCheck:
    """One small priced call of a model, or one small run of a command; the other authors cost nothing and say what they
    have. `home` is where relative transcript paths start, `shell` where a command runs.

    Raises AuthorError for a model or a command that can't be used, TranscriptError for a transcript that can't be read.
    """
    match settings:
        case ComposerSettings():
            return AuthorCheck(author="composer", answer="embedded: no call, no cost")
        case ReplaySettings():
            records = read_transcript(home / settings.transcript)
            count = sum(isinstance(record, AnswerRecord) for record in records)
            return AuthorCheck(author="replay", answer=f"{count} recorded answers")
        case CliSettings():
            if shell is None:
                raise AuthorError(f"the command {settings.label!r} needs a shell to be checked in")
            return _check_command(settings, shell)
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
    prompt = render_prompt("check", {"schema": CheckAnswer.model_json_schema(), "folder": False})
    reply = Calls(settings.model_copy(update=small), gateway, Unlimited()).call(prompt, tools, tally)
    calls = reply.message.tool_calls
    try:
        text = calls[0].arguments if calls else json_text(reply.message.content)
        shape = _as_checked(text, "by tool call" if calls else "as plain JSON")
    except FormatError as error:
        shape = f"not in the format ({error}): it can't answer for a role"
    return AuthorCheck(
        author="litellm",
        model=settings.model,
        answer=shape,
        usd=tally.usd,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
        seconds=reply.seconds,
    )


def _check_command(settings: CliSettings, shell: Shell) -> AuthorCheck:
    """The same question, in a folder."""
    small = settings.model_copy(update={"timeout_s": min(settings.timeout_s, CHECK_TIMEOUT_S)})
    variables = variables_of(small)
    bill = Bill(small, Unlimited())
    asked = render_prompt("check", {"schema": CheckAnswer.model_json_schema(), "folder": True})
    said = "\n\n".join(message.content for message in asked)
    with tempfile.TemporaryDirectory(prefix="enginesmith-cli-", ignore_cleanup_errors=True) as place:
        workplace = Workplace(Path(place).resolve(), {BRIEF_FILE: f"{said}\n"}, (ANSWER_FILE,))
        finished, told = bill.run(lambda: run(small, shell, workplace.folder, variables))
        if broken := failure(small, finished, told):
            raise AuthorError(redact(broken, variables), bill.usage())
        usage = bill.usage()
        try:
            workplace.put_back()
            answer = workplace.taken(ANSWER_FILE)
        except FormatError as error:
            raise AuthorError(str(error), usage) from error
    shape = _as_checked(answer, "by file") if answer is not None else f"no {ANSWER_FILE}: it can't answer for a role"
    return AuthorCheck(
        author="cli",
        model=settings.label,
        answer=f"{shape}; {usage.isolation}",
        usd=usage.usd,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        seconds=usage.seconds,
    )


def _as_checked(text: str, how: str) -> str:
    """In words, how an author answered the question of a check."""
    try:
        answer = parse(CheckAnswer, text)
    except FormatError as error:
        return f"not in the format ({error}): it can't answer for a role"
    return how if answer.sum == 42 else f"{how}, but says 19 + 23 = {answer.sum}"


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
