"""The main flow, and that it ends the same wherever its driver was killed."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ckb.criteria import Criterion
from ckb.store import Store
from swarm.context import RunFiles
from swarm.gains import Measured
from swarm.journal import epoch_file, read_events
from swarm.merge_queue import unmet
from swarm.release import Manifest
from swarm.workspace import Workspace
from tests.unit.swarm.rehearsal import Rehearsal, outcome, prepare, rehearse


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFiles, str]:
    """A run from its first to its last event."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINESMITH_HOME", str(home))
        files = prepare(home)
        return home, files, outcome(rehearse(home, files))


def test_a_run_ends_with_an_engine_rows_for_all_and_a_new_version_of_the_knowledge(
    whole: tuple[Path, RunFiles, str],
) -> None:
    home, files, _ = whole
    events = read_events(files.root)
    kinds = Counter(event.kind for event in events)
    assert kinds["run_finished"] == kinds["engine_released"] == kinds["consolidated"] == 1
    assert kinds["candidate_decided"] == len({e.candidate for e in events if e.kind == "candidate_submitted"})
    released = next(event for event in events if event.kind == "engine_released")
    assert (home / released.path / "manifest.json").is_file()
    assert (home / "engines" / "tiny" / "latest").resolve() == (home / released.path).resolve()
    assert Store(home / "store").latest == 2
    assert any(event.kind == "merged" and event.candidate.startswith("r") for event in events), "no gain was merged"


