"""The run's own git repository: RUN/repo.git, a branch for each candidate, a worktree where it is written.

The repository one works in is never touched, and nothing of the user's git configuration (identity, hooks, signing)
takes part.
"""

import io
import re
import shutil
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ckb.errors import UserError
from ckb.hashing import tree_sha256

try:
    import git
except ImportError as error:  # GitPython raises ImportError when there is no git command
    raise UserError(f"git is needed and can't be used: {error}. Install git and start again.") from error

MAIN = "main"
IDENTITY = {
    "GIT_AUTHOR_NAME": "Enginesmith",
    "GIT_AUTHOR_EMAIL": "swarm@enginesmith.invalid",
    "GIT_COMMITTER_NAME": "Enginesmith",
    "GIT_COMMITTER_EMAIL": "swarm@enginesmith.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


class TakenOver(UserError):
    """Another driver has taken the run over; this one must end."""


class MergeConflict(Exception):
    """Two candidates changed the same lines."""

    def __init__(self, files: list[str]):
        super().__init__(f"conflict in {', '.join(files)}")
        self.files = files


@dataclass(frozen=True)
class Committed:
    """A candidate's tree in git."""

    branch: str
    commit: str
    tree: str
    """ckb.hashing.tree_sha256 of the files."""
    lines: int


KEPT = 256
"""Commits whose files are remembered: a commit never changes, and its implementer, its reviewer and its gates all ask
for it, behind one lock."""


@dataclass(frozen=True)
class Written:
    """The commit that brought a line, and where the line stood in it."""

    commit: str
    file: str
    line: int


def _written(block: str) -> Written:
    """What `git blame --line-porcelain` says of one line: commit, its number then, and headers."""
    commit, line, *_ = block.split()
    file = re.search(r"^filename (.*)$", block, flags=re.MULTILINE)
    assert file, "git names the file of each line"
    return Written(commit=commit, file=file[1], line=int(line))


class Workspace:
    """Branches, worktrees and merges of one run. Git's locks are not made for many writers: one operation at a time."""

    def __init__(self, run_dir: Path):
        self.repo_dir = run_dir / "repo.git"
        self.worktrees = run_dir / "worktrees"
        self.checkouts = run_dir / "trees"
        self._lock = threading.RLock()
        self._files = lru_cache(KEPT)(self._read)
        if not (self.repo_dir / "HEAD").exists():
            self._init()
        self.repo = git.Repo(self.repo_dir)
        self.repo.git.update_environment(**IDENTITY)

    def _init(self) -> None:
        """Made beside and renamed: a driver that is killed here leaves no half repository."""
        draft = self.repo_dir.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        repo = git.Repo.init(draft, bare=True, initial_branch=MAIN)
        repo.git.update_environment(**IDENTITY)
        empty = repo.git.hash_object("-t", "tree", "-w", "/dev/null")
        repo.git.update_ref(f"refs/heads/{MAIN}", repo.git.commit_tree(empty, m="Start: an empty engine"))
        repo.close()
        draft.rename(self.repo_dir)

    def tip(self, branch: str = MAIN) -> str:
        return str(self.repo.git.rev_parse(f"refs/heads/{branch}"))

    def files(self, commit: str) -> dict[str, str]:
        """Path -> text of every file of a commit, which is given by its hash: a name would mean another one later.
        Whoever asks may change what it gets."""
        return dict(self._files(commit))

    def _read(self, commit: str) -> dict[str, str]:
        with self._lock:
            packed: bytes = self.repo.git.archive(
                f"{commit}^{{tree}}", format="tar", stdout_as_string=False, strip_newline_in_stdout=False
            )
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = [(member.name, archive.extractfile(member)) for member in archive if member.isfile()]
            return {name: file.read().decode() for name, file in files if file}

    def changed_lines(self, start: str, commit: str) -> tuple[int, int]:
        """Lines that a commit has and `start` has not, and the other way round."""
        with self._lock:
            told = self.repo.git.diff("--numstat", "--no-renames", start, commit)
        counts = [line.split("\t")[:2] for line in told.splitlines()]
        pairs = [(int(added), int(deleted)) for added, deleted in counts if added != "-"]  # which stands for no text
        return sum(added for added, _ in pairs), sum(deleted for _, deleted in pairs)

    def written(self, commit: str, file: str) -> list[Written]:
        """Who brought each line of a file of a commit, from the first line on."""
        with self._lock:
            told = self.repo.git.blame(commit, "--", file, line_porcelain=True)
        blocks = re.split(r"^\t.*\n?", told, flags=re.MULTILINE)[:-1]  # the line itself ends what is said of it
        return [_written(block) for block in blocks]

    def commit(self, branch: str, base: str, files: dict[str, str], message: str) -> Committed:
        """Writes a whole tree on a branch that starts at `base`, in a worktree of its own.

        A branch and worktree of the same name, left by a driver that died before it journalled them, are replaced.
        """
        with self._lock, self._worktree(branch, base) as work:
            folder = Path(work.working_dir)
            for old in self.files(base).keys() - files.keys():
                (folder / old).unlink()
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            work.git.add("--all")
            work.git.commit("--allow-empty", "--no-verify", "-m", message)
            return self._committed(branch, work)

    @contextmanager
    def _worktree(self, branch: str, base: str) -> Iterator[git.Repo]:
        """A fresh worktree at `base`. Its branch is set when the work is done, not checked out: git would refuse a
        branch that the worktree of a run's copy, or of a dead driver, still holds."""
        folder = self.worktrees / branch.replace("/", "-")
        shutil.rmtree(folder, ignore_errors=True)
        self.repo.git.worktree("prune")
        self.repo.git.worktree("add", "--force", "--detach", str(folder), base)
        work = git.Repo(folder)
        work.git.update_environment(**IDENTITY)
        try:
            yield work
        finally:
            work.close()

    def _committed(self, branch: str, work: git.Repo) -> Committed:
        commit = str(work.git.rev_parse("HEAD"))
        self.repo.git.update_ref(f"refs/heads/{branch}", commit)
        self.repo.git.update_ref(
            f"refs/attempts/{branch}/{commit}", commit
        )  # the branch may start anew: nothing is lost
        lines = sum(text.count("\n") for text in self.files(commit).values())
        return Committed(branch, commit, tree_sha256(Path(work.working_dir)), lines)

    def checkout(self, commit: str, name: str) -> Path:
        """A plain folder (no .git in it) with the files of a commit, named so that Python can import it."""
        with self._lock:
            folder = self.checkouts / f"{name}_{commit[:12]}" / "engine"
            if folder.is_dir():
                return folder
            draft = folder.parent.with_suffix(".tmp")
            shutil.rmtree(draft, ignore_errors=True)
            for path, text in self.files(commit).items():
                (draft / "engine" / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / "engine" / path).write_text(text, encoding="utf-8")
            draft.rename(folder.parent)
            return folder

    def merge(self, commit: str, message: str, branch: str) -> Committed:
        """Merges a candidate's commit with main's tip on `branch`, without touching main. Raises MergeConflict."""
        with self._lock, self._worktree(branch, self.tip()) as work:
            try:
                work.git.merge("--no-ff", "--no-verify", "-m", message, commit)
            except git.GitCommandError as error:
                conflicts = [line for line in work.git.diff("--name-only", "--diff-filter=U").splitlines() if line]
                if not conflicts:
                    raise
                work.git.merge("--abort")
                raise MergeConflict(conflicts) from error
            return self._committed(branch, work)

    def take(self, commit: str, message: str, branch: str) -> Committed:
        """A merge of a candidate's commit with main's tip, on `branch`, that has the candidate's tree and nothing of
        what main has else. Main is not touched."""
        with self._lock:
            parents = ("-p", self.tip(), "-p", commit)
            merged = str(self.repo.git.commit_tree(f"{commit}^{{tree}}", *parents, "-m", message))
            with self._worktree(branch, merged) as work:
                return self._committed(branch, work)

    def without(self, merge: str, tip: str, branch: str) -> Committed:
        """The tree at `tip` with one merge below it undone, on `branch`. Raises MergeConflict where a later one changed
        the same lines; where a later one replaced them all, it is the tree at `tip`."""
        with self._lock, self._worktree(branch, tip) as work:
            try:
                work.git.revert("--no-edit", "-m", "1", merge)
            except git.GitCommandError as error:
                conflicts = [line for line in work.git.diff("--name-only", "--diff-filter=U").splitlines() if line]
                if conflicts:
                    work.git.revert("--abort")
                    raise MergeConflict(conflicts) from error
                if work.is_dirty(untracked_files=True):
                    raise  # else nothing of the merge is left, and git has nothing to commit
            return self._committed(branch, work)

    def advance(self, commit: str, expected: str) -> None:
        """Moves main from `expected`. A driver that was frozen meanwhile finds it elsewhere, and leaves it there."""
        with self._lock:
            try:
                self.repo.git.update_ref(f"refs/heads/{MAIN}", commit, expected)
            except git.GitCommandError as error:
                raise TakenOver(f"main is at {self.tip()}, not at {expected}: another driver moved it") from error

    def restore(self, commit: str | None) -> None:
        """Puts main where the journal says it is; None: at the start, nothing has been merged."""
        with self._lock:
            start = self.repo.git.rev_list("--max-parents=0", f"refs/heads/{MAIN}")
            self.repo.git.update_ref(f"refs/heads/{MAIN}", commit or start)

    def branches(self) -> list[str]:
        return sorted(head.name for head in self.repo.heads)

    def close(self) -> None:
        self.repo.close()
