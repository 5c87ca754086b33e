"""The outer loop (VibeServe, section 3.2): rounds of hypotheses about an accepted engine, until it is fast enough or
nothing is worth a candidate.

As in the inner loop each step is looked up in the journal first and is skipped if it was done.
"""

from gpu_actors.benchmark_jobs import Arm, Profile
from roles.briefs import EvaluatorAnswer, EvaluatorBrief, OrchestratorAnswer, OrchestratorBrief
from swarm import events as e
from swarm import shown
from swarm.budget import BudgetExceeded
from swarm.context import Context
from swarm.crew import Crew
from swarm.inner_loop import STAGE_LEVELS, InnerLoop
from swarm.measure import objective_of
from swarm.merge_queue import Measure, MergeQueue
from swarm.policies import issue_tracker as policy
from swarm.state import Candidate


class OuterLoop:
    """Finds out what makes the engine on main faster, and merges it."""

    def __init__(self, context: Context, crew: Crew, inner: InnerLoop, queue: MergeQueue, measure: Measure):
        self.context = context
        self.crew = crew
        self.inner = inner
        self.queue = queue
        self.measure = measure

    def improve(self) -> None:
        """Rounds of hypotheses until the objective's target, the round limit, the soft budget or the orchestrator's
        own word ends them."""
        for number in range(1, self.context.target.search.rounds + 1):
            done = next((r for r in self.context.state.rounds if r.round == number), None)
            if not done:
                done = self.improve_once(number)
            if done.stop:
                return

    def run(self) -> str:
        """Improves, and says so if a hard limit ended it: main holds an accepted engine then, and it is released."""
        try:
            self.improve()
            return ""
        except BudgetExceeded as limit:
            reason = f"the search was cut short: {limit}"
            for issue in list(self.context.state.issues.values()):
                for candidate in issue.candidates.values():
                    if not candidate.decided:
                        self.inner.discard(candidate, reason, judged=False)
                self.context.close_issue(issue.issue, "nothing_kept")
            return reason
        finally:
            self.context.ledger.finishing = True

    def improve_once(self, number: int) -> e.RoundClosed:
        opened = self.context.state.opened.get(number)
        if not opened:
            if reason := self.context.ledger.soft_reached() or self._target_reached():
                return self._close_round(number, self.context.state.memory, stop=True, reason=reason)
            opened = self.context.journal.append(self._dispatch(number))
        issues = [self.context.open_issue(issue).issue for issue in opened.issues]
        if issues:
            self._try(number, issues)
        reason = (
            "" if issues else f"no open direction is worth a candidate (gains from {policy.MINIMUM_EFFECT:.0%} count)"
        )
        return self._close_round(number, opened.memory, stop=opened.stop or not issues, reason=reason)

    def _dispatch(self, number: int) -> e.RoundOpened:
        """The round's issues: the evaluator's hypotheses in the orchestrator's order."""
        hypotheses = self._hypotheses()
        brief = OrchestratorBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=self.context.choices,
            hypotheses=hypotheses.hypotheses,
            parallel=self.context.target.search.parallel,
            minimum=policy.MINIMUM_EFFECT,
            memory=self.context.state.memory,
            last_round=shown.round_lines(self.context, number - 1),
        )
        answer, _ = self.inner.ask(brief, OrchestratorAnswer, None, None)
        issues = policy.round_issues(number, hypotheses.hypotheses, answer.dispatch, self.context.workspace.tip())
        return e.RoundOpened(round=number, issues=tuple(issues), memory=answer.memory, stop=answer.stop)

    def _hypotheses(self) -> EvaluatorAnswer:
        incumbent = self.context.state.merges[-1]
        if incumbent.tree not in self.context.state.profiles:
            self.context.ledger.check()
            self.context.note("profile of the incumbent")
            profile = self.crew.profile(self.context.engine_job(incumbent.commit, incumbent.tree))
            self.context.journal.append(e.DeviceUsed(what="profile", seconds=profile.device_seconds))
            self.context.journal.append(e.ProfileMade(tree=incumbent.tree, profile=profile))
        plan, state = self.context.plan, self.context.state
        profile = state.profiles[incumbent.tree]
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
        )
        return self.inner.ask(brief, EvaluatorAnswer, None, None)[0]

    def _current(self, profile: Profile) -> float | None:
        """The incumbent's objective, as authors may see it: of their part of its benchmark, or the profiled step where
        that is the same."""
        if self.context.plan.metric.startswith("tpot") and not profile.failure:
            return profile.step_ms
        return shown.incumbent_objective(self.context)

    def _incumbent_objective(self) -> float | None:
        """What the latest benchmark with the tree on main in it says of the objective; None before the first."""
        state = self.context.state
        rounds = [made for made in state.benchmarks if made.purpose == "round" and state.merges]
        if rounds and rounds[-1].round > state.round_of(state.merges[-1].candidate):
            return objective_of(rounds[-1].benchmark, "incumbent", self.context.plan)
        return state.incumbent_objective

    def _try(self, number: int, issues: list[e.Issue]) -> None:
        """Gates, then one paired benchmark of all that passed against the incumbent, then the acceptance of those
        that showed a gain, best first, then the merge queue. Each candidate ends with a row."""
        work = [(issue, 0) for issue in issues]
        self.inner.prepare_all(work)
        passed = self.inner.gate_all(work, "gates", STAGE_LEVELS)
        benchmark = self.context.state.benchmark("round", number)
        if passed and not benchmark:
            incumbent = self.context.state.merges[-1]
            arms = [Arm(name="incumbent", engine=self.context.engine_job(incumbent.commit, incumbent.tree))]
            arms += [Arm(name=c.id, engine=self.context.job_of(c)) for c in passed]
            benchmark = self.measure("round", number, arms)
        if benchmark:
            self.queue.decide(benchmark, [c for issue in issues for c in self._candidates(issue)])
        for issue in issues:
            merged = any(candidate.merged for candidate in self._candidates(issue))
            self.context.close_issue(issue, "merged" if merged else "nothing_kept")

    def _target_reached(self) -> str:
        target, plan = self.context.target.objective.target, self.context.plan
        measured = self._incumbent_objective()
        if target is None or measured is None:
            return ""
        reached = measured <= target if plan.direction == "min" else measured >= target
        return f"the objective's target is reached: {measured:.4g} against {target:.4g}" if reached else ""

    def _close_round(self, number: int, memory: str, *, stop: bool, reason: str) -> e.RoundClosed:
        return self.context.journal.append(e.RoundClosed(round=number, memory=memory, stop=stop, reason=reason))

    def _candidates(self, issue: e.Issue) -> list[Candidate]:
        return list(self.context.state.issues[issue.id].candidates.values())
