"""The run's git repository: branches, whole trees, merges, and nothing of the user's git."""

import subprocess
from pathlib import Path

import pytest

from ckb.hashing import tree_sha256
from swarm.workspace import MergeConflict, TakenOver, Workspace

TWELVE = "\n".join(f"line{i} = {i}" for i in range(12)) + "\n"


def test_candidates_are_branches_and_the_tree_hash_is_that_of_the_files(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    base = space.tip()
    made = space.commit("candidate/s1-c0", base, {"kernels.py": "x = 1\n", "cache.py": "y = 2\n"}, "first")
    assert space.files(made.commit) == {"kernels.py": "x = 1\n", "cache.py": "y = 2\n"}
    assert space.branches() == ["candidate/s1-c0", "main"]
    assert made.lines == 2
    folder = space.checkout(made.commit, "tree")
    assert tree_sha256(folder) == made.tree
    assert folder.name.isidentifier()
    assert space.tip() == base


def test_a_commit_removes_what_the_answer_left_out_and_replaces_a_branch_of_a_dead_driver(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    first = space.commit("candidate/a", space.tip(), {"kernels.py": "x = 1\n", "old.py": "z = 3\n"}, "m")
    space.advance(first.commit, space.tip())
    space.commit("candidate/b", space.tip(), {"kernels.py": "half\n"}, "m")
    again = Workspace(tmp_path).commit("candidate/b", space.tip(), {"kernels.py": "x = 2\n"}, "m")
    assert space.files(again.commit) == {"kernels.py": "x = 2\n"}


def test_independent_changes_merge_and_a_conflict_names_the_file(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.advance(space.commit("candidate/base", space.tip(), {"kernels.py": TWELVE}, "m").commit, space.tip())
    base = space.tip()
    top = space.commit("candidate/top", base, {"kernels.py": TWELVE.replace("line0 = 0", "line0 = 9")}, "m")
    end = space.commit("candidate/end", base, {"kernels.py": TWELVE.replace("line11 = 11", "line11 = 9")}, "m")
    clash = space.commit("candidate/clash", base, {"kernels.py": TWELVE.replace("line0 = 0", "line0 = 8")}, "m")
    first = space.merge(top.commit, "merge top", "merge/top")
    assert first.tree == top.tree
    assert space.tip() == base
    space.advance(first.commit, base)
    both = space.merge(end.commit, "merge end", "merge/end")
    assert "line0 = 9" in space.files(both.commit)["kernels.py"]
    assert "line11 = 9" in space.files(both.commit)["kernels.py"]
    space.advance(both.commit, first.commit)
    with pytest.raises(MergeConflict, match=r"kernels\.py"):
        space.merge(clash.commit, "merge clash", "merge/clash")


def test_nothing_of_the_users_git_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose configuration signs commits, or names no identity at all, gets the same commits."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[commit]\n gpgsign = true\n[core]\n hooksPath = /nowhere\n[init]\n defaultBranch = x\n"
    )
    monkeypatch.setenv("HOME", str(home))
    space = Workspace(tmp_path / "run with spaces é")
    made = space.commit("candidate/a", space.tip(), {"kernels.py": "x = 'é'\n"}, "m")
    author = subprocess.run(
        ["git", "--git-dir", str(space.repo_dir), "log", "-1", "--format=%an <%ae>", made.commit],
        capture_output=True,
        text=True,
        check=True,
    )
    assert author.stdout.strip() == "Enginesmith <swarm@enginesmith.invalid>"


def test_a_repository_that_was_never_finished_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "repo.tmp").mkdir()
    (tmp_path / "repo.tmp" / "HEAD").write_text("rubbish")
    assert Workspace(tmp_path).branches() == ["main"]


def test_a_driver_that_was_frozen_can_not_move_main_back(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    start = space.tip()
    older = space.commit("candidate/a", start, {"kernels.py": "x = 1\n"}, "m")
    newer = space.commit("candidate/b", older.commit, {"kernels.py": "x = 2\n"}, "m")
    space.advance(newer.commit, start)
    with pytest.raises(TakenOver, match="another driver moved it"):
        space.advance(older.commit, start)
    assert space.tip() == newer.commit
    space.restore(None)
    assert space.tip() == start


def test_the_files_of_a_commit_are_its_own_whatever_was_done_with_what_was_handed_out(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    first = workspace.commit("candidate/c", workspace.tip(), {"a.py": "a = 1\n"}, "m")
    workspace.files(first.commit)["a.py"] = "spoiled"
    second = workspace.commit("candidate/c", first.commit, {"a.py": "a = 2\n"}, "m")
    assert workspace.files(first.commit) == {"a.py": "a = 1\n"}
    assert workspace.files(second.commit) == {"a.py": "a = 2\n"}
    workspace.close()
