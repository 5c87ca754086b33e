"""Filing an idea for a later round, during other work (VibeServe, section 3.2)."""

from roles.author import AnyBrief
from roles.briefs import Hypothesis
from roles.checks import MOST_FILED, filing_faults
from roles.replies import FormatError
from roles.tools.offer import Offer, Offers

DESCRIPTION = (
    "Files an idea about the whole engine for a later round: something to try that is not your own issue. It ends "
    "nothing; the orchestrator decides whether it is tried."
)


class Filing:
    """The ideas that one conversation filed."""

    def __init__(self, brief: AnyBrief):
        self._brief = brief
        self.filed: list[Hypothesis] = []
        self.offers: Offers = (Offer("file_issue", DESCRIPTION, Hypothesis, self._file),)

    def _file(self, idea: Hypothesis) -> str:
        wrong = filing_faults(self._brief, idea)
        if len(self.filed) == MOST_FILED:
            wrong.append(f"you filed {MOST_FILED} already, more are not taken")
        if any(idea.change == other.change and idea.title == other.title for other in self.filed):
            wrong.append("you filed that already")
        if wrong:
            raise FormatError("\n".join(wrong))
        self.filed.append(idea)
        return f"filed, {len(self.filed)} in all; go on with your own work"