def test_wherever_the_driver_is_killed_the_run_ends_the_same(
    whole: tuple[Path, RunFiles, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any event. Git may be ahead of the journal by what was not journalled: it holds all commits here."""
    home, files, undisturbed = whole
    lines = epoch_file(files.root / "journal", 1).read_bytes().splitlines(keepends=True)
    seed = random.randrange(10**6)
    performance = next(i for i, line in enumerate(lines) if b'"round_opened"' in line)
    early = random.Random(seed).sample(range(1, performance), 2)
    late = random.Random(seed).sample(range(performance, len(lines)), 4)
    for cut in sorted(early + late):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(home, copy, symlinks=True)
        monkeypatch.setenv("ENGINESMITH_HOME", str(copy))
        again = RunFiles(copy / "runs" / "rehearsal")
        epoch_file(again.root / "journal", 1).write_bytes(b"".join(lines[:cut]))
        assert outcome(rehearse(copy, again)) == undisturbed, (
            f"killed after line {cut} (seed {seed}): {lines[cut - 1]!r}"
        )
        decided = Counter(e.candidate for e in read_events(again.root) if e.kind == "candidate_decided")
        assert set(decided.values()) == {1}, f"cut {cut}: {decided}"
        shutil.rmtree(copy)


def test_what_a_busy_machine_left_unmeasured_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    state = rehearse(tmp_path, prepare(tmp_path), Rehearsal(tmp_path / "store", busy=1)).state
    rows = {name: c for name, c in state.candidates.items() if name.startswith("r") and c.decided}
    first = {c.submitted.tree for name, c in rows.items() if name.startswith("r1")}
    again = {c.submitted.tree: c for name, c in rows.items() if name.startswith("r2")}
    assert all(c.decided and not c.decided.judged for name, c in rows.items() if name.startswith("r1"))
    assert first <= again.keys()
    assert all(again[tree].decided.judged for tree in first)  # type: ignore[union-attr]


def test_what_is_released_names_all_that_its_tree_passed(whole: tuple[Path, RunFiles, str]) -> None:
    home, files, _ = whole
    released = next(event for event in read_events(files.root) if event.kind == "engine_released")
    manifest = Manifest.model_validate_json((home / released.path / "manifest.json").read_bytes())
    assert {level for verdict in manifest.verdicts for level in verdict.levels} == {"L0", "L1", "L2", "L3"}
    assert [v.acceptance for v in manifest.verdicts][-2:] == ["screen", "fresh"]
    assert {verdict.tree for verdict in manifest.verdicts} == {released.tree}
    assert manifest.verdicts[-1].levels == ("L3",), "its tree passed the other levels in its round"


def test_an_implementer_that_fails_ends_its_candidate_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    state = rehearse(tmp_path, prepare(tmp_path), Rehearsal(tmp_path / "store", failing=True)).state
    assert state.finished
    assert state.finished.outcome == "accepted"
    rows = {name: c.decided.reason for name, c in state.candidates.items() if c.decided}
    assert rows["s1-c1"] == "its implementer gave no answer: it broke the format 3 times"
    assert rows["s2-c2"] == "its implementer misses the contract paged-cache"
    paid = [call.candidate for call in state.roles if call.usage.author == "litellm"]
    assert sorted(paid) == sorted(f"s{n}-c{i}" for n in (1, 2, 3, 4) for i in (1, 2)), "its cost is journalled"


def test_an_earlier_attempt_stays_reachable(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    base = workspace.tip()
    first, second = (workspace.commit("candidate/c", base, {"a.py": text}, "m") for text in ("a = 1", "a = 2"))
    assert workspace.tip("candidate/c") == second.commit
    kept = workspace.repo.git.for_each_ref("refs/attempts/candidate/c", format="%(objectname)").split()
    assert set(kept) == {first.commit, second.commit}
    workspace.close()


def test_a_hard_limit_in_a_round_ends_the_search_and_not_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four verdicts of the stages take 40 s of the device; the limit falls among the three of round 1."""
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    state = rehearse(tmp_path, prepare(tmp_path, device_seconds=55)).state
    assert state.finished
    assert state.finished.outcome == "accepted"
    assert "budget.device_seconds" in state.finished.reason
    assert state.released
    assert all(candidate.decided for candidate in state.candidates.values())
    assert all(issue.closed for issue in state.issues.values())


def test_every_issue_names_the_knowledge_of_the_plan_and_not_the_newest(whole: tuple[Path, RunFiles, str]) -> None:
    home, files, _ = whole
    versions = [event.ckb_version for event in read_events(files.root) if event.kind == "issue_opened"]
    assert set(versions) == {files.read_plan().ckb_version} == {1}
    assert len(versions) > 4, "issues of rounds too"
    assert Store(home / "store").latest == 2


def test_a_stage_that_lacks_memory_ends_the_run_blocked_and_a_larger_machine_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    files = prepare(tmp_path)
    small = Rehearsal(tmp_path / "store", short=lambda job: "L3" in job.levels)
    state = rehearse(tmp_path, files, small).state
    assert state.finished
    assert state.finished.outcome == "blocked"
    assert "g asks for 2,000,000,000 bytes, available are 1,000,000,000" in state.finished.reason
    held = [c for c in state.candidates.values() if c.blocked]
    assert [c.id for c in held] == ["s4-c0"]
    assert not any(c.decided for c in held), "it was neither passed nor failed"
    larger = rehearse(tmp_path, files).state
    assert larger.finished
    assert larger.finished.outcome == "accepted"
    assert not any(c.blocked for c in larger.candidates.values())


def test_a_candidate_of_a_round_that_lacks_memory_is_listed_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew = Rehearsal(tmp_path / "store", short=lambda job: job.candidate.startswith("r1"))
    state = rehearse(tmp_path, prepare(tmp_path), crew).state
    assert state.finished
    assert state.finished.outcome == "accepted"
    rows = [c for c in state.candidates.values() if c.id.startswith("r1")]
    assert rows
    assert all(c.decided and not c.decided.judged and "blocked by hardware" in c.decided.reason for c in rows)
    assert not any(issue.analysis for issue in state.issues.values()), "nobody is blamed"
    assert {c.submitted.tree for c in rows} <= {c.submitted.tree for c in state.candidates.values() if c.id[:2] == "r2"}


def test_criteria_of_an_issue_run_on_its_candidate_and_decide_over_its_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    crew = Rehearsal(tmp_path / "store")
    state = rehearse(tmp_path, prepare(tmp_path), crew).state
    asked = [job for job in crew.asked if job.candidate.startswith("r1") and "L1" in job.levels]
    assert asked
    for job in asked:
        assert {c.part for c in job.criteria} == {"acceptance", "activation", "falsification"}
        assert (Path(job.base_dir) / "kernels.py").is_file()
        assert job.base_dir != job.engine.tree_dir
    issue = state.issues["r1-1"].issue
    demanding = Criterion(part="acceptance", command="benchmark", metric="effect", comparison=">=", value=0.5)
    strict = issue.model_copy(update={"criteria": (demanding,)})
    small, large = (Measured("c", effect, effect - 0.02, effect + 0.02, 20.0) for effect in (0.1, 0.6))
    assert unmet(issue, small) == unmet(issue, large) == unmet(strict, large) == ""
    assert unmet(strict, small) == "acceptance: effect >= 0.5 (benchmark): found 0.1"
