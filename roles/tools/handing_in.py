"""How work ends: an answer, a tree, or a gap. What is wrong with it is told at once, and the work goes on."""

import ast
from collections.abc import Mapping

from pydantic import Field

from ckb.facts import Frozen
from ckb.records import Choice
from roles import briefs as b
from roles.author import Answer, AnyBrief
from roles.checks import faults
from roles.replies import FormatError, json_text, parse
from roles.table import ROLES
from roles.tools.files import Files
from roles.tools.offer import Offer, Offers


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


class OneAnswer:
    """For roles that answer in one record: the tool `answer`, or its arguments as plain JSON."""

    def __init__(self, brief: AnyBrief):
        self._brief = brief
        self._kind = ROLES[brief.role].answer
        self.offers: Offers = (Offer("answer", f"Hands in the {brief.role}'s answer.", self._kind, self._checked),)

    def plain(self, content: str) -> Answer:
        """The answer of a model that has no tools. Raises FormatError."""
        return self._checked(parse(self._kind, json_text(content)))

    def _checked(self, answer: Answer) -> Answer:
        if wrong := faults(self._brief, answer):
            raise FormatError("\n".join(wrong))
        return answer


class Tree:
    """For the implementer: the tree as it stands is the answer."""

    def __init__(self, brief: b.ImplementerBrief, files: Files):
        self._brief = brief
        self._files = files
        self.offers: Offers = (
            Offer("submit", "Hands the tree in for review and gates. Ends your work.", Submit, self.submit),
            Offer(
                "report_gap",
                "Says that a contract can't be fulfilled from the knowledge given. Ends your work.",
                ReportGap,
                self.gap,
            ),
        )

    def plain(self, content: str) -> b.ImplementerAnswer:
        """The answer of a model that has no tools, over the tree that it was given. Raises FormatError."""
        answer = parse(b.ImplementerAnswer, json_text(content))
        if answer.missing_contract is not None:
            return self.gap(ReportGap(contract=answer.missing_contract, why=answer.summary))
        self._files.replace(answer.files)
        return self.handed_in(answer.summary, answer.choices, answer.filed)

    def submit(self, arguments: Submit) -> b.ImplementerAnswer:
        """The tree as an answer. Raises FormatError with everything that is wrong with it."""
        return self.handed_in(arguments.summary, arguments.choices)

    def handed_in(
        self, summary: str, choices: Mapping[str, Choice], filed: tuple[b.Hypothesis, ...] = ()
    ) -> b.ImplementerAnswer:
        made = {**self._brief.choices, **self._brief.change, **choices}
        answer = b.ImplementerAnswer(files=dict(self._files.texts), choices=made, summary=summary, filed=filed)
        return self._checked(answer)

    def gap(self, arguments: ReportGap) -> b.ImplementerAnswer:
        answer = b.ImplementerAnswer(
            files=self._brief.files,
            choices=self._brief.choices,
            summary=arguments.why,
            missing_contract=arguments.contract,
        )
        return self._checked(answer)

    def _checked(self, answer: b.ImplementerAnswer) -> b.ImplementerAnswer:
        if wrong := [*faults(self._brief, answer), *syntax_errors(answer.files)]:
            raise FormatError("\n".join(wrong))
        return answer


def syntax_errors(files: Mapping[str, str]) -> list[str]:
    """A file that doesn't parse, told at once: waiting for a gate to say so would cost a worktree and a device."""
    wrong = []
    for path, text in files.items():
        try:
            ast.parse(text, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            wrong.append(f"{path} doesn't parse: {error}")
    return wrong
