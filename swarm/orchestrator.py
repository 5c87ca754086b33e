"""The main job, top to bottom: stages, then rounds of hypotheses, then the release and what was learned.

Each step looks into the state first and is skipped if the journal says that it is done, so that a resumed run goes
through the same lines as a fresh one.
"""

from benchmarks.metrics import STARTUP, USER_METRIC
from ckb.errors import UserError
from ckb.records import STAGES, Stage
from gpu_actors.benchmark_jobs import Arm, Benchmark, BenchmarkJob
from swarm import ablation
from swarm import events as e
from swarm.budget import BudgetExceeded
from swarm.context import Context
from swarm.crew import Crew
from swarm.inner_loop import ALL_LEVELS, FIRST_STAGE_LEVELS, STAGE_LEVELS, BlockedByHardware, InnerLoop
from swarm.issues import stage_issue
from swarm.lessons import lessons_of
from swarm.measure import SHOWN, repeats_for
from swarm.merge_queue import MergeQueue
from swarm.outer_loop import OuterLoop
from swarm.release import write_engine
from swarm.user_inputs import absolute_command

HUGGINGFACE = Arm(name="huggingface")


class Orchestrator:
    """Runs one Target to its end. It decides; the crew works, the journal remembers."""

    def __init__(self, context: Context, crew: Crew):
        self.context = context
        self.crew = crew
        self.inner = InnerLoop(context, crew)
        self.queue = MergeQueue(context, self.inner, self.measure)
        self.outer = OuterLoop(context, crew, self.inner, self.queue, self.measure)

    def run(self) -> e.RunFinished:
        """The whole run. Returns its last event; raises UserError for what the user must mend."""
        if self.context.state.finished and self.context.state.finished.outcome == "accepted":
            return self.context.state.finished
        try:
            self.measure_baseline()
            if failed := next((stage for stage in STAGES if not self.build(stage)), None):
                return self.finish("no_engine", self._why_failed(failed))
            ended = self.outer.run()
            if not self.release():
                return self.finish("no_engine", self._why_not_released())
            self.consolidate()
            return self.finish("accepted", ended)
        except BudgetExceeded as limit:
            return self.finish("budget", str(limit))
        except BlockedByHardware as short:
            return self.finish("blocked", f"{short}. `enginesmith resume` asks again, on a machine that has more")

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
        self.context.safe_point()
        self.context.note(f"benchmark: {', '.join(arm.name for arm in arms)}{' in turn' * (len(arms) > 1)}")
        # the user's own benchmark may be long: where it decides nothing, it is run on the final engine alone
        user = purpose == "release" or self.context.plan.metric.startswith(USER_METRIC)
        command = self.context.target.user.benchmark if user else None
        benchmark = self.crew.benchmark(
            BenchmarkJob(
                arms=tuple(arms),
                scenarios=self.context.plan.scenarios,
                repeats=repeats_for(self.context.plan, decides=purpose in ("round", "again", "merge")),
                shown=SHOWN if purpose == "round" and round_number < self.context.target.search.rounds else 0,
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
        contracts, tip = self.context.contracts((stage,)), self.context.workspace.tip()
        opened = self.context.open_issue(stage_issue(stage, contracts, tip))
        if opened.closed:
            return opened.closed.outcome == "merged"
        issue, width = opened.issue, self.context.target.search.parallel
        levels = {"execution": FIRST_STAGE_LEVELS, "acceptance": ALL_LEVELS}.get(stage, STAGE_LEVELS)
        winner = next((c for c in opened.candidates.values() if c.merged), None)
        if not winner:
            self.inner.prepare_all([(issue, index) for index in range(width)])
            passed = (self.inner.gate(issue, index, "stage", levels) for index in range(width))
            winner = next((candidate for candidate in passed if candidate), None)
        for candidate in opened.candidates.values():
            if winner and candidate is not winner and not candidate.decided:
                self.inner.discard(candidate, f"{winner.id} passed first; this one was reviewed, not gated")
        if winner:
            self.queue.merge_first(winner, f"passed {levels[0]} to {levels[-1]} of stage {stage}")
        self.context.close_issue(issue, "merged" if winner else "failed")
        return winner is not None

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
        verdict = candidate.verdicts.get("release") or self.inner.verify(
            candidate, "release", levels, merged, self.context.choices
        )
        if verdict.undecided:
            raise BlockedByHardware(f"{candidate.id}: {verdict.why}")
        if not verdict.passed or self.context.state.violation_in(merged):
            return False
        benchmark = self._final_benchmark(merged)
        result = next(arm for arm in benchmark.arms if arm.arm == "engine")
        if result.status != "OK":  # its answers while the clock ran were not those that the gates saw
            return False
        if self.context.state.violation_in(merged):
            return False
        path = write_engine(self.context, merged, benchmark)
        self.context.journal.append(
            e.EngineReleased(path=path, tree=merged.tree, commit=merged.commit, candidate=candidate.id)
        )
        return True

    def _final_benchmark(self, merged: e.Merged) -> Benchmark:
        """The engine against Hugging Face, and in the same run against itself without each mechanism that was kept: as
        many as a round has candidates, which is what the machine holds at once; the others in runs of their own."""
        state, width = self.context.state, self.context.target.search.parallel
        engine = Arm(name=ablation.ENGINE, engine=self.context.engine_job(merged.commit, merged.tree))
        undone = ablation.arms(self.context, merged)
        name = merged.candidate
        benchmark = state.benchmark("release", 0, name) or self.measure(
            "release", 0, [engine, HUGGINGFACE, *undone[:width]], name
        )
        for number, first in enumerate(range(width, len(undone), width), 1):
            if not state.benchmark("ablation", number, name):
                self.measure("ablation", number, [engine, *undone[first : first + width]], name)
        return benchmark

    def consolidate(self) -> None:
        """What the run learned becomes the next version of the knowledge base. Safe to repeat."""
        if self.context.state.consolidated:
            return
        self.context.note("consolidating what was learned")
        outcome = self.crew.consolidate(lessons_of(self.context, self.inner))
        against = tuple(f"{c.new} against {c.existing} of {c.table}: {c.detail}" for c in outcome.contradictions)
        self.context.journal.append(
            e.Consolidated(
                version=outcome.version,
                rows=outcome.rows,
                merged=outcome.merged,
                lowered=outcome.lowered,
                contradictions=against,
            )
        )

    def _why_not_released(self) -> str:
        found = [bad.row for m in self.context.state.whole_engines if (bad := self.context.state.violation_in(m))]
        if found:
            return f"zero-reference: {found[-1].candidate}, {found[-1].kind} violation: {found[-1].what}"
        return "the final acceptance failed: see the verdicts of the report"

    def _why_failed(self, stage: Stage) -> str:
        issue = self.context.state.issues[stage_issue(stage, (), "").id]
        rows = [f"{c.id}: {c.decided.reason}" for c in issue.candidates.values() if c.decided]
        return f"no candidate of stage {stage} passed its gates ({'; '.join(rows)})"
