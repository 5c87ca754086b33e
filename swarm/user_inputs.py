"""What the user brings along: the files behind the `user:` block of a Target, and their hashes."""

import os
import shlex
import shutil
from pathlib import Path

from ckb.errors import UserError
from ckb.hashing import sha256_file
from swarm.paths import resolve
from swarm.target import User

COMMANDS = ("checker", "benchmark")


def user_files(user: User) -> dict[str, str]:
    """Path -> sha256 of each file that the block names: the reference, and the files of the commands.

    Raises UserError for one that is not there, and for a command whose program can't be run.
    """
    files: list[Path] = []
    if user.reference:
        files.append(existing("user.reference", user.reference))
    for name in COMMANDS:
        if line := getattr(user, name):
            files += command_files(f"user.{name}", line)
    return {str(path): sha256_file(path) for path in files}


def command_files(field: str, line: str) -> list[Path]:
    """The files of the user's own in a command line; the program may be one of them or a command on PATH."""
    try:
        program, *arguments = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{field}: {line!r} is no command line: {error}") from error
    files = [existing(field, word) for word in arguments if looks_like_a_file(word)]
    if resolve(program).is_file():
        if not os.access(resolve(program), os.X_OK):
            raise UserError(f"{field}: {resolve(program)} is not executable: chmod +x it, or write `python {program}`")
        return [resolve(program), *files]
    if not shutil.which(program):
        raise UserError(f"{field}: {program} is neither a file below ENGINESMITH_HOME nor a command on PATH")
    return files


def looks_like_a_file(word: str) -> bool:
    """Whether an argument names a file: it exists, or it ends like a script."""
    return not word.startswith("-") and (resolve(word).is_file() or word.endswith((".py", ".sh")))


def existing(field: str, name: str) -> Path:
    path = resolve(name)
    if not path.is_file():
        raise UserError(f"{field}: {path} is {'no file' if path.exists() else 'not there'}")
    return path


def check_unchanged(hashes: dict[str, str]) -> None:
    """Raises UserError when a file of the user's changed after the plan was frozen."""
    for name, expected in hashes.items():
        found = sha256_file(Path(name)) if Path(name).is_file() else "nothing"
        if found != expected:
            raise UserError(f"{name} was changed during the run: sha256 {expected} when the plan was made, {found} now")
