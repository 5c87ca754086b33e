"""Commands for coding agents that are not ours: skills export, mcp."""

from pathlib import Path
from typing import Annotated

import typer

from ckb.errors import UserError
from swarm.commands.knowledge import At, StorePlace, open_store

app = typer.Typer()
skills = typer.Typer(help="The knowledge base for coding agents.", no_args_is_help=True)
app.add_typer(skills, name="skills")


@skills.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Empty or not there")] = Path("skills"),
    seed: Annotated[bool, typer.Option("--seed", help="The seed files instead of the store")] = False,
    at: At = None,
    store: StorePlace = None,
) -> None:
    """Write the knowledge base and the procedures as Agent Skills.

    Folders with a SKILL.md each, for a coding agent that has nothing of Enginesmith."""
    from roles.skills.export import export_skills
    from swarm.skills import shelf_of_seed, shelf_of_store

    if seed and (at is not None or store is not None):
        raise UserError("--at and --store name a version of a store and --seed asks for the seed files: leave one out")
    shelf = shelf_of_seed() if seed else shelf_of_store(open_store(store), at)
    files = export_skills(shelf, folder)
    number = sum(file.name == "SKILL.md" for file in files)
    print(f"{number} skills of {shelf.version} in {folder}: {len(files)} files")


@app.command()
def mcp() -> None:
    """Serve coverage, knowledge, runs and verdicts as MCP tools.

    Over stdin and stdout, for a coding agent that starts this command itself; it ends with its stdin."""
    from swarm.mcp_server.server import serve

    serve()
