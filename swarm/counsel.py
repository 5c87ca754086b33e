"""What a policy may ask of the loop (`swarm.policies.base.Counsel`): the evaluator, the orchestrator, and the space."""

from collections.abc import Sequence

from ckb.errors import KnowledgeGap
from ckb.records import STAGES, Choice
from ckb.space import Unsatisfiable, complete
from gpu_actors.benchmark_jobs import Profile
from roles.briefs import EvaluatorAnswer, EvaluatorBrief, Hypothesis, OrchestratorAnswer, OrchestratorBrief
from swarm import events as e
from swarm import shown
from swarm.context import Context
from swarm.crew import Crew
from swarm.gains import MINIMUM_EFFECT
from swarm.inner_loop import InnerLoop
from swarm.policies import tools_of
from swarm.policies.base import Assignment


class LoopCounsel:
    """Answers about the tree on main. Each call of a role is paid for and journalled."""

    def __init__(self, context: Context, crew: Crew, inner: InnerLoop, number: int):
        """`number`: the round that is to be decided."""
        self.context = context
        self.crew = crew
        self.inner = inner
        self.number = number

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The evaluator's, about the incumbent, which is profiled first if it wasn't yet."""
        profile = self._profile()
        plan, state = self.context.plan, self.context.state
        brief = EvaluatorBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=self.context.choices,
            metric=plan.metric,
            current=self._current(profile),
            bound=plan.bound,
            shares=profile.shares,
            step_ms=None if profile.failure else profile.step_ms,
            space=plan.space,
            affects=plan.affects,
            tried=tuple(state.tried),
            known=self.context.experience + shown.lessons(self.context),
            wanted=self.context.target.search.parallel,
            memory=state.memory,
            tools=tools_of(self.context.target.search.policy, "evaluator"),
        )
        return self.inner.ask(brief, EvaluatorAnswer, None, None)[0].hypotheses

    def order(self, hypotheses: Sequence[Hypothesis]) -> OrchestratorAnswer:
        filed = [one.hypothesis for one in self.context.state.filed]
        brief = OrchestratorBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=self.context.choices,
            hypotheses=tuple(hypotheses),
            parallel=self.context.target.search.parallel,
            minimum=MINIMUM_EFFECT,
            memory=self.context.state.memory,
            last_round=shown.outcomes(self.context, self.number - 1),
            filed=tuple(i for i, idea in enumerate(hypotheses) if idea in filed),
        )
        return self.inner.ask(brief, OrchestratorAnswer, None, None)[0]

    def completed(self, change: Assignment, start: Assignment) -> dict[str, Choice] | None:
        contracts = self.context.contracts(STAGES)
        fragments = self.context.fragments(contracts)
        try:
            return complete(change, contracts, fragments, self.context.facts, prefer=start)
        except (Unsatisfiable, KnowledgeGap):
            return None

    def _profile(self) -> Profile:
        incumbent = self.context.state.merges[-1]
        if incumbent.tree not in self.context.state.profiles:
            self.context.safe_point()
            self.context.note("profile of the incumbent")
            profile = self.crew.profile(self.context.engine_job(incumbent.commit, incumbent.tree))
            self.context.journal.append(e.DeviceUsed(what="profile", seconds=profile.device_seconds))
            self.context.journal.append(e.ProfileMade(tree=incumbent.tree, profile=profile))
        return self.context.state.profiles[incumbent.tree]

    def _current(self, profile: Profile) -> float | None:
        """The incumbent's objective, as authors may see it: of their part of its benchmark, or the profiled step where
        that is the same."""
        if self.context.plan.metric.startswith("tpot") and not profile.failure:
            return profile.step_ms
        return shown.incumbent_objective(self.context)
