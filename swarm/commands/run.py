"""Commands on runs: generate, resume, status, report."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckb.errors import UserError
from swarm import ray_environment
from swarm.commands.prepare import say_aside
from swarm.paths import cache_dir, found_in, new_run_dir, resolve, runs_dir, store_dir

if TYPE_CHECKING:
    from swarm.events import RunFinished

app = typer.Typer()
TargetFile = Annotated[Path, typer.Argument(metavar="TARGET.yaml")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of the run, or its name below runs/")]


@app.command()
def generate(
    target_file: TargetFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the resolved Target and the Plan; run nothing.")
    ] = False,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: runs/<target>-<date>-<time>")
    ] = None,
) -> None:
    """Make an engine for a Target.

    Plan, candidates on branches, gates, paired benchmarks, release, and a new version of the knowledge base."""
    from swarm.target import load_target

    target = load_target(target_file)
    need_git()
    from ckb.build import ensure_store
    from swarm.ceilings import measure
    from swarm.operators import trial_of
    from swarm.plan import make_plan
    from swarm.platform import detect

    platform = detect(target.hardware.accelerator, target.hardware.count)
    plan = make_plan(target, ensure_store(store_dir()), platform, measure, trial_of(target, say_aside))
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    if dry_run:
        from swarm.tables import plan_text, show
        from swarm.target_text import render_target

        show(render_target(target), plan_text(plan))
        return
    ray_environment.prepare()
    if target.user.checker or target.user.benchmark:
        from swarm.user_inputs import try_commands

        try_commands(target, plan.facts, cache_dir(), print)
    from swarm import run

    name = target_file.stem
    folder = run_dir or new_run_dir(name)
    with resumable(folder):
        finish(folder, run.generate(target, name, plan, folder))


@app.command()
def resume(run_folder: Run) -> None:
    """Go on with a run, however its driver ended."""
    need_git()
    folder = find_run(run_folder)
    ray_environment.prepare()
    from swarm import run

    with resumable(folder):
        finish(folder, run.resume(folder))


def need_git() -> None:
    if not shutil.which("git"):
        raise UserError("git is needed (every candidate is a branch) and is not on PATH: install it and start again")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Ctrl-C, and an order to stop, end with the command that goes on."""
    from swarm.orders import Stopped

    try:
        yield
    except Stopped as stopped:
        print(str(stopped), file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        begun = (folder / "run.json").exists()  # the last file of a run that is planned
        hint = f"go on with: enginesmith resume {shown(folder)}" if begun else "the run had not begun"
        print(f"\ninterrupted; {hint}", file=sys.stderr)
        raise


def finish(folder: Path, finished: "RunFinished") -> None:
    """The last lines of a run. Exit status 1 when no engine was accepted."""
    print(f"report: {shown(folder / 'report.html')}")
    if finished.outcome != "accepted":
        print(f"no engine was accepted: {finished.outcome.replace('_', ' ')}. {finished.reason}", file=sys.stderr)
        raise typer.Exit(1)


def shown(path: Path) -> str:
    """A path as short as it can be written from here."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@app.command()
def status(run_folder: Annotated[str | None, typer.Argument(metavar="[RUN]")] = None) -> None:
    """Show where a run stands, or list the runs."""
    from swarm.journal import state_of
    from swarm.tables import candidates_table, evidence_lines, runs_table, show, summary_lines

    if run_folder is None:
        runs = {path.name: state_of(path) for path in run_dirs()}
        show(runs_table(runs))
        if not runs:
            print(f"note: {found_in(runs_dir(), runs)}", file=sys.stderr)
        return
    folder = find_run(run_folder)
    state = state_of(folder)
    from swarm.context import RunFiles

    files = RunFiles(folder)
    failed = evidence_lines(state, shown(files.evidence))
    show(candidates_table(state), "", *failed, *summary_lines(state, files.limits_now()))


@app.command()
def budget(
    run_folder: Run,
    usd: Annotated[float | None, typer.Option(help="Dollars for providers")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of all language model calls")] = None,
    minutes: Annotated[float | None, typer.Option(help="Wall time, that of earlier drivers included")] = None,
    device_seconds: Annotated[float | None, typer.Option(help="Time for which devices are held")] = None,
) -> None:
    """Show what a run has used of its limits, or set limits.

    They hold at once, also while the run goes on."""
    from pydantic import ValidationError

    from swarm import limits
    from swarm.budget import used_of
    from swarm.context import RunFiles
    from swarm.journal import state_of
    from swarm.tables import budget_table, show

    files = RunFiles(find_run(run_folder))
    used = used_of(state_of(files.root), files.ledger)
    given = {"usd": usd, "tokens": tokens, "minutes": minutes, "device_seconds": device_seconds}
    try:
        wanted = limits.Change(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UserError(f"--{str(wrong['loc'][0]).replace('_', '-')} {wrong['input']}: {wrong['msg']}") from None
    if wanted.given:
        limits.change(files.limits, wanted, used)
    show(budget_table(files.limits_now(), used))


@app.command()
def report(
    run_folder: Run,
    process: Annotated[
        bool, typer.Option("--process", help="Show what the run took instead: agents, tools, tokens, cost, by role.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --process: as one JSON record.")] = False,
) -> None:
    """Write the report of a run anew, or show what it took."""
    folder = find_run(run_folder)
    if as_json and not process:
        raise UserError("--json goes with --process: the report is a page")
    if not process:
        from swarm.report import write_report

        print(shown(write_report(folder)))
        return
    from swarm.journal import state_of
    from swarm.process import process_of
    from swarm.tables import process_lines, process_tables, show

    found = process_of(folder.name, state_of(folder), folder)
    if as_json:
        print(found.model_dump_json(indent=1))
        return
    show(*process_lines(found), "", *process_tables(found))


def run_dirs() -> list[Path]:
    return sorted(path.parent for path in runs_dir().glob("*/journal"))


def find_run(name: str) -> Path:
    """A run's folder from its path or its name below runs/."""
    for folder in (Path(name), resolve(name), runs_dir() / name):
        if (folder / "plan.json").is_file():
            return folder.absolute()
    known = (path.name for path in run_dirs())
    raise UserError(f"{name} is no run (a folder with plan.json); {found_in(runs_dir(), known)}")
