"""What decides over a candidate: a gain that comes again, no objection of the judge, figures that no author sees."""

from pathlib import Path

import pytest

from gpu_actors.benchmark_jobs import Benchmark, BenchmarkJob
from gpu_actors.jobs import Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Usage
from roles.briefs import EvaluatorBrief, Hypothesis, JudgeAnswer, JudgeBrief, OrchestratorBrief
from roles.settings import SingleAuthor
from swarm.context import Context
from swarm.journal import read_events
from swarm.measure import compare
from swarm.release import Manifest
from swarm.report import views
from swarm.workspace import MergeConflict, Workspace
from tests.unit.swarm.rehearsal import Rehearsal, prepare, rehearse


class Told(Rehearsal):
    """Keeps what roles were told; on the inputs that authors may see everybody takes 7 ms more."""

    def __init__(self, store: Path):
        super().__init__(store)
        self.briefs: list[AnyBrief] = []

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        self.briefs.append(brief)
        return super().answer(brief, author)

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        found = super().benchmark(job)
        rows = tuple(r.model_copy(update={"tpot_ms": r.tpot_ms + 7}) if r.shown else r for r in found.rows)
        return found.model_copy(update={"rows": rows})


def test_authors_see_figures_of_their_own_part_of_the_inputs_and_none_of_those_that_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew = Told(tmp_path / "store")
    context = rehearse(tmp_path, prepare(tmp_path), crew=crew)
    state = context.state
    first = [c for name, c in state.candidates.items() if name.startswith("r1")]
    assert first
    told = [b for b in crew.briefs if isinstance(b, EvaluatorBrief | OrchestratorBrief)]
    later = told[-2:]
    assert [type(brief) for brief in later] == [EvaluatorBrief, OrchestratorBrief], "of round 2"
    texts = [brief.model_dump_json() for brief in later]
    benchmark = state.benchmark("round", 1)
    assert benchmark
    held, seen = compare(benchmark, context.plan), compare(benchmark, context.plan, shown=True)
    assert held.keys() == seen.keys() == {candidate.id for candidate in first}
    for name, measured in held.items():
        for figure in (measured.effect, measured.low, measured.high):
            assert not any(f"{figure:+.1%}" in text or str(figure)[:8] in text for text in texts), name
        assert abs(seen[name].effect - measured.effect) > 0.005
        assert f"{seen[name].effect:+.1%}" in texts[1], "the orchestrator is told what became of each"
    assert state.opened[2], "there was a second round to be told for"


class Lucky(Rehearsal):
    """A gain shows among several candidates and never again."""

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        found = super().benchmark(job)
        if job.arms[0].name != "incumbent" or len(job.arms) > 2:
            return found
        rows = tuple(r.model_copy(update={"tpot_ms": 30.0 + r.repeat / 100}) for r in found.rows)
        return found.model_copy(update={"rows": rows})


def performance(context: Context) -> dict[str, str]:
    """Candidate -> why it was kept or discarded, of those of the rounds."""
    found = context.state.candidates.items()
    return {name: c.decided.reason for name, c in found if name.startswith("r") and c.decided}


def test_a_gain_that_does_not_come_again_in_fresh_processes_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    files = prepare(tmp_path)
    context = rehearse(tmp_path, files, crew=Lucky(tmp_path / "store"))
    reasons = performance(context)
    lost = [name for name, why in reasons.items() if "which did not come again: no effect beyond noise" in why]
    assert lost
    assert not any(c.merged for name, c in context.state.candidates.items() if name.startswith("r"))
    seeds = {e.purpose: e for e in read_events(files.root) if e.kind == "benchmark_made"}
    assert len(seeds["again"].benchmark.arms) == 2
    told = [c.decided.told for name, c in context.state.candidates.items() if name in lost and c.decided]
    assert set(told) == {"a gain that did not come again"}


def test_a_winner_is_measured_again_with_other_seeds_before_it_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    files = prepare(tmp_path)
    jobs: list[BenchmarkJob] = []

    class Noted(Rehearsal):
        def benchmark(self, job: BenchmarkJob) -> Benchmark:
            jobs.append(job)
            return super().benchmark(job)

    context = rehearse(tmp_path, files, crew=Noted(tmp_path / "store"))
    merged = [name for name, c in context.state.candidates.items() if name.startswith("r") and c.merged]
    assert merged
    for name in merged:
        measured = [job for job in jobs if name in {arm.name for arm in job.arms}]
        assert len(measured) == 2, name
        assert len({job.seed for job in measured}) == 2
        assert [arm.name for arm in measured[1].arms] == ["incumbent", name]


