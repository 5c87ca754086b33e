"""Whole runs under each policy without Ray: real git, journal, merge queue and composer; the device is a function."""

import math
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_actors.benchmark_jobs import Row
from gpu_actors.jobs import Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief, OrchestratorBrief
from roles.settings import SingleAuthor
from swarm.context import Context, RunFiles
from swarm.journal import epoch_file
from swarm.known import known
from swarm.lessons import measured_effect
from tests.unit.swarm.rehearsal import Rehearsal, outcome, prepare, rehearse

ROUNDS = 5


def planned(home: Path, patch: pytest.MonkeyPatch, policy: str, rounds: int) -> RunFiles:
    """A run that was planned under a policy."""
    patch.setenv("ENGINESMITH_HOME", str(home))
    return prepare(home, policy=policy, rounds=rounds)


class Improving(Rehearsal):
    """A tree that a later round made is the faster one, so that each round has a winner. One candidate of the first
    round fails a gate, whatever it tries. Keeps the briefs."""

    REFUSED = "r1-1-c0"

    def __init__(self, store: Path):
        super().__init__(store)
        self.briefs: list[AnyBrief] = []
        self.made: dict[str, int] = {}

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        self.briefs.append(brief)
        return super().answer(brief, author)

    def verify(self, job: VerifyJob) -> Verdict:
        verdict = super().verify(job)
        if job.candidate != self.REFUSED:
            return verdict
        gates = tuple(gate.model_copy(update={"status": "FAIL"}) for gate in verdict.gates)
        return verdict.model_copy(update={"gates": gates})

    def speed(self, tree: str) -> float:
        return 40 - 4 * self.made[tree] + int(tree[8:12], 16) / 65536

    def _row(self, arm: str, tree: str, scenario: object, repeat: int, order: int) -> Row:
        self.made.setdefault(tree, int(arm[1]) if re.match(r"r\d-", arm) else 0)
        row = super()._row(arm, tree, scenario, repeat, order)
        return row.model_copy(update={"tpot_ms": self.speed(tree) * (1 + 0.001 * repeat)}) if tree else row


