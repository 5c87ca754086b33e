"""From a model's reply to a role's typed answer: by tool calls, or as plain JSON where a model has no tools."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import Field, ValidationError

from ckb.facts import Frozen
from ckb.records import Choice
from roles import briefs as b
from roles.author import ANSWERS, Answer, AnyBrief
from roles.checks import ENGINE_MODULES, faults
from roles.completion import CompletionReply, Message, Tool, ToolCall

M = TypeVar("M", bound=Frozen)
FENCED = re.compile(r"^```(?:json)?\n(.*?)^```", re.DOTALL | re.MULTILINE)


class FormatError(Exception):
    """A reply that can't be used; the message tells the model what to mend."""


@dataclass(frozen=True)
class Turn:
    """What one reply led to."""

    messages: tuple[Message, ...] = ()
    """To be sent back to the model."""
    answer: Answer | None = None
    fault: str = ""
    """Why (part of) the reply was of no use; empty when all of it was."""


class Desk(Protocol):
    """Takes the replies of one conversation until they make an answer."""

    tools: tuple[Tool, ...]

    def take(self, reply: CompletionReply) -> Turn: ...


def desk_for(brief: AnyBrief) -> Desk:
    return ImplementerDesk(brief) if isinstance(brief, b.ImplementerBrief) else AnswerDesk(brief)


def tool(name: str, description: str, arguments: type[Frozen]) -> Tool:
    return Tool(name=name, description=description, parameters=arguments.model_json_schema())


def parse(kind: type[M], text: str) -> M:
    """A record from JSON text. Raises FormatError with every fault at once."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        lines = [f"- {'.'.join(map(str, e['loc'])) or 'the JSON'}: {e['msg']}" for e in error.errors()]
        raise FormatError("\n".join(lines)) from error


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


def refused(reply: CompletionReply, why: str) -> Turn:
    """The turn after a reply without usable tool calls."""
    if reply.finish_reason == "length":
        why += f"\nThe reply was cut off after {reply.completion_tokens} tokens: answer in smaller pieces."
    return Turn((Message(role="user", content=f"Your reply can't be used:\n{why}"),), fault=why)


class AnswerDesk:
    """One call of the tool `answer`, or its arguments as plain JSON."""

    def __init__(self, brief: AnyBrief):
        self._brief = brief
        self._kind = ANSWERS[brief.role]
        self.tools: tuple[Tool, ...] = (tool("answer", f"Hands in the {brief.role}'s answer.", self._kind),)

    def take(self, reply: CompletionReply) -> Turn:
        calls = reply.message.tool_calls
        try:
            if len(calls) > 1 or any(call.name != "answer" for call in calls):
                raise FormatError(f"call `answer` once, not {', '.join(call.name for call in calls)}")
            answer = parse(self._kind, calls[0].arguments if calls else json_text(reply.message.content))
            if wrong := faults(self._brief, answer):
                raise FormatError("\n".join(wrong))
        except FormatError as error:
            turn = refused(reply, str(error))
            replies = [Message(role="tool", tool_call_id=c.id, content=turn.messages[0].content) for c in calls]
            return Turn(tuple(replies), fault=turn.fault) if calls else turn
        return Turn(answer=answer)


class WriteFile(Frozen):
    path: str
    """One of the engine's files."""
    text: str
    """The whole new content."""


class EditFile(Frozen):
    path: str
    """One of the engine's files that exist already."""
    old: str = Field(min_length=1)
    """Text that occurs exactly once in the file."""
    new: str
    """What stands there afterwards."""


class Submit(Frozen):
    summary: str = Field(min_length=1)
    """One line: the design that was chosen."""
    choices: dict[str, Choice] = Field(default_factory=dict)
    """The value taken for each decision and parameter."""


class ReportGap(Frozen):
    contract: str
    """Id of the contract that can't be fulfilled from the knowledge given."""
    why: str
    """One line: what is missing."""


IMPLEMENTER_TOOLS = (
    tool("write_file", "Creates or replaces one file of the engine.", WriteFile),
    tool("edit_file", "Replaces one passage of a file.", EditFile),
    tool("submit", "Hands the tree in for review and gates. Ends your work.", Submit),
    tool("report_gap", "Says that a contract can't be fulfilled from the knowledge given. Ends your work.", ReportGap),
)


