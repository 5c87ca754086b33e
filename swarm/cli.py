"""The command line. Commands are thin and import what they need when they run; errors end at one boundary, `main`."""

import errno
import sys
from importlib import metadata
from typing import Annotated

import typer

from ckb.errors import UserError
from swarm.commands import agents, engine, orders, prepare, run, upkeep
from swarm.paths import disk_full, home

app = typer.Typer(
    name="enginesmith",
    help="Writes, verifies, measures and evolves a small LLM inference engine for one model, machine and workload.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(prepare.app)
app.add_typer(run.app)
app.add_typer(orders.app)
app.add_typer(engine.app)
app.add_typer(agents.app)
app.add_typer(upkeep.app, name="ckb")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status: 2 for what the user can mend, 130 for Ctrl-C.

    Any other exception is a defect of ours and surfaces as a traceback.
    """
    if sys.platform != "linux":
        return fail(f"Enginesmith runs on Linux and WSL2 only, and this is {sys.platform}")
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except UserError as error:
        return fail(str(error))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return fail(disk_full(home()))
        raise
    return 0


def fail(message: str) -> int:
    print(f"enginesmith: {message}", file=sys.stderr)
    return 2


@app.callback(invoke_without_command=True)
def enginesmith(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        print(f"enginesmith {metadata.version('enginesmith')}")
        raise typer.Exit
