"""Which rule answers which role."""

import time

from roles import briefs as b
from roles.author import Answer, AnyBrief, AuthorError, Usage
from roles.authors.composer.analyst import analyse
from roles.authors.composer.consolidator import consolidate
from roles.authors.composer.evaluator import evaluate
from roles.authors.composer.implementer import implement
from roles.authors.composer.judge import judge
from roles.authors.composer.orchestrator import orchestrate
from roles.authors.composer.reviewer import review


class Composer:
    """Answers every role by rule; the same brief has the same answer."""

    name = "composer"

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        """Raises AuthorError for a brief that no rule answers."""
        started = time.perf_counter()
        answer = self._answer(brief)
        return answer, Usage(author=self.name, seconds=time.perf_counter() - started)

    def _answer(self, brief: AnyBrief) -> Answer:
        match brief:
            case b.ImplementerBrief():
                return implement(brief)
            case b.ReviewerBrief():
                return review(brief)
            case b.JudgeBrief():
                return judge(brief)
            case b.EvaluatorBrief():
                return evaluate(brief)
            case b.OrchestratorBrief():
                return orchestrate(brief)
            case b.AnalystBrief():
                return analyse(brief)
            case b.ConsolidatorBrief():
                return consolidate(brief)
        raise AuthorError(f"the composer has no rule for the role {brief!r:.80}")