@dataclass
class ImplementerDesk:
    """The tree in memory, as the implementer writes it: nothing outside the engine's files can be touched."""

    brief: b.ImplementerBrief
    tools: tuple[Tool, ...] = IMPLEMENTER_TOOLS
    files: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.files = dict(self.brief.files)

    def take(self, reply: CompletionReply) -> Turn:
        if not reply.message.tool_calls:
            try:
                return Turn(answer=self._plain(parse(b.ImplementerAnswer, json_text(reply.message.content))))
            except FormatError as error:
                return refused(reply, str(error))
        results: list[Message] = []
        wrong: list[str] = []
        answer: Answer | None = None
        for call in reply.message.tool_calls:
            try:
                done = self._do(call, bool(wrong))
                answer = done if isinstance(done, b.ImplementerAnswer) else answer
                text = done if isinstance(done, str) else "handed in"
            except FormatError as error:
                text = f"{call.name} was refused:\n{error}"
                wrong.append(text)
            results.append(Message(role="tool", tool_call_id=call.id, content=text))
        if wrong and reply.finish_reason == "length":
            wrong.append(f"The reply was cut off after {reply.completion_tokens} tokens: write smaller pieces.")
            results[-1] = results[-1].model_copy(update={"content": f"{results[-1].content}\n{wrong[-1]}"})
        return Turn(tuple(results), answer=None if wrong else answer, fault="\n".join(wrong))

    def _do(self, call: ToolCall, something_failed: bool) -> str | b.ImplementerAnswer:
        does: dict[str, Callable[[str], str | b.ImplementerAnswer]] = {
            "write_file": lambda text: self._write(parse(WriteFile, text)),
            "edit_file": lambda text: self._edit(parse(EditFile, text)),
            "submit": lambda text: self._submit(parse(Submit, text)),
            "report_gap": lambda text: self._gap(parse(ReportGap, text)),
        }
        if call.name not in does:
            raise FormatError(f"there is no such tool; there are {', '.join(does)}")
        if call.name == "submit" and something_failed:
            raise FormatError("an earlier call of the same reply was refused: mend that first")
        return does[call.name](call.arguments)

    def _write(self, arguments: WriteFile) -> str:
        if arguments.path not in ENGINE_MODULES:
            raise FormatError(f"{arguments.path!r} is none of the engine's files: {', '.join(ENGINE_MODULES)}")
        self.files[arguments.path] = arguments.text
        return f"wrote {arguments.path}, {len(arguments.text.splitlines())} lines"

    def _edit(self, arguments: EditFile) -> str:
        if arguments.path not in self.files:
            raise FormatError(f"the tree has no {arguments.path!r}; it has {', '.join(self.files) or 'no file yet'}")
        count = self.files[arguments.path].count(arguments.old)
        if count != 1:
            raise FormatError(f"`old` occurs {count} times in {arguments.path}: it must occur exactly once")
        self.files[arguments.path] = self.files[arguments.path].replace(arguments.old, arguments.new)
        return f"edited {arguments.path}"

    def _plain(self, answer: b.ImplementerAnswer) -> b.ImplementerAnswer:
        if answer.missing_contract is not None:
            return self._gap(ReportGap(contract=answer.missing_contract, why=answer.summary))
        self.files |= answer.files
        return self._submit(Submit(summary=answer.summary, choices=answer.choices))

    def _submit(self, arguments: Submit) -> b.ImplementerAnswer:
        choices = {**self.brief.choices, **self.brief.change, **arguments.choices}
        return self._checked(b.ImplementerAnswer(files=self.files, choices=choices, summary=arguments.summary))

    def _gap(self, arguments: ReportGap) -> b.ImplementerAnswer:
        answer = b.ImplementerAnswer(
            files=self.brief.files,
            choices=self.brief.choices,
            summary=arguments.why,
            missing_contract=arguments.contract,
        )
        return self._checked(answer)

    def _checked(self, answer: b.ImplementerAnswer) -> b.ImplementerAnswer:
        if wrong := [*faults(self.brief, answer), *_syntax_errors(answer.files)]:
            raise FormatError("\n".join(wrong))
        return answer


def _syntax_errors(files: dict[str, str]) -> list[str]:
    """A file that doesn't parse, told at once: waiting for a gate to say so would cost a worktree and a device."""
    wrong = []
    for path, text in files.items():
        try:
            ast.parse(text, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            wrong.append(f"{path} doesn't parse: {error}")
    return wrong
