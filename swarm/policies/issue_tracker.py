"""The issue tracker (VibeServe, section 3.2): a backlog of falsifiable hypotheses, several dispatched at once.

The evaluator proposes, the orchestrator orders, and every issue starts from what is on main.
"""

from collections.abc import Mapping, Sequence

from roles.briefs import Hypothesis, PolicyTool, RoleName
from swarm.events import Issue
from swarm.gains import MINIMUM_EFFECT
from swarm.issues import performance_issue
from swarm.policies.base import Counsel, Known, Next

MOST_FILED = 16
"""Filed ideas that the orchestrator is shown in a round; younger ones wait."""
NOTHING_LEFT = f"no open direction is worth a candidate (gains from {MINIMUM_EFFECT:.0%} count)"


class IssueTracker:
    """The default policy. What roles filed during their work stands before what the evaluator proposes."""

    tools: Mapping[PolicyTool, tuple[RoleName, ...]] = {"file_issue": ("implementer", "judge", "evaluator")}

    def next(self, known: Known, counsel: Counsel) -> Next:
        filed = known.backlog[:MOST_FILED]
        proposed = counsel.hypotheses()
        known_changes = [idea.change for idea in filed if idea.change]
        hypotheses = (*filed, *(idea for idea in proposed if idea.change not in known_changes))
        answer = counsel.order(hypotheses)
        issues = round_issues(known.round, hypotheses, answer.dispatch, known.incumbent.commit)
        reason = "" if issues else NOTHING_LEFT
        return Next(issues=tuple(issues), memory=answer.memory, stop=answer.stop, reason=reason)


def round_issues(number: int, hypotheses: Sequence[Hypothesis], dispatch: Sequence[int], base: str) -> list[Issue]:
    """The issues of one round: the dispatched hypotheses, each once, in the orchestrator's order."""
    order = [i for i in dict.fromkeys(dispatch) if 0 <= i < len(hypotheses)]
    return [performance_issue(number, place, hypotheses[i], base) for place, i in enumerate(order, 1)]
