"""The merge queue: what showed a gain is accepted and merged, one on another, verified and measured again after each.

Journal before git: a merge commit exists, then the Merged event is written, then main moves. A driver that dies in
between leaves a commit that nobody names, or a main that Context moves when the run is opened again.
"""

from collections.abc import Sequence
from typing import Protocol

from ckb.criteria import BENCHMARK
from ckb.records import Choice
from gpu_actors.benchmark_jobs import Arm, Benchmark
from gpu_actors.criteria import judged
from gpu_actors.jobs import EngineJob
from swarm import events as e
from swarm.context import Context
from swarm.gains import Measured, gains, independent, told_of_no_gain, why_no_gain
from swarm.inner_loop import ALL_LEVELS, InnerLoop
from swarm.measure import compare, objective_of
from swarm.state import Candidate
from swarm.workspace import Committed, MergeConflict

GAINED = "a gain"
"""What authors are told of one; how large it was on their own part of the inputs, they are told beside it."""


class Measure(Protocol):
    """Runs a paired benchmark and journals it."""

    def __call__(
        self, purpose: e.BenchmarkPurpose, round_number: int, arms: list[Arm], candidate: str | None = None
    ) -> Benchmark: ...


class MergeQueue:
    """Decides the candidates of a round from their paired benchmark, and moves main."""

    def __init__(self, context: Context, inner: InnerLoop, measure: Measure):
        self.context = context
        self.inner = inner
        self.measure = measure

    def decide(self, benchmark: Benchmark, candidates: Sequence[Candidate]) -> None:
        """A row for each candidate of the round: no gain, not accepted, conflict, or merged. Best gain first.

        Those that have their row are left alone: a resumed round comes here with all of its candidates again.
        """
        effects = compare(benchmark, self.context.plan)
        won = gains(list(effects.values()))
        winners = {m.candidate for m in won}
        for candidate in candidates:
            if candidate.decided or candidate.id in winners:
                continue
            if measured := effects.get(candidate.id):
                self._discard(candidate, why_no_gain(measured), measured, told_of_no_gain(measured))
            elif not objective_of(benchmark, "incumbent", self.context.plan):
                reason = f"nothing to compare with, the incumbent: {why_void(benchmark, 'incumbent')}"
                self._row(candidate, "discarded", reason, None, judged=False)
            else:
                reason = f"no valid measurement: {why_void(benchmark, candidate.id)}"
                self._row(candidate, "discarded", reason, None, judged=not only_busy(benchmark, candidate.id))
        by_id = {candidate.id: candidate for candidate in candidates}
        for measured in won:
            candidate = by_id[measured.candidate]
            if candidate.decided:
                continue
            issue = self.context.state.issues[candidate.submitted.issue].issue
            if reason := unmet(issue, measured):
                but = "but its issue's own criteria speak against it"
                told = f"{GAINED}, {but}"
                self._discard(candidate, f"gain of {interval_of(measured)}, {but}: {reason}", measured, told)
            else:
                self._take(candidate, measured)

    def merge_first(self, candidate: Candidate, reason: str, measured: Measured | None = None, told: str = "") -> None:
        """Merges the first candidate of a stage or round: the merged tree is the verified one, whole. One that started
        elsewhere than from main was measured against main as a whole, and replaces it as that."""
        if not candidate.merged:
            message = f"Merge {candidate.id}: {reason}"
            merged = self.context.workspace.take(candidate.submitted.commit, message, f"merge/{candidate.id}")
            assert merged.tree == candidate.submitted.tree, "what is taken whole is the tree that was verified"
            self._advance(candidate, merged, dict(candidate.submitted.choices))
        self._keep(candidate, reason, measured, told)

    def _take(self, candidate: Candidate, measured: Measured) -> None:
        """Acceptance, the judge, then the merge."""
        if candidate.merged:  # and its driver died before the row was written
            stacked = self.context.state.benchmark("merge", self.context.state.round_of(candidate.id), candidate.id)
            after = compare(stacked, self.context.plan).get(candidate.id) if stacked else None
            if after:
                self._keep(candidate, self._on_top(candidate, after), after, GAINED)
            else:
                self._keep(candidate, f"gain of {interval_of(measured)}", measured, GAINED)
            return
        gain = interval_of(measured)
        issue = self.context.state.issues[candidate.submitted.issue].issue
        if but := self._overtaken(candidate, issue):
            self._discard(candidate, f"gain of {gain}, {but}", measured, f"{GAINED}, {but}")
            return
        verdict = candidate.verdicts.get("screen") or self.inner.verify(candidate, "screen", ("L3",))
        if not verdict.passed:
            but = f"but {verdict.why}"
            reason = f"gain of {gain}, {but}"
            self._row(candidate, "discarded", reason, None, f"{GAINED}, {but}", judged=not verdict.undecided)
            return
        if objections := self.inner.objections(candidate, verdict):
            but = f"but the judge objects: {objections[0]}"
            self._discard(candidate, f"gain of {gain}, {but}", None, f"{GAINED}, {but}")
            return
        if self._merges_of(issue.round):
            self._stack(candidate, issue, measured)  # which measures again, in fresh processes, what is merged
        elif self._came_again(candidate, issue, measured):
            self.merge_first(candidate, f"gain of {gain}", measured, GAINED)

    def _came_again(self, candidate: Candidate, issue: e.Issue, measured: Measured) -> bool:
        """Whether the gain is there a second time, on other prompts in fresh processes: of many candidates that were
        measured once, the best is also the luckiest. One that lost it has its row afterwards."""
        incumbent = self.context.state.merges[-1]
        benchmark = self._paired("again", issue.round, incumbent, candidate, self.context.job_of(candidate))
        again = compare(benchmark, self.context.plan).get(candidate.id)
        if again and gains([again]):
            return True
        lost = why_no_gain(again) if again else f"no valid measurement: {why_void(benchmark, candidate.id)}"
        reason = f"gain of {interval_of(measured)}, which did not come again: {lost}"
        judged = bool(again) or not only_busy(benchmark, candidate.id)
        self._row(candidate, "discarded", reason, again, f"{GAINED} that did not come again", judged=judged)
        return False

    def _stack(self, candidate: Candidate, issue: e.Issue, measured: Measured) -> None:
        """Merges a candidate onto what this round merged before it; the gain must survive."""
        earlier = self._merges_of(issue.round)
        try:
            merged = self.context.workspace.merge(
                candidate.submitted.commit, f"Merge {candidate.id}: {issue.title}", f"merge/{candidate.id}"
            )
        except MergeConflict as conflict:
            reason = f"{conflict} with {earlier[-1].candidate}"
            self._return(earlier[-1], candidate, reason)
            self._discard(candidate, f"{reason}; the two go back as one issue", measured)
            return
        choices = self.context.choices | self.context.state.difference(candidate)
        verdict = candidate.verdicts.get("merge") or self.inner.verify(candidate, "merge", ALL_LEVELS, merged, choices)
        if not verdict.passed:
            reason = f"merged with {earlier[-1].candidate}, {verdict.why}"
            self._row(candidate, "discarded", reason, None, judged=not verdict.undecided)
            return
        tip = self.context.state.merges[-1]
        job = self.context.engine_job(merged.commit, merged.tree)
        stacked = self._paired("merge", issue.round, tip, candidate, job)
        after = compare(stacked, self.context.plan).get(candidate.id)
        if after is None or not gains([after]):
            lost = why_no_gain(after) if after else "no valid measurement"
            reason = "its gain was lost in the merge"
            if after:  # without a measurement nothing is known of the two together
                self._return(earlier[-1], candidate, f"{reason} with {earlier[-1].candidate}", choices)
            self._discard(candidate, f"{reason}: {lost}", after, reason)
            return
        self._advance(candidate, merged, choices)
        self._keep(candidate, self._on_top(candidate, after), after, GAINED)

    def _return(
        self, merged: e.Merged, lost: Candidate, reason: str, measured: dict[str, Choice] | None = None
    ) -> None:
        """The pair waits for the next round (swarm.returns); a resumed round comes here again and adds nothing."""
        if all((pair.merged, pair.lost) != (merged.candidate, lost.id) for pair in self.context.state.returned):
            self.context.journal.append(
                e.PairReturned(merged=merged.candidate, lost=lost.id, reason=reason, measured=measured)
            )

    def _on_top(self, candidate: Candidate, after: Measured) -> str:
        """Why a candidate was kept that was merged onto another one of its round."""
        names = [merge.candidate for merge in self.context.state.merges]
        return f"gain of {after.effect:+.1%} on top of {names[names.index(candidate.id) - 1]}"

    def _merges_of(self, number: int) -> list[e.Merged]:
        return [m for m in self.context.state.merges if self.context.state.round_of(m.candidate) == number]

    def _overtaken(self, candidate: Candidate, issue: e.Issue) -> str:
        """Why a merge of this round, which gained more, leaves no room for a candidate; or nothing."""
        state, merges = self.context.state, self._merges_of(issue.round)
        if merges and not state.from_main(candidate):
            return f"but {merges[-1].candidate} gained more, and this tree of another lineage would replace it"
        changed = state.difference(candidate)
        merged = ((m.candidate, state.difference(state.candidates[m.candidate])) for m in merges)
        same = next((name for name, other in merged if not independent(changed, [other])), "")
        return f"but {same} changed the same decision and gained more" if same else ""

    def _paired(
        self, purpose: e.BenchmarkPurpose, number: int, incumbent: e.Merged, candidate: Candidate, job: EngineJob
    ) -> Benchmark:
        """A benchmark of one candidate with what is on main, in fresh processes."""
        return self.context.state.benchmark(purpose, number, candidate.id) or self.measure(
            purpose,
            number,
            [
                Arm(name="incumbent", engine=self.context.engine_job(incumbent.commit, incumbent.tree)),
                Arm(name=candidate.id, engine=job),
            ],
            candidate.id,
        )

    def _advance(self, candidate: Candidate, merged: Committed, choices: dict[str, Choice]) -> None:
        before = self.context.workspace.tip()
        self.context.journal.append(
            e.Merged(candidate=candidate.id, commit=merged.commit, tree=merged.tree, choices=choices)
        )
        self.context.workspace.advance(merged.commit, before)

    def _keep(self, candidate: Candidate, reason: str, measured: Measured | None, told: str = "") -> None:
        self._row(candidate, "kept", reason, measured, told)

    def _discard(self, candidate: Candidate, reason: str, measured: Measured | None, told: str = "") -> None:
        self._row(candidate, "discarded", reason, measured, told)

    def _row(
        self,
        candidate: Candidate,
        decision: e.Decision,
        reason: str,
        measured: Measured | None,
        told: str = "",
        *,
        judged: bool = True,
    ) -> None:
        """`told`: the reason without the figures that decided, for authors."""
        if candidate.decided:
            return
        self.context.journal.append(
            e.CandidateDecided(
                candidate=candidate.id,
                decision=decision,
                reason=reason,
                told=told,
                effect=measured.effect if measured else None,
                interval=(measured.low, measured.high) if measured else None,
                objective=measured.objective if measured else None,
                judged=judged,
            )
        )


