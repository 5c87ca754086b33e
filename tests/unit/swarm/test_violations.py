"""What becomes of a zero-reference violation: a row whatever happens, and no engine with it in what it is made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckb.errors import UserError
from ckb.store import Store
from ckb.violations import Violation, ViolationKind
from gpu_actors.benchmark_jobs import Benchmark, BenchmarkJob, Profile, UserRow
from gpu_actors.jobs import EngineJob, Verdict, VerifyJob
from swarm import events as e
from swarm.context import Context
from swarm.orchestrator import Orchestrator
from swarm.release import write_engine
from swarm.report import write_report
from swarm.state import RunState
from swarm.tables import summary_lines
from tests.unit.swarm.rehearsal import Rehearsal, prepare, read_knowledge_at, store_at

WHAT = "opens '/x/vllm/core.py', of a forbidden package"
Rule = Callable[[VerifyJob], ViolationKind | None]


def row(candidate: str, kind: ViolationKind, gate: str = "watched") -> Violation:
    return Violation(candidate=candidate, gate=gate, kind=kind, file="kernels.py", line=3, what=WHAT)


class Violating(Rehearsal):
    """A device on which some candidates, or arms of a benchmark, are found to violate the rule."""

    def __init__(self, store: Path, rule: Rule, arm: str = "", place: str = "arm"):
        """`place`: where the arm's violation shows, `arm`, `user` for the user's benchmark, or `profile`."""
        super().__init__(store)
        self.rule, self.arm, self.place = rule, arm, place

    def verify(self, job: VerifyJob) -> Verdict:
        verdict = super().verify(job)
        if not (kind := self.rule(job)):
            return verdict
        first = verdict.gates[0].model_copy(
            update={"gate": "watched", "status": "FAIL", "summary": WHAT, "violations": (row(job.candidate, kind),)}
        )
        return verdict.model_copy(update={"gates": (first, *verdict.gates[1:])})

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        made = super().benchmark(job)
        rows = {self.arm: (row(self.arm, "runtime", "benchmark"),)}
        if self.place == "user":
            timed = [arm.arm for arm in made.arms if arm.arm in rows]
            tried = [UserRow(arm=a, repeat=0, order=1, metrics={}, void="x", violations=rows[a]) for a in timed]
            return made.model_copy(update={"user_rows": tuple(tried)})
        if self.place == "profile":
            return made
        told = [arm.model_copy(update={"violations": rows.get(arm.arm, ())}) for arm in made.arms]
        return made.model_copy(update={"arms": tuple(told)})

    def profile(self, job: EngineJob) -> Profile:
        rows = (row(self.arm, "runtime", "profile"),) if self.place == "profile" else ()
        return super().profile(job).model_copy(update={"violations": rows})


def run(
    home: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule, arm: str = "", place: str = "arm", **budget: Any
) -> Context:
    monkeypatch.setenv("ENGINESMITH_HOME", str(home))
    files = prepare(home, **budget)
    context = Context(files, read_knowledge_at(store_at(home), 1))
    identity = files.read_identity()
    context.journal.append(e.RunStarted(run=identity.id, target=identity.target, host="here", version="0"))
    Orchestrator(context, Violating(home / "store", rule, arm, place)).run()
    return context


def outcome(state: RunState) -> str:
    assert state.finished
    return state.finished.outcome


@pytest.mark.parametrize(("kind", "attempts"), [("static", 2), ("copied", 1), ("read", 1)])
def test_a_discarded_candidate_s_violation_is_a_row_everywhere_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: ViolationKind, attempts: int
) -> None:
    context = run(tmp_path, monkeypatch, lambda job: kind if job.candidate == "s1-c0" else None)
    state = context.state
    assert outcome(state) == "accepted"
    assert state.candidates["s1-c1"].merged
    first = state.candidates["s1-c0"]
    assert first.decided
    assert len(state.violations) == attempts, "what was copied or read can be reworded: it is not tried again"
    if attempts == 1:
        assert first.decided.reason == f"{kind} violation, which another attempt could only reword: {WHAT}"
    assert {(v.row, v.purpose) for v in state.violations} == {(row("s1-c0", kind), "stage")}
    store = Store(tmp_path / "store")
    (stored,) = store.read("runs").to_pylist()
    assert {(v["candidate"], v["kind"], v["line"]) for v in stored["violations"]} == {("s1-c0", kind, 3)}
    assert len(stored["violations"]) == attempts
    shown = summary_lines(state, context.target.budget)
    assert any(f"violations: {len(state.violations)}, last s1-c0" in line for line in shown)
    page = write_report(context.files.root).read_text(encoding="utf-8")
    assert "of a forbidden package" in page
    assert f"<td>{kind}</td>" in page


def test_an_issue_that_has_used_up_its_own_limits_gets_no_further_attempt_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: Rule = lambda job: "static" if job.candidate == "s1-c0" else None  # noqa: E731
    state = run(tmp_path, monkeypatch, rule, issue={"device_seconds": 0.001}).state
    assert outcome(state) == "accepted"
    first = state.candidates["s1-c0"]
    assert first.attempts == 1
    assert first.decided
    assert first.decided.reason.startswith("no further attempt: budget.issue.device_seconds: ")
    assert state.candidates["s1-c1"].merged


def test_a_late_merge_with_a_violation_costs_its_own_tree_and_not_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def first_release(job: VerifyJob) -> ViolationKind | None:
        if job.acceptance == "screen":
            return None
        asked.append(job.candidate)
        return "runtime" if len(asked) == 1 else None

    state = run(tmp_path, monkeypatch, first_release).state
    assert outcome(state) == "accepted"
    assert state.released
    assert len(asked) == 2
    assert state.released.candidate == asked[1] != asked[0]


@pytest.mark.parametrize(
    ("arm", "place"),
    [
        ("incumbent", "arm"),
        pytest.param("engine", "arm", marks=pytest.mark.slow),
        pytest.param("incumbent", "user", marks=pytest.mark.slow),
        ("incumbent", "profile"),
    ],
)
def test_no_engine_is_released_with_a_violation_in_it_or_in_what_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str, place: str
) -> None:
    context = run(tmp_path, monkeypatch, lambda job: None, arm, place)
    state = context.state
    assert outcome(state) == "no_engine"
    assert state.finished
    assert state.finished.reason.startswith("zero-reference: ")
    assert not (tmp_path / "engines").exists()
    benchmark = state.final_benchmark or state.benchmarks[-1].benchmark
    with pytest.raises(UserError, match=r"can't be released: .*of a forbidden package"):
        write_engine(context, state.merges[-1], benchmark)


def test_a_gate_result_that_passes_holds_no_violation() -> None:
    made = Rehearsal.verify
    gate = {"gate": "g", "level": "L0", "contract": "c", "summary": "s", "seconds": 0.0}
    gate |= {"evidence": ({"sha256": "0", "what": "x"},), "violations": (row("c", "static"),)}
    from gpu_actors.jobs import GateResult

    assert made
    assert GateResult.model_validate(gate | {"status": "FAIL"}).violations
    with pytest.raises(ValueError, match=r"g passed with 1 violation\(s\)"):
        GateResult.model_validate(gate | {"status": "PASS"})
