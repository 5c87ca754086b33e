"""Whole runs under each policy without Ray: real git, journal, merge queue and composer; the device is a function."""

import random
import re
import shutil
from pathlib import Path

import pytest

from gpu_actors.benchmark_jobs import Row
from gpu_actors.jobs import Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief, OrchestratorBrief
from swarm.context import Context, RunFiles
from swarm.journal import epoch_file
from swarm.known import known
from swarm.target import Target
from tests.unit.swarm import rehearsal
from tests.unit.swarm.rehearsal import Rehearsal, outcome, prepare, rehearse


def planned(home: Path, monkeypatch: pytest.MonkeyPatch, policy: str, rounds: int, parallel: int = 3) -> RunFiles:
    """A run that was planned under a policy."""
    monkeypatch.setenv("ENGINESMITH_HOME", str(home))
    asked = rehearsal.target

    def other(home: Path, **budget: float) -> Target:
        found = asked(home, **budget)
        search = found.search.model_copy(update={"policy": policy, "rounds": rounds, "parallel": parallel})
        return found.model_copy(update={"search": search})

    monkeypatch.setattr(rehearsal, "target", other)
    return prepare(home)


class Noted(Rehearsal):
    """Keeps the briefs. A tree that a later round made is the faster one, so that each round has a winner."""

    def __init__(self, store: Path):
        super().__init__(store)
        self.briefs: list[AnyBrief] = []
        self.made: dict[str, int] = {}

    def _row(self, arm: str, tree: str, scenario: object, repeat: int, order: int) -> Row:
        number = self.made.setdefault(tree, int(arm[1]) if re.match(r"r\d-", arm) else 0)
        row = super()._row(arm, tree, scenario, repeat, order)
        return row.model_copy(update={"tpot_ms": row.tpot_ms / 20 + 40 - 4 * number})

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        self.briefs.append(brief)
        return super().answer(brief)


def test_an_evolutionary_run_starts_candidates_from_their_parents_and_merges_what_beats_the_incumbent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Noted(tmp_path / "store")
    context = rehearse(tmp_path, planned(tmp_path, monkeypatch, "evolutionary", 5), crew)
    state = context.state
    assert state.finished
    assert state.finished.outcome == "accepted"
    children = [c for name, c in state.candidates.items() if name.startswith("r")]
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
    assert state.released
    assert state.released.tree == state.merges[-1].tree
    trees = [c.submitted.tree for c in children if c.decided and c.decided.judged and c.verdicts]
    assert len(trees) == len(set(trees)), "no tree was gated twice"


def test_what_authors_learn_of_a_child_is_its_whole_difference_from_what_it_was_measured_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its effect is one on the incumbent, whereas its hypothesis speaks of its parent."""
    context = rehearse(tmp_path, planned(tmp_path, monkeypatch, "evolutionary", 3))
    state = context.state
    child = next(c for c in state.candidates.values() if c.id.startswith("r") and not state.from_main(c))
    before = state.main_before(state.round_of(child.id)).choices
    changed = state.change_of(child)
    assert {**before, **changed} == {**before, **child.submitted.choices}
    hypothesis = state.issues[child.submitted.issue].issue.hypothesis
    assert hypothesis
    assert changed != hypothesis.change


def test_ralph_has_one_candidate_a_round_from_the_tip_of_main_and_changes_one_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Noted(tmp_path / "store")
    context = rehearse(tmp_path, planned(tmp_path, monkeypatch, "ralph", 4), crew)
    state = context.state
    assert sorted(name for name in state.candidates if name.startswith("r")) == [f"r{n}-1-c0" for n in (1, 2, 3, 4)]
    for number in (1, 2, 3, 4):
        candidate = state.candidates[f"r{number}-1-c0"]
        assert state.from_main(candidate)
        assert len(state.difference(candidate)) >= 1
    assert len({c.submitted.tree for name, c in state.candidates.items() if name.startswith("r")}) > 1
    briefs = [b for b in crew.briefs if isinstance(b, ImplementerBrief) and b.issue.startswith("r")]
    assert all(b.free and not b.change for b in briefs)
    assert not any(isinstance(b, OrchestratorBrief) for b in crew.briefs), "it asks no role"


@pytest.mark.parametrize("policy", ["evolutionary", "ralph"])
def test_a_run_under_another_policy_ends_the_same_wherever_its_driver_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    files = planned(home, monkeypatch, policy, 3)
    undisturbed = outcome(rehearse(home, files))
    lines = epoch_file(files.root / "journal", 1).read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if b'"round_opened"' in line)
    seed = random.randrange(10**6)
    for cut in sorted(random.Random(seed).sample(range(first, len(lines)), 3)):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(home, copy, symlinks=True)
        monkeypatch.setenv("ENGINESMITH_HOME", str(copy))
        again = RunFiles(copy / "runs" / "rehearsal")
        epoch_file(again.root / "journal", 1).write_bytes(b"".join(lines[:cut]))
        assert outcome(rehearse(copy, again)) == undisturbed, f"killed after line {cut} (seed {seed})"


def test_what_a_policy_knows_is_chained_over_the_incumbents_and_leaves_out_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Rehearsal):
        """One candidate of the first round fails a gate, whatever it tries."""

        def verify(self, job: VerifyJob) -> Verdict:
            verdict = super().verify(job)
            if job.candidate != "r1-1-c0":
                return verdict
            gates = tuple(gate.model_copy(update={"status": "FAIL"}) for gate in verdict.gates)
            return verdict.model_copy(update={"gates": gates})

    context = rehearse(tmp_path, planned(tmp_path, monkeypatch, "evolutionary", 4), Refusing(tmp_path / "store"))
    seen = known(context, 5)
    assert seen.trees[0].objectives == (0.0, 0.0)
    by_name = {tree.candidate: tree for tree in seen.trees}
    assert (by_name["r1-1-c0"].standing, by_name["r1-1-c0"].objectives) == ("failed", ())
    assert not any("r1-1-c0" in tree.parents for tree in seen.trees), "it was nobody's parent"
    measured = {name: speed(context, tree.commit) for name, tree in by_name.items() if tree.objectives}
    start = measured[seen.trees[0].candidate]
    assert len(measured) > 5
    for name, value in measured.items():
        if by_name[name].round < 4:  # of the last round authors see nothing
            assert 2.718281828 ** by_name[name].objectives[0] == pytest.approx(start / value, rel=0.01), name
    assert seen.incumbent.commit == context.state.merges[-1].commit


def speed(context: Context, commit: str) -> float:
    """What the rehearsal's device finds for a tree: tpot as a function of its hash."""
    trees = [(m.commit, m.tree) for m in context.state.merges]
    trees += [(c.submitted.commit, c.submitted.tree) for c in context.state.candidates.values()]
    tree = next(tree for at, tree in trees if at == commit)
    return 20 + int(tree[8:12], 16) / 65536 * 20
