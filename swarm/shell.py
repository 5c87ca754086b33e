"""The confinement of coding agents (roles.authors.cli.shell), by what confines everything else here."""

from pathlib import Path
from typing import Literal

from ckb.errors import UserError
from gpu_actors import agent
from roles.authors.cli.author import variables_of
from roles.authors.cli.presets import argv_of
from roles.authors.cli.shell import Command, Finished
from roles.settings import CliSettings, singles
from swarm.paths import cache_dir, home, resolve, runs_dir
from swarm.target import Target


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


def need_commands(target: Target) -> None:
    """Raises UserError for a command that could not answer, before a run is begun with it."""
    for author in singles(target.authors.values()):
        if isinstance(author, CliSettings):
            agent.program_of(argv_of(author, Path(), Path())[0], target.sandbox)
            variables_of(author)
            for names, where in ((author.read, "read"), (author.write, "write")):
                for name in names:
                    folder_of(name, where)


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
