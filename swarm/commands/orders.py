"""Commands on a run that is under way: what a person orders it to do."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ckb.errors import UserError
from swarm.commands.run import Run, find_run

if TYPE_CHECKING:
    from swarm.orders import Order

app = typer.Typer()
HEARD_S = 3.0
"""How long a command waits for a driver to take its order up."""


@app.command()
def pause(run_folder: Run) -> None:
    """Let a run begin nothing new until `unpause`.

    What is under way ends as usual; no limit of time runs on."""
    from swarm.orders import Pause

    order(run_folder, Pause())


@app.command()
def unpause(run_folder: Run) -> None:
    """Let a paused run go on.

    `resume` takes up a run whose driver has ended."""
    from swarm.orders import Unpause

    order(run_folder, Unpause())


@app.command()
def stop(run_folder: Run) -> None:
    """End a run's driver at its next step.

    `resume` takes the run up again."""
    from swarm.orders import Stop

    order(run_folder, Stop())


@app.command()
def steer(
    run_folder: Run,
    text: Annotated[
        str, typer.Argument(help="What to say; it goes to the provider of the role's author, as a brief does")
    ],
    role: Annotated[
        str | None, typer.Option(help="Whose next brief carries it; default: the next one of each role")
    ] = None,
) -> None:
    """Say something to the roles of a run.

    Their next briefs carry it."""
    from pydantic import ValidationError

    from swarm.orders import Steer

    try:
        note = Steer.model_validate({"text": text.strip(), "role": role})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UserError(f"{wrong['loc'][0]}: {wrong['msg']}") from None
    order(run_folder, note)


def order(run_folder: str, wanted: "Order") -> None:
    """Gives an order, and says whether a driver has heard it. Raises UserError for a run that is over."""
    from swarm.context import RunFiles
    from swarm.journal import state_of
    from swarm.orders import give

    files = RunFiles(find_run(run_folder))
    finished = state_of(files.root).finished
    if finished and finished.outcome == "accepted":
        raise UserError(f"{files.root.name} is over: its engine was accepted, and nothing is left to be ordered")
    path = give(files.orders, wanted)
    deadline = time.monotonic() + HEARD_S
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if path.exists():
        print("note: no driver has taken it up yet: one does before its next step", file=sys.stderr)
        return
    taken = next((one for one in state_of(files.root).orders if one.name == path.name), None)
    if taken and taken.refused:
        raise UserError(f"refused: {taken.refused}")
    print(f"{wanted.do}: taken up")