def test_each_kept_mechanism_is_timed_against_the_engine_with_it_alone_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    context = rehearse(tmp_path, prepare(tmp_path))
    state = context.state
    kept = [m for m in state.merges if m.candidate.startswith("r")]
    assert kept
    assert state.released
    manifest = Manifest.model_validate_json((tmp_path / state.released.path / "manifest.json").read_bytes())
    assert [found.candidate for found in manifest.ablations] == [m.candidate for m in kept]
    assert views.ablations(state, context.plan) == manifest.ablations
    timed = {arm.arm for arm in manifest.benchmark.arms}
    assert {"engine", "huggingface"} < timed
    for found in manifest.ablations:
        assert bool(found.interval) == (f"without {found.candidate}" in timed)
        assert found.interval or "can't be undone alone" in found.why
        assert found.change
    last = kept[-1]
    undone = context.workspace.without(last.commit, last.commit, "without/last")
    before = context.workspace.files(f"{last.commit}^1")
    assert context.workspace.files(undone.commit) == before, "with the last one undone it is what was there before"
    assert manifest.ablations[-1].effect is not None


def test_a_merge_whose_lines_a_later_one_changed_can_not_be_undone_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tips = []
    for text in ("a = 1\n", "a = 2\n", "a = 3\n"):
        made = workspace.commit("candidate/c", workspace.tip(), {"a.py": text, "b.py": f"b = {len(tips)}\n" * 9}, "m")
        merged = workspace.merge(made.commit, "merge", "merge/c")
        workspace.advance(merged.commit, workspace.tip())
        tips.append(merged.commit)
    with pytest.raises(MergeConflict, match=r"a\.py"):
        workspace.without(tips[1], tips[2], "without/c")
    assert workspace.files(workspace.without(tips[2], tips[2], "without/c").commit)["a.py"] == "a = 2\n"
    assert workspace.tip() == tips[2], "main stays where it is"
    workspace.close()


class Objecting(Rehearsal):
    """Its judge is content with nothing, and files an idea of its own."""

    IDEA = Hypothesis(
        title="answer from one kernel",
        change={},
        expected_effect=0.9,
        acceptance="the effect's interval lies above zero",
        falsification="it does not",
    )

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        if isinstance(brief, JudgeBrief):
            assert brief.tools == ("file_issue",)
            return JudgeAnswer(objections=("it reads the clock",), filed=(self.IDEA,)), Usage(author="test")
        return super().answer(brief, author)


class Failing(Rehearsal):
    """Whoever showed a gain fails its acceptance; the judge would have nothing against it."""

    judged = 0

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        self.judged += isinstance(brief, JudgeBrief)
        return super().answer(brief, author)

    def verify(self, job: VerifyJob) -> Verdict:
        verdict = super().verify(job)
        if job.candidate.startswith("r") and job.levels == ("L3",):
            gates = tuple(gate.model_copy(update={"status": "FAIL"}) for gate in verdict.gates)
            return verdict.model_copy(update={"gates": gates})
        return verdict


def test_the_judge_can_fail_a_candidate_that_passed_every_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    context = rehearse(tmp_path, prepare(tmp_path), crew=Objecting(tmp_path / "store"))
    assert any("but the judge objects: it reads the clock" in why for why in performance(context).values())
    assert not any(c.merged for name, c in context.state.candidates.items() if name.startswith("r"))
    state = context.state
    assert {one.role for one in state.filed} == {"judge"}
    tried = [issue.issue for issue in state.issues.values() if issue.issue.hypothesis == Objecting.IDEA]
    assert [issue.id for issue in tried] == ["r2-1"], "what promises most of the next round, and once"
    assert state.backlog == []


def test_the_judge_can_not_pass_a_candidate_that_failed_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew = Failing(tmp_path / "store")
    context = rehearse(tmp_path, prepare(tmp_path), crew=crew)
    assert any("but g failed" in why for why in performance(context).values())
    assert crew.judged == 0, "it is not even asked"
    assert not any(c.merged for name, c in context.state.candidates.items() if name.startswith("r"))


def test_of_a_merge_that_a_later_one_replaced_nothing_is_left_to_undo(tmp_path: Path) -> None:
    """git refuses to revert what is not there any more, which ended a run at its release."""
    workspace = Workspace(tmp_path)
    tips = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        made = workspace.commit("candidate/c", workspace.tip(), {"a.py": text}, "m")
        merged = workspace.take(made.commit, "merge", "merge/c")
        workspace.advance(merged.commit, workspace.tip())
        tips.append(merged)
    assert workspace.without(tips[1].commit, tips[2].commit, "without/c").tree == tips[2].tree
    workspace.close()


def test_a_tree_that_is_taken_whole_keeps_nothing_of_main(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    start = workspace.tip()
    other = workspace.commit("candidate/b", start, {"a.py": "a = 9\n"}, "m")
    main = workspace.commit("candidate/c", start, {"a.py": "a = 1\n", "b.py": "b = 1\n"}, "m")
    workspace.advance(workspace.take(main.commit, "merge", "merge/c").commit, start)
    taken = workspace.take(other.commit, "merge", "merge/b")
    assert taken.tree == other.tree
    assert workspace.files(taken.commit) == {"a.py": "a = 9\n"}
    parents = workspace.repo.git.rev_list("--parents", "-n", "1", taken.commit).split()[1:]
    assert parents == [workspace.tip(), other.commit]
    workspace.close()