def unmet(issue: e.Issue, measured: Measured) -> str:
    """What a benchmark says against an issue's own criteria, in words; empty if nothing."""
    ends = {"effect_low": measured.low, "effect_high": measured.high}
    metrics = {"effect": measured.effect, "objective": measured.objective, **ends}
    findings = (judged(criterion, metrics) for criterion in issue.criteria if criterion.command == BENCHMARK)
    return next((finding.summary for finding in findings if finding.status != "PASS"), "")


def interval_of(measured: Measured) -> str:
    return f"{measured.effect:+.1%} [{measured.low:+.1%}, {measured.high:+.1%}]"


def only_busy(benchmark: Benchmark, arm: str) -> bool:
    """Whether nothing is held against an arm but that the machine was busy, so that another day may measure it."""
    status = next((a.status for a in benchmark.arms if a.arm == arm), "OK")
    void = [row.busy for row in benchmark.rows if row.arm == arm and row.void]
    void += [row.busy for row in benchmark.user_rows if row.arm == arm and row.void]
    return status == "OK" and bool(void) and all(void)


def why_void(benchmark: Benchmark, arm: str) -> str:
    """Why an arm has no valid rows."""
    result = next((a for a in benchmark.arms if a.arm == arm), None)
    if result and result.status != "OK":
        return f"{result.status}: {result.detail}"
    timed = [row.void for row in benchmark.rows if row.arm == arm and row.void]
    void = timed + [row.void for row in benchmark.user_rows if row.arm == arm and row.void]
    return f"all {len(void)} rows are void, the first one: {void[0]}" if void else "no row"
