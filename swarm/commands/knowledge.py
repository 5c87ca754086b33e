"""Commands on the knowledge base: ckb log, show, build, lint, diff, verify, blame."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ckb.errors import UserError
from swarm.paths import store_dir

if TYPE_CHECKING:
    from ckb.store import Store, Version

app = typer.Typer(help="Read and build the knowledge base.", no_args_is_help=True)
At = Annotated[str | None, typer.Option("--at", metavar="VERSION", help="A version number or tag; default: the newest")]
TableName = Annotated[str, typer.Argument(metavar="TABLE")]
RowId = Annotated[str, typer.Argument(metavar="ID")]


def open_store() -> "Store":
    from ckb.store import Store

    return Store(store_dir())


def version_of(text: str | None) -> "Version":
    """`12` is a number, anything else the name of a tag."""
    return int(text) if text and text.isdigit() else text


@app.command()
def log() -> None:
    """List the versions, newest first."""
    from swarm.tables import plain_table, show

    table = plain_table("version", "at", "rows", "by", "message")
    for manifest in open_store().log():
        rows = ", ".join(f"{name} +{count}" for name, count in manifest.rows_added().items() if count)
        table.add_row(str(manifest.version), manifest.at, rows, manifest.by, manifest.message)
    show(table)


@app.command()
def show(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    row: Annotated[str | None, typer.Argument(metavar="[ID]")] = None,
    at: At = None,
) -> None:
    """Show the tables, the rows of one table, or one row as JSON."""
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    store, version = open_store(), version_of(at)
    if table is None:
        tables = plain_table("table", "rows")
        for name in store.tables:
            tables.add_row(name, str(len(store.rows(name, version))))
        show_parts(tables)
        return
    rows = {found.id: found for found in store.rows(table, version)}
    if row is None:
        listing = plain_table("id", "status", "applies to")
        for found in rows.values():
            listing.add_row(found.id, found.status, found.applies_to)
        show_parts(listing)
    elif row in rows:
        print(json.dumps(rows[row].model_dump(mode="json"), indent=2, ensure_ascii=False))
    else:
        raise UserError(f"table {table!r} has no row {row!r}; `enginesmith ckb show {table}` lists them")


@app.command()
def build() -> None:
    """Bring the seed files into the store: a new version with what differs, or nothing."""
    from ckb.build import build as build_store

    done = build_store(store_dir())
    if done.unchanged:
        print(f"version {done.version} holds the seed already")
        return
    print(f"version {done.version} of {store_dir()}")
    for word, ids in (("added", done.added), ("changed", done.changed), ("deprecated", done.deprecated)):
        for name, rows in ids.items():
            print(f"  {name}: {len(rows)} {word}")


@app.command()
def diff(before: str, after: str) -> None:
    """List the rows that differ between two versions."""
    from ckb.history import diff as differences
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    table = plain_table("table", "id", "change", "fields")
    for change in differences(open_store(), version_of(before), version_of(after)):
        fields = ", ".join(change.fields) if change.kind == "changed" else ""
        table.add_row(change.table, change.id, change.kind, fields)
    show_parts(table)


@app.command()
def blame(table: TableName, row: RowId, at: At = None) -> None:
    """Show which version wrote a row, and who."""
    from ckb.history import blame as origin

    manifest = origin(open_store(), table, row, version_of(at))
    print(f"version {manifest.version}, {manifest.at}, by {manifest.by}: {manifest.message}")


@app.command()
def verify() -> None:
    """Check every file of the store against its checksum. Exit status 1 if one is damaged."""
    from ckb.maintenance import verify as faults_of

    if faults := faults_of(open_store()):
        print("\n".join(faults))
        raise typer.Exit(1)
    print("every file is as its manifest says")
