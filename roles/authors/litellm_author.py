"""A language model as an author: a short conversation that ends in a typed answer."""

import time
from collections.abc import Callable

from roles.author import Answer, AnyBrief, AuthorError, NoAnswer, Usage
from roles.authors.calls import Calls, Tally
from roles.authors.conversation import said_again
from roles.budget import Budget
from roles.completion import CompletionReply, Gateway, Message
from roles.desk import Desk, Means, Turn
from roles.library import guides_for
from roles.render import render
from roles.settings import LitellmSettings
from roles.transcript import ExchangeRecord, Transcript, brief_hash

MOST_FAULTS = 3
"""Replies in a row that are of no use; a model that fails three times fails the fourth time too."""


class LitellmAuthor:
    """Answers any role. Each answer is a fresh conversation: what passes between roles are files and records."""

    name = "litellm"

    def __init__(
        self,
        settings: LitellmSettings,
        gateway: Gateway,
        budget: Budget,
        transcript: Transcript | None = None,
        sleep: Callable[[float], None] = time.sleep,
        means: Means | None = None,
    ):
        """`means`: what the model can call upon besides its brief; None: nothing."""
        self._settings = settings
        self._calls = Calls(settings, gateway, budget, sleep)
        self._transcript = transcript
        self._means = means or Means()

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        """Raises AuthorError when the model can't be reached, NoAnswer when it breaks the format or never finishes."""
        desk, tally = Desk(brief, self._means), Tally()
        try:
            answer = self._converse(brief, desk, tally)
        except AuthorError as error:
            if tally.calls:
                error.usage = self._usage(desk, tally)
            raise
        return answer, self._usage(desk, tally)

    def _usage(self, desk: Desk, tally: Tally) -> Usage:
        did = {"tools": dict(desk.calls), "outside": tuple(desk.outside), "device_seconds": desk.device_seconds}
        return tally.usage(self._settings.model, **did)

    def _converse(self, brief: AnyBrief, desk: Desk, tally: Tally) -> Answer:
        library = self._means.library
        sent = render(brief, guides_for(library, brief) if library else ())
        messages: tuple[Message, ...] = ()
        in_a_row = 0
        for number in range(self._settings.max_turns):
            messages += sent
            reply = self._calls.call(messages, desk.tools, tally)
            turn = desk.take(reply)
            self._record(brief, number, sent, reply, turn)
            if turn.answer is not None:
                return turn.answer
            in_a_row = in_a_row + 1 if turn.fault else 0
            if in_a_row == MOST_FAULTS:
                raise NoAnswer(
                    f"the model {self._settings.model!r} broke the format {MOST_FAULTS} times in a row as "
                    f"{brief.role}, last: {turn.fault}"
                )
            messages, sent = (*messages, said_again(reply.message, useless=bool(turn.fault))), turn.messages
        raise NoAnswer(
            f"the model {self._settings.model!r} gave no answer as {brief.role} in {self._settings.max_turns} turns "
            "(max_turns)"
        )

    def _record(
        self, brief: AnyBrief, number: int, sent: tuple[Message, ...], reply: CompletionReply, turn: Turn
    ) -> None:
        if self._transcript is None:
            return
        self._transcript.append(
            ExchangeRecord(
                role=brief.role,
                brief=brief_hash(brief),
                turn=number,
                sent=sent,
                reply=reply.message,
                fault=turn.fault,
                outside=turn.outside,
                at=time.time(),
            )
        )
