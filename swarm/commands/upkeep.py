"""Commands that look after a knowledge base: ckb judge, tag, compact, vacuum."""

import getpass
from datetime import timedelta
from typing import Annotated, Literal

import typer

from swarm.commands import knowledge
from swarm.commands.knowledge import At, RowId, StorePlace, TableName, open_store

Status = Literal["draft", "verified", "deprecated"]
"""As ckb.records has it; the command line imports nothing heavy."""

app = knowledge.app  # one more file of the commands under `ckb`


@app.command()
def judge(
    table: TableName,
    row: RowId,
    status: Annotated[Status, typer.Argument(metavar="STATUS", help="draft, verified or deprecated")],
    why: Annotated[str, typer.Option(help="The reason, for the log")],
    store: StorePlace = None,
) -> None:
    """Say whether a row may be used, and why: it settles a contradiction."""
    from ckb.judging import judge as decide

    version = decide(open_store(store), table, row, status, why=why, by=getpass.getuser())
    print(f"{row} is {status} from version {version} on")


@app.command()
def tag(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, dashes and underscores")],
    at: At = None,
    store: StorePlace = None,
) -> None:
    """Give a version a name. It is never moved, and no vacuum goes below it."""
    number = open_store(store).tag(name, at)
    print(f"{name} is version {number}")


@app.command()
def compact(store: StorePlace = None) -> None:
    """Merge small files into large ones. No row changes; each merged file is a version."""
    from ckb.compaction import compact as merge_files

    versions = merge_files(open_store(store), by="ckb compact")
    print(f"{len(versions)} files merged, the newest version is {open_store(store).latest}")


@app.command()
def vacuum(
    grace_days: Annotated[
        float, typer.Option(min=0, help="Keep every version that was the newest within so many days")
    ] = 30.0,
    store: StorePlace = None,
) -> None:
    """Delete files that no kept version needs. Kept are all from the oldest tagged one on, or from the newest that is
    older than the grace period, whichever is less."""
    from ckb.maintenance import vacuum as delete_unneeded

    opened = open_store(store)
    deleted = delete_unneeded(opened, timedelta(days=grace_days), by="ckb vacuum")
    print(f"{len(deleted)} files deleted, the oldest version that can be read is {opened.state().horizon}")
