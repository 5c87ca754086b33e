"""The inner loop (VibeServe, section 3.2): one candidate from brief to verdict, with its retries.

Every step is journalled when it is done, and a step that the journal holds is not done again: calling these functions
a second time continues where the last driver stopped. Safe to run for several candidates at once, one thread each.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from ckb.records import STAGES, Choice, Stage
from gpu_actors.jobs import DEADLINE_S, Level, Verdict, VerifyJob
from roles.author import Answer, AnyBrief, AuthorError, NoAnswer, Usage
from roles.briefs import (
    AnalystAnswer,
    AnalystBrief,
    Evidence,
    ImplementerAnswer,
    ImplementerBrief,
    JudgeAnswer,
    JudgeBrief,
    MayFile,
    ReviewerAnswer,
    ReviewerBrief,
)
from swarm import events as e
from swarm.accepted import asked
from swarm.context import Context
from swarm.crew import Crew
from swarm.ensemble import author_of
from swarm.novelty import repetition
from swarm.orders import Steer
from swarm.policies import tools_of
from swarm.returns import combination_of
from swarm.state import Candidate
from swarm.user_inputs import absolute_command

A = TypeVar("A", bound=Answer)
Result = TypeVar("Result")


class BlockedByHardware(Exception):
    """A gate needs more memory or time than there is here, and the run can't go on without its answer."""


class Commit(Protocol):
    """A commit and the hash of its tree: a fresh merge, or one that the journal names."""

    @property
    def commit(self) -> str: ...
    @property
    def tree(self) -> str: ...


STAGE_LEVELS: tuple[Level, ...] = ("L0", "L1", "L2")
FIRST_STAGE_LEVELS: tuple[Level, ...] = ("L0", "L1")
ALL_LEVELS: tuple[Level, ...] = ("L0", "L1", "L2", "L3")


def stages_of(issue: e.Issue) -> tuple[Stage, ...]:
    """The stages whose contracts a tree must fulfil that answers this issue."""
    return STAGES if issue.stage == "performance" else STAGES[: STAGES.index(issue.stage) + 1]


