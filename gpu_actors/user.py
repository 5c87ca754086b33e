"""What the user brought along: an accuracy checker that gates beside ours, and a benchmark that prints metrics.

Both run in the sandbox with the engine's folder and the checkpoint as their last two arguments; their own files are
readable and are hashed before and after, so that no candidate can soften its judge.
"""

import json
import math
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ckb.errors import UserError
from ckb.hashing import sha256_file, sha256_json
from gpu_actors.confinement import confinement
from gpu_actors.jobs import EngineJob
from gpu_actors.sandbox import Sandbox, wait_for

Outcome = Literal["PASS", "FAIL", "TIMEOUT", "CHANGED"]


@dataclass(frozen=True)
class UserRun:
    """How a command of the user ended."""

    status: Outcome
    """FAIL: an exit status that is not 0 (or a benchmark without a metric); CHANGED: its own files are not what they
    were before."""
    summary: str
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)


def run_user_checker(
    command: str, files: tuple[Path, ...], engine: EngineJob, cache_dir: Path, deadline_s: float
) -> UserRun:
    """`command ENGINE_DIR CHECKPOINT`: exit status 0 passes. `files`: what the command needs to read of the user's."""
    return _run(command, files, engine, cache_dir, deadline_s)[0]


def run_user_benchmark(
    command: str, files: tuple[Path, ...], engine: EngineJob, cache_dir: Path, deadline_s: float
) -> UserRun:
    """`command ENGINE_DIR CHECKPOINT` prints lines {"metric": name, "value": number} among anything else."""
    run, output = _run(command, files, engine, cache_dir, deadline_s)
    if run.status != "PASS":
        return run
    metrics = parse_metrics(output)
    if not metrics:
        summary = 'it printed no line of the form {"metric": name, "value": number}'
        return UserRun("FAIL", f"{summary}; its last output: {last_lines(output)}", run.seconds)
    return UserRun("PASS", ", ".join(f"{k} = {v:g}" for k, v in metrics.items()), run.seconds, metrics)


def parse_metrics(output: str) -> dict[str, float]:
    """The last value of each metric. Lines that are something else are the command's own talk."""
    found: dict[str, float] = {}
    for line in output.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("metric"), str):
            value = entry.get("value")
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                found[entry["metric"]] = float(value)
    return found


def _run(
    command: str, files: tuple[Path, ...], engine: EngineJob, cache_dir: Path, deadline_s: float
) -> tuple[UserRun, str]:
    argv = [*resolve(command), engine.tree_dir, engine.checkpoint]
    before = hashes(files)
    rules = confinement(engine, cache_dir, also_read=files)
    start = time.monotonic()
    with Sandbox(argv, rules) as process:
        status = wait_for(process, start + deadline_s)
        killed = process.killed
        process.drain()
        output = process.output
    seconds = time.monotonic() - start
    if hashes(files) != before:
        return UserRun("CHANGED", f"the user's files changed while {command!r} ran", seconds), output
    if status is None:
        return UserRun("TIMEOUT", f"{command!r} did not end within {deadline_s:.0f} s", seconds), output
    if status or killed:
        why = killed or f"exit status {status}"
        return UserRun("FAIL", f"{command!r}: {why}; its last output: {last_lines(output)}", seconds), output
    return UserRun("PASS", f"{command!r} exited with status 0", seconds), output


def resolve(command: str) -> list[str]:
    """The command's words, the program as a full path; `python` is our own interpreter. Raises UserError."""
    words = shlex.split(command)
    if not words:
        raise UserError("user: the command is empty")
    program = sys.executable if words[0] in ("python", "python3") else shutil.which(words[0])
    if not program:
        raise UserError(f"user: there is no program {words[0]!r} on the PATH, from the command {command!r}")
    return [str(Path(program).absolute()), *words[1:]]


def changed_since(files: Mapping[str, str]) -> str:
    """Why the user's files can't judge: those that are not what they were when the plan was frozen. "" if all are."""
    changed = [name for name, digest in files.items() if not Path(name).is_file() or sha256_file(Path(name)) != digest]
    return f"the user's files changed since the plan was frozen: {', '.join(changed)}" if changed else ""


def hashes(files: tuple[Path, ...]) -> str:
    """One hash of files and of everything in folders."""
    paths = sorted(p for f in files for p in ([f] if f.is_file() else f.rglob("*")) if p.is_file())
    return sha256_json([[str(path), sha256_file(path)] for path in paths])


def last_lines(output: str) -> str:
    return " | ".join(output.strip().splitlines()[-3:])[-400:] or "none"
