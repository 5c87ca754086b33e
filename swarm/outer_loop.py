"""The outer loop (VibeServe, section 3.2): rounds of hypotheses about an accepted engine, until it is fast enough or
nothing is worth a candidate. What a round tries is the policy's to say (`swarm/policies/`).

As in the inner loop each step is looked up in the journal first and is skipped if it was done.
"""

from gpu_actors.benchmark_jobs import Arm
from swarm import events as e
from swarm.budget import BudgetExceeded
from swarm.context import Context
from swarm.counsel import LoopCounsel
from swarm.crew import Crew
from swarm.inner_loop import STAGE_LEVELS, InnerLoop
from swarm.known import known
from swarm.measure import objective_of
from swarm.merge_queue import Measure, MergeQueue
from swarm.policies import POLICIES
from swarm.returns import exhausted, returned_issues
from swarm.state import Candidate


class OuterLoop:
    """Finds out what makes the engine on main faster, and merges it."""

    def __init__(self, context: Context, crew: Crew, inner: InnerLoop, queue: MergeQueue, measure: Measure):
        self.context = context
        self.crew = crew
        self.inner = inner
        self.queue = queue
        self.measure = measure
        self.policy = POLICIES[context.target.search.policy]()

    def improve(self) -> None:
        """Rounds of hypotheses until the objective's target, the round limit, the soft budget or the policy's own word
        ends them."""
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
        return self._close_round(number, opened.memory, stop=opened.stop or not issues, reason=opened.reason)

    def _dispatch(self, number: int) -> e.RoundOpened:
        """The round's issues: what came back from the merge queue, then what the policy decides. While
        something came back the search goes on: a policy that has nothing left is asked again when that is decided."""
        state, width = self.context.state, self.context.target.search.parallel
        returned = returned_issues(state, number, width)
        if len(returned) == width:
            return e.RoundOpened(round=number, issues=returned, memory=state.memory, stop=False)
        counsel = LoopCounsel(self.context, self.crew, self.inner, number)
        decided = self.policy.next(known(self.context, number), counsel)
        return e.RoundOpened(
            round=number,
            issues=(*returned, *decided.issues[: width - len(returned)]),
            memory=decided.memory,
            stop=decided.stop and not returned,
            reason="" if returned else decided.reason,
        )

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
            alone: e.IssueOutcome = "exhausted" if exhausted(self.context.state, issue) else "nothing_kept"
            self.context.close_issue(issue, "merged" if merged else alone)

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
