"""What the user brings along: the files behind the `user:` block of a Target, and a trial of its commands.

A command is tried on the reference before any candidate exists: one that crashes, hangs, refuses the reference or
prints no metric can judge nothing, and the run ends before it began.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import Field

from benchmarks.baselines import reference_engine
from benchmarks.metrics import USER_METRIC
from ckb.command_lines import words_of
from ckb.errors import UserError
from ckb.facts import Facts, Frozen
from ckb.hashing import sha256_file, tree_sha256
from gpu_actors.jobs import EngineJob
from gpu_actors.readable import REFERENCE_PACKAGES, reference_packages
from gpu_actors.user import UserRun, run_user_benchmark, run_user_checker
from swarm.paths import resolve
from swarm.target import Target, User

TRIAL_S = 300.0
EMPTY = "leave the key out"
"""Most time of one command on the reference."""
Note = Callable[[str], None]


class UserFiles(Frozen):
    """File -> sha256 of what the block names, by the key that names it."""

    reference: dict[str, str] = Field(default_factory=dict)
    checker: dict[str, str] = Field(default_factory=dict)
    benchmark: dict[str, str] = Field(default_factory=dict)


def user_files(user: User) -> UserFiles:
    """Finds and hashes the user's files. Raises UserError for one that is not there, for a command whose program
    can't be run, and for a reference that no command would be tried on."""
    if user.reference and not (user.checker or user.benchmark):
        raise UserError(
            "user.reference: it is what user.checker and user.benchmark are tried on, and neither is set; set one of "
            "them or leave it out (engines are compared with Hugging Face in any case)"
        )
    reference = [existing("user.reference", user.reference)] if user.reference else []
    checker = command_files("user.checker", user.checker) if user.checker else []
    benchmark = command_files("user.benchmark", user.benchmark) if user.benchmark else []
    return UserFiles(reference=hashes(reference), checker=hashes(checker), benchmark=hashes(benchmark))


def hashes(files: list[Path]) -> dict[str, str]:
    return {str(path): sha256_file(path) for path in files}


def command_files(field: str, line: str) -> list[Path]:
    """The files of the user's own in a command line; the program may be one of them or a command on PATH."""
    program, *arguments = words_of(line, field, empty=EMPTY)
    files = [existing(field, word) for word in arguments if looks_like_a_file(word)]
    if resolve(program).is_file():
        if not os.access(resolve(program), os.X_OK):
            raise UserError(f"{field}: {resolve(program)} is not executable: chmod +x it, or write `python {program}`")
        return [resolve(program), *files]
    if not shutil.which(program):
        raise UserError(f"{field}: {program} is neither a file below ENGINESMITH_HOME nor a command on PATH")
    return files


def absolute_command(line: str) -> str:
    """A command line whose files are absolute paths, so that it runs in any folder; "" for no command."""
    if not line:
        return ""
    words = [str(resolve(w)) if looks_like_a_file(w) else w for w in words_of(line, "user", empty=EMPTY)]
    return shlex.join(words)


def looks_like_a_file(word: str) -> bool:
    """Whether a word names a file: it exists, or it ends like a script."""
    return not word.startswith("-") and (resolve(word).is_file() or word.endswith((".py", ".sh")))


def existing(field: str, name: str) -> Path:
    path = resolve(name)
    if not path.is_file():
        raise UserError(f"{field}: {path} is {'no file' if path.exists() else 'not there'}")
    return path


def try_commands(target: Target, facts: Facts, cache_dir: Path, note: Note) -> dict[str, float]:
    """Runs the user's checker and benchmark on the reference; returns the metrics that the benchmark printed.

    Raises UserError when a command can't judge the reference, or does not print the objective.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix="reference-") as scratch:
        engine = reference_job(target, facts, Path(scratch) / "reference")
        # a candidate may not read transformers, the reference stands on it
        also = (*reference_packages(), Path(scratch))
        if line := target.user.checker:
            note("trying user.checker on the reference")
            files = (*command_files("user.checker", line), *also)
            judge("user.checker", run_user_checker(absolute_command(line), files, engine, cache_dir, TRIAL_S))
        metrics: dict[str, float] = {}
        if line := target.user.benchmark:
            note("trying user.benchmark on the reference")
            files = (*command_files("user.benchmark", line), *also)
            run = run_user_benchmark(absolute_command(line), files, engine, cache_dir, TRIAL_S)
            judge("user.benchmark", run)
            metrics = run.metrics
    check_printed(target.objective.metric, metrics)
    return metrics


def check_printed(objective: str, metrics: Mapping[str, float]) -> None:
    """Raises UserError when the objective is a metric of the user's benchmark that it does not print."""
    if objective.startswith(USER_METRIC) and objective.removeprefix(USER_METRIC) not in metrics:
        printed = ", ".join(USER_METRIC + name for name in metrics)
        raise UserError(f"objective.metric: {objective} is not among what user.benchmark prints: {printed}")


def judge(field: str, run: UserRun) -> None:
    if run.status != "PASS":
        raise UserError(f"{field} can't be used: on the reference it ended with {run.status}: {run.summary}")


def reference_job(target: Target, facts: Facts, folder: Path) -> EngineJob:
    """The reference as an engine's folder: Hugging Face in the Target's dtype, with the user's own `generate` if
    there is one."""
    source = Path(reference_engine.__path__[0]) / "engine.py"
    folder.mkdir()
    text = source.read_text(encoding="utf-8")
    dtype = f"DTYPE = torch.{facts.workload.dtype}"
    (folder / "engine.py").write_text(text.replace("DTYPE = torch.float32", dtype), encoding="utf-8")
    if target.user.reference:
        shutil.copy(resolve(target.user.reference), folder / "reference.py")
    return EngineJob(
        tree=tree_sha256(folder),
        tree_dir=str(folder),
        checkpoint=str(target.checkpoint),
        facts=facts,
        operators=(*target.operators, *REFERENCE_PACKAGES),  # on which it stands, and no candidate may
        sandbox=target.sandbox,
    )
