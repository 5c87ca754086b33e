"""Ralph: one issue, again and again, each time from the latest accepted tree and without a memory.

It asks no role: what to change is the implementer's affair. It is the line that the other policies have to beat.
"""

from collections.abc import Mapping

from ckb.criteria import TREE, Criterion
from roles.briefs import Hypothesis, PolicyTool, RoleName
from swarm.issues import performance_issue
from swarm.policies.base import Counsel, Known, Next

CHANGED = Criterion(part="activation", command=TREE, metric="changed_lines", comparison=">", value=0)


class Ralph:
    """It never stops by itself: rounds, the budget or the objective's target end it."""

    tools: Mapping[PolicyTool, tuple[RoleName, ...]] = {}

    def next(self, known: Known, counsel: Counsel) -> Next:
        idea = Hypothesis(
            title=f"Improve {known.metric} by one change of your own to this engine",
            change={},
            expected_effect=0.0,
            acceptance=f"{known.metric} improves in a paired benchmark, its interval clear of zero",
            falsification="the interval of the paired effect includes zero or lies below it, or a gate fails",
            criteria=(CHANGED,),
        )
        # the brief is the same in every round: without a seed of its own a deterministic author would answer the same
        issue = performance_issue(known.round, 1, idea, known.incumbent.commit, seed=known.round)
        return Next(issues=(issue,), memory=known.memory)
