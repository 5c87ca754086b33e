"""What the merge queue gives back: a conflict or a lost gain is one new issue about both candidates."""

from pathlib import Path

import pytest

from gpu_actors.benchmark_jobs import Row
from gpu_actors.jobs import Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief
from roles.settings import SingleAuthor
from swarm.inner_loop import ALL_LEVELS
from swarm.journal import read_events
from swarm.returns import diff_of, waiting
from swarm.state import fold
from tests.unit.swarm.rehearsal import Rehearsal, prepare, rehearse

STEPS = {"r1-1-c0": 30.0, "r1-2-c0": 32.0, "r2-m1-c0": 25.0}
"""Milliseconds a token of the candidates that gain; 40 is what the others and the start take."""


class TwoWinners(Rehearsal):
    """Two candidates of round 1 gain, and a merge of them is slower than either."""

    def __init__(self, store: Path, conflicting: bool):
        """`conflicting`: the two write other words into the same line."""
        super().__init__(store)
        self.conflicting = conflicting
        self.told: dict[str, ImplementerBrief] = {}
        self.steps: dict[str, float] = {}

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        if isinstance(brief, ImplementerBrief):
            self.told[brief.issue] = brief
        answer, usage = super().answer(brief, author)
        if self.conflicting and isinstance(brief, ImplementerBrief) and brief.issue in ("r1-1", "r1-2"):
            files = {**answer.files, "engine.py": f"# {brief.issue}\n{answer.files['engine.py']}"}  # type: ignore[union-attr]
            answer = answer.model_copy(update={"files": files})
        return answer, usage

    def verify(self, job: VerifyJob) -> Verdict:
        merge = job.candidate.startswith("r") and job.levels == ALL_LEVELS
        self.steps.setdefault(job.engine.tree, 50.0 if merge else STEPS.get(job.candidate, 40.0))
        return super().verify(job)

    def _row(self, arm: str, tree: str, scenario: object, repeat: int, order: int) -> Row:
        row = super()._row(arm, tree, scenario, repeat, order)
        tpot = self.steps.get(tree, 40.0) * (1 + 0.001 * repeat)
        return row.model_copy(update={"tpot_ms": tpot, "latency_ms": 5 + 7 * tpot, "decode_tok_s": 1000 / tpot})


def test_a_conflict_comes_back_as_one_issue_about_both_candidates_and_is_tried_before_new_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew, files = TwoWinners(tmp_path / "store", conflicting=True), prepare(tmp_path)
    state = rehearse(tmp_path, files, crew=crew).state
    (pair,) = state.returned
    assert (pair.merged, pair.lost, pair.measured) == ("r1-1-c0", "r1-2-c0", None)
    assert "engine.py" in pair.reason
    issues = state.opened[2].issues
    assert issues[0].id == "r2-m1"
    assert issues[0].combines == ("r1-1-c0", "r1-2-c0")
    assert len(issues) <= 3
    brief = crew.told["r2-m1"]
    assert brief.combination
    assert "+# r1-1" in brief.combination.merged.diff
    assert "+# r1-2" in brief.combination.lost.diff
    assert "%" not in brief.combination.why, "no figure that decides is told"
    both = state.difference(state.candidates["r1-1-c0"]) | state.difference(state.candidates["r1-2-c0"])
    made = state.candidates["r2-m1-c0"]
    assert both.items() <= made.submitted.choices.items()
    assert made.merged
    closed = state.issues["r2-m1"].closed
    assert closed
    assert closed.outcome == "merged"


def test_a_gain_that_is_lost_in_the_merge_comes_back_once_and_nothing_new_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew, files = TwoWinners(tmp_path / "store", conflicting=False), prepare(tmp_path, rounds=3)
    state = rehearse(tmp_path, files, crew=crew).state
    (pair,) = state.returned
    assert pair.measured
    assert "lost in the merge with r1-1-c0" in pair.reason
    assert [i for i in state.issues if "-m" in i] == ["r2-m1"], "a pair is given out once"
    closed = state.issues["r2-m1"].closed
    assert closed
    assert closed.outcome == "exhausted"
    decided = state.candidates["r2-m1-c0"].decided
    assert decided
    assert "nothing new comes of r1-1-c0 and r1-2-c0: together they are the plain merge" in decided.reason
    events = read_events(files.root)
    before = fold(event for event in events if event.kind != "round_opened" or event.round < 2)
    assert waiting(before) == [pair], "until the round that gives it out is opened"
    assert waiting(state) == []


def test_a_diff_names_files_that_came_and_went() -> None:
    text = diff_of({"a.py": "x = 1\n", "same.py": "s\n"}, {"b.py": "y = 2\n", "same.py": "s\n"})
    assert text.splitlines() == [
        "--- a.py", "+++ a.py", "@@ -1 +0,0 @@", "-x = 1", "--- b.py", "+++ b.py", "@@ -0,0 +1 @@", "+y = 2",
    ]  # fmt: skip
