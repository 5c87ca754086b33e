"""What the user brought along: an accuracy checker that gates beside ours, and a benchmark that prints metrics.

Both run in the sandbox with the engine's folder and the checkpoint as their last two arguments; their own files are
readable and are hashed before and after, so that no candidate can soften its judge. A Python script runs the candidate
in its own process, so it is run by a driver of ours under the watch (drivers/user_command.py): its end and its metrics
count only if they are the script's own. Any other command can't be watched from inside; its record says so.
"""

import json
import math
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ckb.command_lines import words_of
from ckb.errors import UserError
from ckb.hashing import sha256_file, sha256_json
from ckb.violations import Violation
from gpu_actors.child import DRIVERS, Child, ChildFailure
from gpu_actors.engine_process import confinement
from gpu_actors.jobs import EngineJob
from gpu_actors.readable import FORBIDDEN_PACKAGES
from gpu_actors.sandbox import Confinement, Sandbox, wait_for

Outcome = Literal["PASS", "FAIL", "TIMEOUT", "CHANGED"]


UNWATCHED = "not watched from inside: it is no Python script, so a candidate that it runs could speak for it"


@dataclass(frozen=True)
class UserRun:
    """How a command of the user ended."""

    status: Outcome
    """FAIL: an exit status that is not 0 (or a benchmark without a metric); CHANGED: its own files are not what they
    were before."""
    summary: str
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    watched: bool = False
    """Whether it was a script that ran under the watch."""
    violations: tuple[Violation, ...] = ()
    """What the candidate tried in the script's process. With any, the status is FAIL."""


def run_user_checker(
    command: str, files: tuple[Path, ...], engine: EngineJob, cache_dir: Path, deadline_s: float
) -> UserRun:
    """`command ENGINE_DIR CHECKPOINT`: exit status 0 passes. `files`: what the command needs to read of the user's."""
    return _run(command, files, engine, cache_dir, deadline_s)[0]


def run_user_benchmark(
    command: str, files: tuple[Path, ...], engine: EngineJob, cache_dir: Path, deadline_s: float
) -> UserRun:
    """`command ENGINE_DIR CHECKPOINT` prints lines {"metric": name, "value": number} among anything else. Of a script
    those count that it prints itself, and not what a process that it starts does."""
    run, output = _run(command, files, engine, cache_dir, deadline_s)
    if run.status != "PASS":
        return run
    metrics = parse_metrics(output)
    if not metrics:
        summary = 'it printed no line of the form {"metric": name, "value": number}'
        return replace(run, status="FAIL", summary=f"{summary}; its last output: {last_lines(output)}")
    return replace(run, summary=", ".join(f"{k} = {v:g}" for k, v in metrics.items()), metrics=metrics)


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
    """How the command ended, and what it printed."""
    argv = [*resolve(command), engine.tree_dir, engine.checkpoint]
    before = hashes(files)
    rules = confinement(engine, cache_dir, also_read=files)
    start = time.monotonic()
    run = _script if is_script(argv) else _program
    found, output = run(command, argv, rules, files, engine, start + deadline_s)
    found = replace(found, seconds=time.monotonic() - start)
    if hashes(files) != before:
        found = replace(found, status="CHANGED", summary=f"the user's files changed while {command!r} ran")
    return found, output


def is_script(argv: list[str]) -> bool:
    """Whether a command is our interpreter and a file of Python, without options between them."""
    return Path(argv[0]) == Path(sys.executable).absolute() and len(argv) > 1 and argv[1].endswith(".py")


def _script(
    command: str, argv: list[str], rules: Confinement, files: tuple[Path, ...], engine: EngineJob, deadline: float
) -> tuple[UserRun, str]:
    nonce = secrets.token_hex(16)
    script, arguments = argv[1], argv[2:]
    trusted = [str(path) for path in (Path(script), *files) if path.is_file()]
    said, status, given = "", None, max(0.0, deadline - time.monotonic())
    forbidden = tuple(name for name in FORBIDDEN_PACKAGES if name not in rules.operators)
    with Child(DRIVERS / "user_command.py", rules, forbidden=forbidden) as child:
        asked = {"script": script, "arguments": arguments, "tree": engine.tree_dir, "trusted": trusted}
        try:
            reply = child.call("run", given, **asked, nonce=nonce)
            child.told.read()
            genuine = reply.value("nonce", str) == nonce and nonce in child.told.marks
            status, said = reply.value("status", int), reply.value("said", str)
            why = "" if genuine else "its end was told by somebody else than the script"
        except ChildFailure as failure:
            why = f"it did not reach its end: {failure}"
            if failure.kind == "TIMEOUT":
                within = f"{command!r} did not end within {given:.0f} s"
                return UserRun("TIMEOUT", within, 0.0, watched=True), ""
        child.told.read()
        violations = child.told.rows("", "user")
        child.sandbox.kill("it has answered")
        child.sandbox.drain()
        output = child.sandbox.output
    if violations:
        why = f"violation: {violations[0].what}"
    elif not why and status:
        why = f"exit status {status}; its last output: {last_lines(output)}"
    if why:
        return UserRun("FAIL", f"{command!r}: {why}"[:1500], 0.0, watched=True, violations=violations), said
    return UserRun("PASS", f"{command!r} exited with status 0", 0.0, watched=True), said


def _program(
    command: str, argv: list[str], rules: Confinement, _files: tuple[Path, ...], _engine: EngineJob, deadline: float
) -> tuple[UserRun, str]:
    with Sandbox(argv, rules) as process:
        status = wait_for(process, deadline)
        killed = process.killed
        process.drain()
        output = process.output
    if status is None:
        return UserRun("TIMEOUT", f"{command!r} did not end in time", 0.0), output
    if status or killed:
        why = killed or f"exit status {status}"
        return UserRun("FAIL", f"{command!r}: {why}; its last output: {last_lines(output)}", 0.0), output
    return UserRun("PASS", f"{command!r} exited with status 0 ({UNWATCHED})", 0.0), output


def resolve(command: str) -> list[str]:
    """The command's words, the program as a full path; `python` is our own interpreter. Raises UserError for what is no
    command line, or names no program."""
    words = words_of(command, "a command")
    program = sys.executable if words[0] in ("python", "python3") else shutil.which(words[0])
    if not program:
        raise UserError(f"there is no program {words[0]!r} on the PATH, from the command {command!r}")
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
