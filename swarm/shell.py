"""The confinement of coding agents (roles.authors.cli.shell), by what confines everything else here."""

from pathlib import Path
from typing import Literal

from ckb.errors import UserError
from gpu_actors import agent
from roles.authors.cli.shell import Command, Finished
from swarm.paths import cache_dir, home, resolve, runs_dir


class ConfinedShell:
    """Runs commands as a Target's `sandbox` says."""

    def __init__(self, mode: Literal["auto", "none"]):
        self._mode = mode

    def run(self, command: Command) -> Finished:
        read, write = ([folder_of(name, where) for name in names] for names, where in named(command))
        ended = agent.run(
            command.argv,
            command.folder,
            command.deadline_s,
            command.variables,
            mode=self._mode,
            read=read,
            write=write,
            hide=[folder.resolve() for folder in (runs_dir(), cache_dir()) if folder.exists()],
        )
        return Finished(ended.status, ended.output, ended.errors, ended.reason, ended.isolation)


def named(command: Command) -> tuple[tuple[tuple[str, ...], str], ...]:
    return (command.read, "read"), (command.write, "write")


def folder_of(name: str, where: str) -> Path:
    """A path that a Target shows to an agent. Raises UserError for one that isn't there, and for one above the runs:
    a verdict's draws are in them."""
    path = resolve(name)
    if not path.exists():
        raise UserError(f"{where} of a cli author: {name} is not there")
    if home().is_relative_to(path.resolve()):
        raise UserError(f"{where} of a cli author: {name} holds ENGINESMITH_HOME with every run's plan and draws")
    return path
