"""The main job, top to bottom: stages, then rounds of hypotheses, then the release and what was learned.

Each step looks into the state first and is skipped if the journal says that it is done, so that a resumed run goes
through the same lines as a fresh one.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from benchmarks.metrics import STARTUP, USER_METRIC
from ckb.errors import UserError
from ckb.records import STAGES, Stage
from gpu_actors.jobs import Arm, Benchmark, BenchmarkJob, Profile
from roles.briefs import EvaluatorAnswer, EvaluatorBrief, Experience, OrchestratorAnswer, OrchestratorBrief
from swarm import events as e
from swarm.budget import BudgetExceeded
from swarm.context import Context
from swarm.crew import Crew
from swarm.inner_loop import ALL_LEVELS, FIRST_STAGE_LEVELS, STAGE_LEVELS, InnerLoop
from swarm.lessons import lessons_of, measured_effect
from swarm.measure import objective_of, repeats_for
from swarm.merge_queue import MergeQueue
from swarm.policies import issue_tracker as policy
from swarm.release import write_engine
from swarm.state import Candidate
from swarm.user_inputs import absolute_command

Item = TypeVar("Item")
Result = TypeVar("Result")
HUGGINGFACE = Arm(name="huggingface")


class Orchestrator:
    """Runs one Target to its end. It decides; the crew works, the journal remembers."""

    def __init__(self, context: Context, crew: Crew):
        self.context = context
        self.crew = crew
        self.inner = InnerLoop(context, crew)
        self.queue = MergeQueue(context, self.inner, self.measure)

    def run(self) -> e.RunFinished:
        """The whole run. Returns its last event; raises UserError for what the user must mend."""
        if self.context.state.finished and self.context.state.finished.outcome == "accepted":
            return self.context.state.finished
        try:
            self.measure_baseline()
            if failed := next((stage for stage in STAGES if not self.build(stage)), None):
                return self.finish("no_engine", self._why_failed(failed))
            ended = self._improve_within_budget()
            if not self.release():
                return self.finish("no_engine", "the final acceptance failed: see the verdicts of the report")
            self.consolidate()
            return self.finish("accepted", ended)
        except BudgetExceeded as limit:
            return self.finish("budget", str(limit))

    def finish(self, outcome: e.Outcome, reason: str = "") -> e.RunFinished:
        self.context.note("")
        return self.context.journal.append(e.RunFinished(outcome=outcome, reason=reason))

    # --- the reference --------------------------------------------------------------------------------------------

    def measure_baseline(self) -> None:
        """Hugging Face alone, before anything is written: the line to beat."""
        benchmark = self.context.state.benchmark("baseline", 0) or self.measure("baseline", 0, [HUGGINGFACE])
        (reference,) = benchmark.arms
        if reference.status != "OK":
            raise UserError(
                f"Hugging Face can't generate from {self.context.target.model.path}: {reference.status}, "
                f"{reference.detail}. An engine is compared with it: mend the checkpoint, or lower workload lengths"
            )

    def measure(
        self, purpose: e.BenchmarkPurpose, round_number: int, arms: list[Arm], candidate: str | None = None
    ) -> Benchmark:
        """One paired run of several arms, under an exclusive lease of the device."""
        self.context.ledger.check()
        self.context.note(f"benchmark: {', '.join(arm.name for arm in arms)}{' in turn' * (len(arms) > 1)}")
        # the user's own benchmark may be long: where it decides nothing, it is run on the final engine alone
        user = purpose == "release" or self.context.plan.metric.startswith(USER_METRIC)
        command = self.context.target.user.benchmark if user else None
        benchmark = self.crew.benchmark(
            BenchmarkJob(
                arms=tuple(arms),
                scenarios=self.context.plan.scenarios,
                repeats=repeats_for(self.context.plan, decides=purpose in ("round", "merge")),
                seed=self.context.plan.seed_of("benchmark", purpose, str(round_number), candidate or ""),
                checkpoint=str(self.context.target.checkpoint),
                facts=self.context.facts,
                startup=self.context.plan.metric == STARTUP,
                user_benchmark=absolute_command(command or ""),
                user_files=self.context.plan.user_files.benchmark,
            )
        )
        self.context.journal.append(e.DeviceUsed(what="benchmark", seconds=benchmark.device_seconds))
        self.context.journal.append(
            e.BenchmarkMade(purpose=purpose, round=round_number, candidate=candidate, benchmark=benchmark)
        )
        return benchmark

    # --- the stages -----------------------------------------------------------------------------------------------

    def build(self, stage: Stage) -> bool:
        """One construction stage: implementers at work at once on their branches; the first in order whose candidate
        passes is merged. The others keep their branches, and a row that says that they were not needed."""
        issue = self._open(policy.stage_issue(stage, self.context.contracts((stage,)), self.context.workspace.tip()))
        if closed := self.context.state.issues[issue.id].closed:
            return closed.outcome == "merged"
        width = self.context.target.search.parallel
        levels = {"execution": FIRST_STAGE_LEVELS, "acceptance": ALL_LEVELS}.get(stage, STAGE_LEVELS)
        winner = next((c for c in self._candidates(issue) if c.merged), None)
        if not winner:
            self._at_once(lambda index: self.inner.prepare(issue, index), range(width))
            passed = (self.inner.gate(issue, index, "stage", levels) for index in range(width))
            winner = next((candidate for candidate in passed if candidate), None)
        for candidate in self._candidates(issue):
            if winner and candidate is not winner and not candidate.decided:
                self.inner.discard(candidate, f"{winner.id} passed first; this one was reviewed, not gated")
        if winner:
            self.queue.merge_first(winner, f"passed {levels[0]} to {levels[-1]} of stage {stage}")
        self._close(issue, "merged" if winner else "failed")
        return winner is not None

    # --- the performance loop -------------------------------------------------------------------------------------

    def improve(self) -> None:
        """Rounds of hypotheses until the objective's target, the round limit, the soft budget or the orchestrator's
        own word ends them."""
        for number in range(1, self.context.target.search.rounds + 1):
            done = next((r for r in self.context.state.rounds if r.round == number), None)
            if not done:
                done = self.improve_once(number)
            if done.stop:
                return

    def _improve_within_budget(self) -> str:
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
                self._close(issue.issue, "nothing_kept")
            return reason
        finally:
            self.context.ledger.finishing = True

    def improve_once(self, number: int) -> e.RoundClosed:
        opened = self.context.state.opened.get(number)
        if not opened:
            if reason := self.context.ledger.soft_reached() or self._target_reached():
                return self._close_round(number, self.context.state.memory, stop=True, reason=reason)
            opened = self.context.journal.append(self._dispatch(number))
        issues = [self._open(issue) for issue in opened.issues]
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
            last_round=self.context.state.round_lines(number - 1),
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
        brief = EvaluatorBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=self.context.choices,
            metric=plan.metric,
            current=self._current(state.profiles[incumbent.tree]),
            bound=plan.bound,
            shares=state.profiles[incumbent.tree].shares,
            space=plan.space,
            affects=plan.affects,
            tried=tuple(state.tried),
            known=self.context.experience + self._measured(),
            wanted=self.context.target.search.parallel,
            memory=state.memory,
        )
        return self.inner.ask(brief, EvaluatorAnswer, None, None)[0]

    def _measured(self) -> tuple[Experience, ...]:
        """What this run has found out about changes so far."""
        candidates = list(self.context.state.candidates.values())
        return tuple(effect for c in candidates if (effect := measured_effect(self.context, c)))

    def _current(self, profile: Profile) -> float | None:
        """The incumbent's objective: as its benchmark measured it, or the profiled step where that is the same."""
        if self.context.plan.metric.startswith("tpot") and not profile.failure:
            return profile.step_ms
        return self._incumbent_objective()

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
        self._at_once(lambda issue: self.inner.prepare(issue, 0), issues)
        gated = self._at_once(lambda issue: self.inner.gate(issue, 0, "gates", STAGE_LEVELS), issues)
        passed = [candidate for candidate in gated if candidate]
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
            self._close(issue, "merged" if merged else "nothing_kept")

    def _target_reached(self) -> str:
        target, plan = self.context.target.objective.target, self.context.plan
        measured = self._incumbent_objective()
        if target is None or measured is None:
            return ""
        reached = measured <= target if plan.direction == "min" else measured >= target
        return f"the objective's target is reached: {measured:.4g} against {target:.4g}" if reached else ""

    def _close_round(self, number: int, memory: str, *, stop: bool, reason: str) -> e.RoundClosed:
        return self.context.journal.append(e.RoundClosed(round=number, memory=memory, stop=stop, reason=reason))

    # --- the end --------------------------------------------------------------------------------------------------

    def release(self) -> bool:
        """The acceptance of the tree on main on prompts that nobody has seen, its benchmark against Hugging Face, and
        the engine's folder. Where the latest tree fails, the one before is tried: a late merge must not cost the whole
        run its engine."""
        if self.context.state.released:
            return True
        return any(self._release(merged) for merged in reversed(self.context.state.whole_engines))

    def _release(self, merged: e.Merged) -> bool:
        candidate = self.context.state.candidates[merged.candidate]
        levels = self.inner.still_open(merged.tree, STAGES, ALL_LEVELS)
        verdict = candidate.verdicts.get("release") or self.inner.verify(candidate, "release", levels, merged)
        if not verdict.passed:
            return False
        benchmark = self.context.state.benchmark("release", 0, candidate.id)
        if not benchmark:
            arms = [Arm(name="engine", engine=self.context.engine_job(merged.commit, merged.tree)), HUGGINGFACE]
            benchmark = self.measure("release", 0, arms, candidate.id)
        result = next(arm for arm in benchmark.arms if arm.arm == "engine")
        if result.status != "OK":  # its answers while the clock ran were not those that the gates saw
            return False
        path = write_engine(self.context, merged, benchmark)
        self.context.journal.append(
            e.EngineReleased(path=path, tree=merged.tree, commit=merged.commit, candidate=candidate.id)
        )
        return True

    def consolidate(self) -> None:
        """What the run learned becomes the next version of the knowledge base. Safe to repeat."""
        if self.context.state.consolidated:
            return
        self.context.note("consolidating what was learned")
        outcome = self.crew.consolidate(lessons_of(self.context, self.inner))
        self.context.journal.append(e.Consolidated(version=outcome.version, rows=outcome.rows))

    # --- small things ---------------------------------------------------------------------------------------------

    def _candidates(self, issue: e.Issue) -> list[Candidate]:
        return list(self.context.state.issues[issue.id].candidates.values())

    def _why_failed(self, stage: Stage) -> str:
        issue = self.context.state.issues[policy.stage_issue(stage, (), "").id]
        rows = [f"{c.id}: {c.decided.reason}" for c in issue.candidates.values() if c.decided]
        return f"no candidate of stage {stage} passed its gates ({'; '.join(rows)})"

    def _open(self, issue: e.Issue) -> e.Issue:
        """Opens an issue, or returns the one of that id that is open already (its base is where it started)."""
        if issue.id not in self.context.state.issues:
            self.context.journal.append(e.IssueOpened(issue=issue))
        return self.context.state.issues[issue.id].issue

    def _close(self, issue: e.Issue, outcome: e.IssueOutcome) -> None:
        if not self.context.state.issues[issue.id].closed:
            self.context.journal.append(e.IssueClosed(issue=issue.id, outcome=outcome))

    def _at_once(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Several pieces of work at once, as many as the Target allows; the first failure surfaces."""
        with ThreadPoolExecutor(self.context.target.search.parallel) as pool:
            return list(pool.map(work, items))