Run = tuple[Context, Improving]


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """An evolutionary run."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        crew = Improving(home / "store")
        yield rehearse(home, planned(home, patch, "evolutionary", ROUNDS), crew), crew


def test_candidates_start_from_their_parents_and_one_that_beats_the_incumbent_replaces_it_whole(evolved: Run) -> None:
    context, crew = evolved
    state = context.state
    assert state.finished
    assert state.finished.outcome == "accepted"
    rounds = [c for name, c in state.candidates.items() if name.startswith("r")]
    children = [c for c in rounds if not state.issues[c.submitted.issue].issue.combines]  # no policy asked for those
    lineages = [c for c in children if not state.from_main(c)]
    assert lineages, "all started from main"
    for child in children:
        issue = state.issues[child.submitted.issue].issue
        parent = state.candidates[issue.parents[0]]
        at = parent.merged.commit if parent.merged else parent.submitted.commit
        assert issue.base == at
        assert context.workspace.repo.git.merge_base(child.submitted.commit, at) == at, "git knows its parent"
        brief = next(b for b in crew.briefs if isinstance(b, ImplementerBrief) and b.issue == issue.id)
        assert brief.choices == state.choices_at(at)
        assert issue.hypothesis
        assert issue.hypothesis.change.items() <= child.submitted.choices.items()
    merged = [c for c in lineages if c.merged]
    assert merged, "no tree of another lineage was merged"
    for child in merged:
        assert child.merged
        assert child.merged.tree == child.submitted.tree, "it replaces what was there"
        assert child.merged.choices == child.submitted.choices
        before = state.main_before(state.round_of(child.id))
        assert context.workspace.repo.git.rev_parse(f"{child.merged.commit}^1") == before.commit
    gained = [c for c in lineages if not c.merged and c.decided and c.decided.interval and c.decided.interval[0] > 0.01]
    assert gained, "no round had two that gained"
    for child in gained:
        assert child.decided
        assert "this tree of another lineage would replace it" in child.decided.reason
    assert state.released
    assert state.released.tree == state.merges[-1].tree
    trees = [c.submitted.tree for c in children if c.decided and c.decided.judged and c.verdicts]
    assert len(trees) == len(set(trees)), "no tree was gated twice"


def test_what_authors_learn_of_a_child_is_its_whole_difference_from_what_it_was_measured_against(evolved: Run) -> None:
    """Its effect is one on the incumbent, whereas its hypothesis speaks of its parent."""
    state = evolved[0].state
    children = [c for c in state.candidates.values() if c.id.startswith("r") and not state.from_main(c)]
    asked, told = [], []
    for child in children:
        before, changed = state.main_before(state.round_of(child.id)).choices, state.change_of(child)
        assert {**before, **changed} == {**before, **child.submitted.choices}
        hypothesis = state.issues[child.submitted.issue].issue.hypothesis
        assert hypothesis
        asked.append(hypothesis.change == changed)
        if lesson := measured_effect(evolved[0], child):
            told.append(lesson.change == changed)
    assert not all(asked)
    assert told
    assert all(told)


def test_what_a_policy_knows_is_chained_over_the_incumbents_and_leaves_out_what_failed(evolved: Run) -> None:
    context, crew = evolved
    seen = known(context, ROUNDS + 1)
    assert seen.trees[0].objectives == (0.0, 0.0)
    by_name = {tree.candidate: tree for tree in seen.trees}
    assert (by_name[crew.REFUSED].standing, by_name[crew.REFUSED].objectives) == ("failed", ())
    assert not any(crew.REFUSED in tree.parents for tree in seen.trees), "it was nobody's parent"
    state = context.state
    trees = {m.commit: m.tree for m in state.merges}
    trees |= {c.submitted.commit: c.submitted.tree for c in state.candidates.values()}
    # authors see nothing of the last round's benchmark
    measured = {n: trees[t.commit] for n, t in by_name.items() if t.objectives and t.round < ROUNDS}
    start = crew.speed(trees[seen.trees[0].commit])
    assert len({by_name[name].round for name in measured}) == ROUNDS
    for name, tree in measured.items():
        assert math.exp(by_name[name].objectives[0]) == pytest.approx(start / crew.speed(tree), rel=0.01), name
    assert seen.incumbent.commit == state.merges[-1].commit


def test_ralph_has_one_candidate_a_round_from_the_tip_of_main_and_asks_no_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Improving(tmp_path / "store")
    state = rehearse(tmp_path, planned(tmp_path, monkeypatch, "ralph", 3), crew).state
    candidates = [c for name, c in sorted(state.candidates.items()) if name.startswith("r")]
    assert [c.id for c in candidates] == ["r1-1-c0", "r2-1-c0", "r3-1-c0"]
    assert all(state.from_main(c) and state.difference(c) for c in candidates)
    assert candidates[1].merged
    assert state.issues["r3-1"].issue.base == candidates[1].merged.commit
    assert len({c.submitted.tree for c in candidates}) > 1
    briefs = [b for b in crew.briefs if isinstance(b, ImplementerBrief) and b.issue.startswith("r")]
    assert all(b.free and not b.change for b in briefs)
    assert not any(isinstance(b, OrchestratorBrief) for b in crew.briefs)


@pytest.mark.slow  # as under the default policy, which is always tried (test_orchestrator)
def test_an_evolutionary_run_ends_the_same_wherever_its_driver_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    files = planned(home, monkeypatch, "evolutionary", 2)
    undisturbed = outcome(rehearse(home, files))
    lines = epoch_file(files.root / "journal", 1).read_bytes().splitlines(keepends=True)
    opened = [i for i, line in enumerate(lines) if b'"round_opened"' in line]
    seed = random.randrange(10**6)
    for cut in {opened[1], random.Random(seed).randrange(opened[0] + 1, len(lines))}:  # one before it was decided
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(home, copy, symlinks=True)
        monkeypatch.setenv("ENGINESMITH_HOME", str(copy))
        again = RunFiles(copy / "runs" / "rehearsal")
        epoch_file(again.root / "journal", 1).write_bytes(b"".join(lines[:cut]))
        assert outcome(rehearse(copy, again)) == undisturbed, f"killed after line {cut} (seed {seed})"
