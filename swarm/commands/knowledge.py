"""Commands on the knowledge base: ckb log, show, find, build, export, lint, diff, verify, blame, fingerprints."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckb.errors import UserError
from swarm.paths import store_dir

if TYPE_CHECKING:
    from rich.table import Table

    from ckb.store import Store

app = typer.Typer(help="Read and build the knowledge base.", no_args_is_help=True)
At = Annotated[str | None, typer.Option("--at", metavar="VERSION", help="A version number or tag; default: the newest")]
StorePlace = Annotated[
    str | None,
    typer.Option("--store", metavar="S", help="A folder or the URL of an object store; default: ENGINESMITH_STORE"),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE")]
RowId = Annotated[str, typer.Argument(metavar="ID")]


def open_store(place: str | None) -> "Store":
    from ckb.store import Store

    return Store(store_dir(place))


@app.command()
def log(store: StorePlace = None) -> None:
    """List the versions, newest first."""
    from ckb.views import log_lines
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    table = plain_table("version", "at", "rows", "by", "message")
    for line in log_lines(open_store(store)):
        rows = ", ".join(f"{name} +{count}" for name, count in line.rows.items() if count)
        names = f"{line.version} {' '.join(line.tags)}".rstrip()
        table.add_row(names, line.at, rows, line.by, line.message)
    show_parts(table)


@app.command()
def show(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    row: Annotated[str | None, typer.Argument(metavar="[ID]")] = None,
    at: At = None,
    store: StorePlace = None,
) -> None:
    """Show the tables, the rows of one table, or one row as JSON.

    A row of test_contracts is found by its id and by its gate."""
    from ckb import views
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    opened, version = open_store(store), at
    if table is None:
        listing = plain_table("table", "rows")
        for name, count in views.counts(opened, version).items():
            listing.add_row(name, str(count))
    elif row is None:
        rows = views.show(opened, table, version)
        more = views.columns(opened, table)
        listing = plain_table("id", *more, "status", "applies to", "what it says")
        for found in rows:
            fields = (getattr(found, name) for name in more)
            listing.add_row(found.id, *fields, found.status, found.applies_to, views.headline(found))
    else:
        record = views.show_row(opened, table, row, version)
        print(json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    show_parts(listing)


@app.command()
def find(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Rows with any of them, the best first")],
    layer: Annotated[str | None, typer.Option(help="Only rows of this layer")] = None,
    table: Annotated[str | None, typer.Option(help="Only rows of this table")] = None,
    role: Annotated[str | None, typer.Option(help="Only the guides that are written for this role")] = None,
    at: At = None,
    store: StorePlace = None,
    as_json: Annotated[bool, typer.Option("--json", help="The version and the rows whole, machine-readable")] = False,
) -> None:
    """Look for verified knowledge by words.

    It finds what roles find: contracts, fragments, guides, models, platforms, and experience that is no draft."""
    from ckb.search import Search, query_of
    from ckb.views import headline
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    search = Search(open_store(store), at)
    hits = search.find(query_of(words=" ".join(words), layer=layer, table=table, role=role))
    if as_json:
        rows = [{"table": h.table, "score": h.score, "row": h.row.model_dump(mode="json")} for h in hits]
        print(json.dumps({"version": search.version, "hits": rows}, indent=2, ensure_ascii=False))
        return
    listing = plain_table("table", "id", "score", "what it says")
    for hit in hits:
        listing.add_row(hit.table, hit.row.id, f"{hit.score:.1f}", headline(hit.row))
    show_parts(listing, f"{len(hits)} rows of version {search.version}")


@app.command()
def lint(
    seed: Annotated[bool, typer.Option("--seed", help="The seed files instead of the store")] = False,
    at: At = None,
    store: StorePlace = None,
) -> None:
    """Look for what is wrong with the knowledge. Exit status 1 if something is."""
    from ckb.lint import lint_files, lint_store

    problems = lint_files() if seed else lint_store(open_store(store), at)
    for problem in problems:
        print(f"{problem.table} {problem.id}: {problem.what}")
    if problems:
        raise typer.Exit(1)
    print("no problems")


@app.command()
def build(store: StorePlace = None) -> None:
    """Bring the seed files into the store: a new version with what differs, or nothing."""
    from ckb.build import build as build_store

    done = build_store(store_dir(store))
    if done.unchanged:
        print(f"version {done.version} holds the seed already")
        return
    print(f"version {done.version} of {store_dir(store)}")
    for word, ids in (("added", done.added), ("changed", done.changed), ("deprecated", done.deprecated)):
        for name, rows in ids.items():
            print(f"  {name}: {len(rows)} {word}")


@app.command()
def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the files; --seed may name the seed's own")],
    seed: Annotated[bool, typer.Option("--seed", help="The seed files instead of the store")] = False,
    at: At = None,
    store: StorePlace = None,
) -> None:
    """Write the knowledge as files in their canonical form."""
    from ckb.export import export_files, export_store

    if seed and (at is not None or store is not None):
        raise UserError("--at and --store name a version of a store and --seed asks for the seed files: leave one out")
    files = export_files(out) if seed else export_store(open_store(store), out, at)
    print(f"{len(files)} files in {out}")


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A version number or tag")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="A version number or tag")],
    store: StorePlace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every field of every row whole, machine-readable")] = False,
) -> None:
    """List the rows that differ between two versions, and what differs in those that changed."""
    from ckb.views import diff_lines, shortened
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    lines = diff_lines(open_store(store), before, after)
    if as_json:
        print(json.dumps([vars(line) for line in lines], indent=2, ensure_ascii=False))
        return
    table = plain_table("table", "id", "change", "before -> after")
    for line in lines:
        changed = line.fields.items() if line.change == "changed" else ()
        what = "\n".join(f"{name}: {shortened(*values)}" for name, values in changed)
        table.add_row(line.table, line.id, line.change, what)
    show_parts(table)


@app.command()
def blame(table: TableName, row: RowId, at: At = None, store: StorePlace = None) -> None:
    """Show which version wrote a row, and who."""
    from ckb.history import blame as origin

    manifest = origin(open_store(store), table, row, at)
    print(f"version {manifest.version}, {manifest.at}, by {manifest.by}: {manifest.message}")


@app.command()
def verify(store: StorePlace = None) -> None:
    """Check every file of the store against its checksum. Exit status 1 if one is damaged."""
    from ckb.maintenance import verify as faults_of

    if faults := faults_of(open_store(store)):
        print("\n".join(faults))
        raise typer.Exit(1)
    print("every file is as its manifest says")


@app.command()
def fingerprints(
    releases: Annotated[list[Path], typer.Argument(metavar="WHEEL...", help="Wheels, sdists or installed packages")],
    into: Annotated[Path | None, typer.Option(help="The table to change; default: the one that ships")] = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="Look for spans in these projects; change nothing")] = False,
) -> None:
    """Merge the fingerprints of framework releases into the table for copied spans, or check projects against it."""
    from ckb import fingerprint_table
    from ckb.fingerprints import TABLE
    from swarm.tables import plain_table
    from swarm.tables import show as show_parts

    if check:
        show_parts(*checked_table(releases))
        return
    path = into or TABLE
    before = fingerprint_table.stored(path)
    read = [fingerprint_table.read_release(release) for release in releases]
    print("a minute: which spans do independent projects share", file=sys.stderr)
    after, done = fingerprint_table.merged(before, read, fingerprint_table.common_hashes())
    fingerprint_table.write_table(after, path)
    listing = plain_table("project", "release", "files", "not parsed", "fingerprints", "common, left out")
    for item in done:
        numbers = (len(item.release.files), len(item.unparsed), item.kept, item.common)
        listing.add_row(item.release.project, item.release.version, *(f"{number:,}" for number in numbers))
    show_parts(listing)
    print(f"{path}: {after.num_rows:,} fingerprints, {path.stat().st_size:,} bytes")


def checked_table(projects: list[Path]) -> "list[Table | str]":
    """One row a project, and below it each span that is flagged in one."""
    from ckb.fingerprint_check import checked
    from swarm.tables import plain_table

    listing = plain_table("project", "version", "files", "lines", "spans", "lines in spans")
    spans: list[Table | str] = []
    for found in map(checked, projects):
        numbers = (found.files, found.lines, len(found.spans), found.flagged_lines)
        listing.add_row(found.name, found.version, *(f"{number:,}" for number in numbers))
        spans += [f"{found.name}: {span}" for span in found.spans]
    return [listing, *spans]