class InnerLoop:
    """Implements, reviews and gates candidates."""

    def __init__(self, context: Context, crew: Crew):
        self.context = context
        self.crew = crew

    def prepare_all(self, work: Sequence[tuple[e.Issue, int]]) -> None:
        """Implements and reviews several candidates at once: (issue, index of the implementer). All have their first
        attempt before one is compared with another, so that it doesn't matter whose came first."""
        self._at_once(self._draft, work)
        self._at_once(self.prepare, work)

    def gate_all(
        self, work: Sequence[tuple[e.Issue, int]], purpose: e.Purpose, levels: tuple[Level, ...]
    ) -> list[Candidate]:
        """Gates several candidates at once; those that passed, in order."""
        gated = self._at_once(lambda issue, index: self.gate(issue, index, purpose, levels), work)
        return [candidate for candidate in gated if candidate]

    def _at_once(self, do: Callable[[e.Issue, int], Result], work: Sequence[tuple[e.Issue, int]]) -> list[Result]:
        """As many at a time as the Target allows; the first failure surfaces."""
        with ThreadPoolExecutor(self.context.target.search.parallel) as pool:
            return list(pool.map(lambda one: do(*one), work))

    def _draft(self, issue: e.Issue, index: int) -> None:
        name = f"{issue.id}-c{index}"
        if name not in self.context.state.candidates:
            self._implement(issue, name, index, attempt=1, evidence=())

    def prepare(self, issue: e.Issue, index: int) -> Candidate:
        """Implements and reviews one candidate until nothing is held against it or it is discarded."""
        self._draft(issue, index)
        name = f"{issue.id}-c{index}"
        while not (candidate := self.context.state.candidates[name]).decided:
            if evidence := candidate.evidence:
                self._retry(issue, candidate, index, evidence)
            elif candidate.findings is not None:
                break
            elif reason := repetition(self.context.state, candidate):
                self._give_up(issue, candidate, reason, candidate.before.evidence if candidate.before else ())
            else:
                self._review(issue, candidate)
        return candidate

    def gate(self, issue: e.Issue, index: int, purpose: e.Purpose, levels: tuple[Level, ...]) -> Candidate | None:
        """Gates one candidate; a failure's evidence goes back to its implementer until the retries are spent.

        Returns the candidate if it passed, None if it was discarded.
        """
        while not (candidate := self.prepare(issue, index)).decided:
            left = self.still_open(candidate.submitted.tree, stages_of(issue), levels)
            verdict = candidate.verdicts.get(purpose) or self.verify(candidate, purpose, left)
            if verdict.passed:
                return candidate
            if verdict.undecided:
                self._blocked(issue, candidate, verdict)
        return None

    def _blocked(self, issue: e.Issue, candidate: Candidate, verdict: Verdict) -> None:
        """Neither passed nor failed. A performance candidate is given up here; a stage can't do without its answer."""
        if issue.stage != "performance":
            raise BlockedByHardware(f"{candidate.id}: {verdict.why}")
        self.discard(candidate, verdict.why, judged=False)

    def still_open(self, tree: str, stages: tuple[Stage, ...], levels: tuple[Level, ...]) -> tuple[Level, ...]:
        """The levels that are still to be judged: the acceptance stage may start from the very tree that passed the
        gates of the integration stage, and what is released passed them in its round; then only L3 is left."""
        asked = set(stages) - {"acceptance"}  # which has no gates below L3
        judged = any(
            set(STAGE_LEVELS) <= set(v.levels) and asked <= set(v.stages) for v in self.context.state.passed(tree)
        )
        return ("L3",) if judged and "L3" in levels else levels

    def verify(
        self,
        candidate: Candidate,
        purpose: e.Purpose,
        levels: tuple[Level, ...],
        merged: Commit | None = None,
        choices: Mapping[str, Choice] | None = None,
    ) -> Verdict:
        """Has the gates run on a candidate's tree, or on what became of it in a merge, with the choices of that."""
        context = self.context
        context.safe_point()
        context.note(f"{candidate.id}: gates {', '.join(levels)}")
        issue = context.state.issues[candidate.submitted.issue].issue
        stages = stages_of(issue)
        engine = context.engine_job(merged.commit, merged.tree) if merged else context.job_of(candidate)
        acceptance = asked(purpose, context.state.passed(engine.tree), context.facts)
        made = candidate.submitted.choices if choices is None else choices
        verdict = self.crew.verify(
            VerifyJob(
                candidate=candidate.id,
                engine=engine,
                stages=stages,
                levels=levels,
                contracts=tuple(c.id for c in context.contracts(stages)),
                rows=context.in_force(stages, made),
                choices=dict(made),
                ckb_version=context.knowledge.version,
                acceptance=acceptance,
                deadline_s=DEADLINE_S[acceptance],
                criteria=issue.criteria if merged is None else (),  # which speak of the candidate's own change
                base_dir=str(context.workspace.checkout(issue.base, "tree")) if issue.criteria else "",
                seed=context.plan.seed_of("verdict", candidate.id, str(candidate.attempts), purpose),
                checker=absolute_command(context.target.user.checker or ""),
                checker_files=context.plan.user_files.checker,
                evidence_dir=str(context.files.evidence),
            )
        )
        context.journal.append(e.DeviceUsed(what="verify", seconds=verdict.device_seconds, candidate=candidate.id))
        context.journal.append(
            e.VerdictMade(candidate=candidate.id, attempt=candidate.attempts, purpose=purpose, verdict=verdict)
        )
        return verdict

    def objections(self, candidate: Candidate, verdict: Verdict) -> tuple[str, ...]:
        """What the judge holds against a candidate that the gates let through. It can fail one, never pass one."""
        if candidate.objections is not None:
            return candidate.objections
        brief = JudgeBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=candidate.submitted.choices,
            issue=candidate.submitted.issue,
            files=self.context.workspace.files(candidate.submitted.commit),
            gates=tuple(f"{gate.level} {gate.gate}: {gate.status}, {gate.summary}" for gate in verdict.gates),
            criteria=self.context.state.issues[candidate.submitted.issue].issue.acceptance,
            tools=tools_of(self.context.target.search.policy, "judge"),
        )
        answer, _ = self.ask(brief, JudgeAnswer, candidate.submitted.issue, candidate.id)
        self.context.journal.append(e.CandidateJudged(candidate=candidate.id, objections=answer.objections))
        return answer.objections

    def discard(self, candidate: Candidate, reason: str, *, judged: bool = True) -> None:
        """Writes the row that says why; the branch stays."""
        row = e.CandidateDecided(candidate=candidate.id, decision="discarded", reason=reason, judged=judged)
        self.context.journal.append(row)

    def ask(self, brief: AnyBrief, kind: type[A], issue: str | None, candidate: str | None) -> tuple[A, Usage]:
        """One call of a role, checked against the budget before and written to the journal after."""
        self.context.safe_point()
        target = self.context.target
        said = self.context.state.notes_for(brief.role)
        notes = tuple(taken.order.text for taken in said if isinstance(taken.order, Steer))
        brief = brief.model_copy(update={"notes": notes})
        author, member = author_of(target.authors, self.context.state, brief.role, target.search.seed, issue, candidate)
        called = partial(
            e.RoleCalled,
            role=brief.role,
            issue=issue,
            candidate=candidate,
            member=member,
            heard=tuple(taken.name for taken in said),
        )
        try:
            answer, usage = self.crew.answer(brief, author)
        except AuthorError as error:  # what a conversation cost is spent, whether or not it led to an answer
            if error.usage:
                self._spent(called(usage=error.usage))
            raise
        self._spent(called(usage=usage))
        if not isinstance(answer, kind):
            raise AuthorError(f"the {brief.role} answered with {type(answer).__name__} instead of {kind.__name__}")
        if isinstance(answer, MayFile):
            for idea in answer.filed:
                filed = e.IssueFiled(hypothesis=idea, role=brief.role, issue=issue, candidate=candidate)
                self.context.journal.append(filed)
        return answer, usage

    def _spent(self, called: e.RoleCalled) -> None:
        self.context.journal.append(called)
        if called.usage.device_seconds:
            seconds = called.usage.device_seconds
            self.context.journal.append(e.DeviceUsed(what="tests", seconds=seconds, candidate=called.candidate))

    def _implement(self, issue: e.Issue, name: str, index: int, attempt: int, evidence: tuple[Evidence, ...]) -> None:
        context = self.context
        contracts = context.contracts(stages_of(issue))
        context.note(f"{name}: implementer at work on {issue.title}")
        last = context.state.candidates.get(name)
        profile = context.state.profile_of(issue.base)
        brief = ImplementerBrief(
            run=context.files.root.name,
            facts=context.facts,
            choices=context.state.choices_at(issue.base),
            issue=issue.id,
            stage=stages_of(issue)[-1],
            objective=issue.title,
            acceptance=issue.acceptance,
            contracts=contracts,
            fragments=context.fragments(contracts),
            change=issue.hypothesis.change if issue.hypothesis else {},
            free=bool(issue.hypothesis and not issue.hypothesis.change and not issue.combines),
            combination=combination_of(context, issue),
            files=context.workspace.files(last.submitted.commit if last else issue.base),
            failures=evidence,
            seed=context.target.search.seed + issue.seed + index,
            instructions=context.target.user.instructions or "",
            deliverable=context.target.user.deliverable or "",
            operators=context.target.operators,
            shares=profile.shares if profile else {},
            step_ms=profile.step_ms if profile and not profile.failure else None,
            tools=tools_of(context.target.search.policy, "implementer"),
        )
        try:
            answer, usage = self.ask(brief, ImplementerAnswer, issue.id, name)
            blocked = (
                f"its implementer misses the contract {answer.missing_contract}" if answer.missing_contract else ""
            )
        except NoAnswer as failure:
            blocked, usage = f"its implementer gave no answer: {failure}", failure.usage or Usage(author="none")
        if blocked:  # this candidate's end, not the run's: the others go on
            if last is None:
                self._submit(issue, name, attempt, ImplementerAnswer(files=brief.files, summary=blocked), usage)
            self._give_up(issue, context.state.candidates[name], blocked, evidence, judged=False)
            return
        self._submit(issue, name, attempt, answer, usage)

    def _submit(self, issue: e.Issue, name: str, attempt: int, answer: ImplementerAnswer, usage: Usage) -> None:
        """Commits an answer on the candidate's branch, and journals it."""
        branch, message = f"candidate/{name}", f"{name}: {answer.summary}"
        committed = self.context.workspace.commit(branch, issue.base, answer.files, message)
        self.context.journal.append(
            e.CandidateSubmitted(
                candidate=name,
                issue=issue.id,
                attempt=attempt,
                branch=branch,
                commit=committed.commit,
                tree=committed.tree,
                author=usage.author,
                choices=answer.choices,
                spans=answer.spans,
                summary=answer.summary,
                lines=committed.lines,
            )
        )

    def _retry(self, issue: e.Issue, candidate: Candidate, index: int, evidence: tuple[Evidence, ...]) -> None:
        if lasting := self.context.state.lasting_violation(candidate.id):
            reason = f"{lasting.row.kind} violation, which another attempt could only reword: {lasting.row.what}"
            self._give_up(issue, candidate, reason, evidence)
        elif reached := self.context.ledger.issue_reached(issue.id):
            self._give_up(issue, candidate, f"no further attempt: {reached}", evidence)
        elif candidate.attempts <= self.context.target.search.retries:
            self._implement(issue, candidate.id, index, candidate.attempts + 1, evidence)
        else:
            reason = f"failed after {candidate.attempts} attempts: {evidence[0].summary}"
            self._give_up(issue, candidate, reason, evidence)

    def _give_up(
        self,
        issue: e.Issue,
        candidate: Candidate,
        reason: str,
        evidence: tuple[Evidence, ...],
        *,
        judged: bool = True,
    ) -> None:
        """The candidate's row, after somebody has said what the evidence against its attempts means."""
        if evidence:
            self._analyse(issue, candidate, evidence)
        self.discard(candidate, reason, judged=judged)

    def _analyse(self, issue: e.Issue, candidate: Candidate, evidence: tuple[Evidence, ...]) -> None:
        brief = AnalystBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=candidate.submitted.choices,
            issue=issue.id,
            failures=evidence,
            contracts=self.context.contracts(stages_of(issue)),
        )
        answer, _ = self.ask(brief, AnalystAnswer, issue.id, candidate.id)
        self.context.journal.append(e.FailureAnalysed(issue=issue.id, candidate=candidate.id, answer=answer))

    def _review(self, issue: e.Issue, candidate: Candidate) -> None:
        self.context.note(f"{candidate.id}: review")
        brief = ReviewerBrief(
            run=self.context.files.root.name,
            facts=self.context.facts,
            choices=candidate.submitted.choices,
            issue=issue.id,
            contracts=self.context.contracts(stages_of(issue)),
            files=self.context.workspace.files(candidate.submitted.commit),
            operators=self.context.target.operators,
        )
        answer, _ = self.ask(brief, ReviewerAnswer, issue.id, candidate.id)
        self.context.journal.append(
            e.CandidateReviewed(candidate=candidate.id, attempt=candidate.attempts, findings=answer.findings)
        )
