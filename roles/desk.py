"""Where the replies of one conversation become calls of tools, until they make an answer."""

from collections import Counter
from dataclasses import dataclass

from roles.author import Answer, AnyBrief
from roles.briefs import EvaluatorBrief, ImplementerBrief, MayFile
from roles.completion import CompletionReply, Message, Tool, ToolCall
from roles.library import Knowledge, Library
from roles.replies import FormatError
from roles.table import ROLES
from roles.tools.files import Files
from roles.tools.filing import Filing
from roles.tools.handing_in import OneAnswer, Tree
from roles.tools.offer import Offers, OutOfScope
from roles.tools.profile import Profile
from roles.tools.public_tests import PublicTests, Tests


@dataclass(frozen=True)
class Means:
    """What a conversation can call upon beside its brief."""

    library: Library | None = None
    """What may be looked up; None: nothing."""
    tests: PublicTests | None = None
    test_runs: int = 0
    """Most runs of the public tests in one conversation."""


@dataclass(frozen=True)
class Turn:
    """What one reply led to."""

    messages: tuple[Message, ...] = ()
    """To be sent back to the model."""
    answer: Answer | None = None
    fault: str = ""
    """Why (part of) the reply was of no use; empty when all of it was."""
    outside: tuple[str, ...] = ()
    """Paths that it wanted to write and its role may not."""


class Desk:
    """The tools of one conversation about a brief, and what was done with them."""

    def __init__(self, brief: AnyBrief, means: Means):
        role = ROLES[brief.role]
        files = Files(getattr(brief, "files", {}), role.writes)
        self._end = Tree(brief, files) if isinstance(brief, ImplementerBrief) else OneAnswer(brief)
        self._tests: Tests | None = None
        made: list[Offers] = [self._end.offers]
        if role.writes or files.texts:
            made.append(files.offers)
        if means.library:
            made.append(Knowledge(brief, means.library).offers)
        if isinstance(brief, ImplementerBrief | EvaluatorBrief) and brief.shares:
            made.append(Profile(brief).offers)
        if isinstance(brief, ImplementerBrief) and isinstance(self._end, Tree) and means.tests and means.test_runs:
            self._tests = Tests(brief, self._end, means.tests, means.test_runs)
            made.append(self._tests.offers)
        self._filing = Filing(brief) if "file_issue" in brief.tools else None
        if self._filing:
            made.append(self._filing.offers)
        by_name = {offer.name: offer for offers in made for offer in offers}
        self._offers = {name: by_name[name] for name in role.tools if name in by_name}
        self.tools: tuple[Tool, ...] = tuple(offer.shown for offer in self._offers.values())
        self.calls: Counter[str] = Counter()
        """Tool -> how often it was called, refusals included; a name that is no tool counts as `unknown`."""
        self.outside: list[str] = []
        """Paths that were refused because the role may not write them."""

    @property
    def device_seconds(self) -> float:
        """For which the tests of this conversation held a device."""
        return self._tests.device_seconds if self._tests else 0.0

    def take(self, reply: CompletionReply) -> Turn:
        """Does what a reply calls for, or reads it as the answer of a model without tools."""
        if not reply.message.tool_calls:
            return self._plain(reply)
        results: list[Message] = []
        wrong: list[str] = []
        outside: list[str] = []
        answer: Answer | None = None
        for call in reply.message.tool_calls:
            try:
                done = self._do(call, bool(wrong))
                text = done if isinstance(done, str) else "handed in"
                answer = answer if isinstance(done, str) else done
            except FormatError as error:
                text = f"{call.name[:LONGEST_NAME]} was refused:\n{error}"
                wrong.append(text)
                outside += [error.path] if isinstance(error, OutOfScope) else []
            results.append(Message(role="tool", tool_call_id=call.id, content=text))
        if wrong and reply.finish_reason == "length":
            wrong.append(f"{cut_off(reply)}: write smaller pieces.")
            results[-1] = results[-1].model_copy(update={"content": f"{results[-1].content}\n{wrong[-1]}"})
        self.outside += outside
        return Turn(tuple(results), None if wrong else self._whole(answer), "\n".join(wrong), tuple(outside))

    def _plain(self, reply: CompletionReply) -> Turn:
        try:
            return Turn(answer=self._whole(self._end.plain(reply.message.content)))
        except FormatError as error:
            why = str(error)
            outside = (error.path,) if isinstance(error, OutOfScope) else ()
        if reply.finish_reason == "length":
            why += f"\n{cut_off(reply)}: answer in smaller pieces."
        self.outside += outside
        told = Message(role="user", content=f"Your reply can't be used:\n{why}")
        return Turn((told,), fault=why, outside=outside)

    def _whole(self, answer: Answer | None) -> Answer | None:
        """The answer with what was filed on the way to it."""
        if not (self._filing and isinstance(answer, MayFile)):
            return answer
        return answer.model_copy(update={"filed": (*self._filing.filed, *answer.filed)})

    def _do(self, call: ToolCall, something_failed: bool) -> str | Answer:
        offer = next((offer for name, offer in self._offers.items() if name == call.name), None)
        self.calls[call.name if offer else "unknown"] += 1
        if offer is None:
            raise FormatError(f"there is no such tool; there are {', '.join(self._offers)}")
        if offer.name in ("submit", "answer") and something_failed:
            raise FormatError("an earlier call of the same reply was refused: mend that first")
        done: str | Answer = offer.call(call.arguments)
        return done


LONGEST_NAME = 80
"""Characters of a tool's name, as the model wrote it, that are told back."""


def cut_off(reply: CompletionReply) -> str:
    return f"The reply was cut off after {reply.completion_tokens} tokens"
