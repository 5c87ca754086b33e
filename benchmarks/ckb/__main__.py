"""python -m benchmarks.ckb [contention|scale|all]: figures, bars and verdicts. Exit status 1 if a bar is missed.

python -m benchmarks.ckb mutation --out FOLDER [...]: who notices when knowledge is wrong (run_mutation.py).
"""

import runpy
import sys
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.ckb import contention, scale
from benchmarks.ckb.bars import Measure, machine, missed, table


class Part(StrEnum):
    contention = "contention"
    scale = "scale"
    all = "all"


def main(
    part: Annotated[Part, typer.Argument(help="What to measure")] = Part.all,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder on the disk to measure; default: the one for temporary files"),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="contention: writers at once")] = 8,
    commits: Annotated[int, typer.Option(min=1, help="contention: commits of each")] = 100,
    versions: Annotated[int, typer.Option(min=scale.WRITERS, help="scale: commits in all")] = 10_000,
    rows: Annotated[int, typer.Option(min=1, help="scale: rows of each commit")] = 100,
    seed: Annotated[int, typer.Option(help="scale: which older versions are read")] = 0,
) -> None:
    """Measure the knowledge base on a local disk. The store that is filled is removed again."""
    parts: dict[Part, Callable[[Path], list[Measure]]] = {
        Part.contention: lambda root: contention.measure(root, processes, commits),
        Part.scale: lambda root: scale.measure(root, versions, rows, seed),
    }
    titles = {
        Part.contention: f"{processes} processes x {commits} appends at once",
        Part.scale: f"{versions} commits of {rows} rows, seed {seed}",
    }
    console = Console()
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="enginesmith-ckb-", dir=folder) as place:
        console.print(*machine(Path(place)), sep="\n")
        for name, measure in parts.items():
            if part in (name, Part.all):
                measures = measure(Path(place) / name)
                console.print(table(titles[name], measures))
                failed += missed(measures)
    if failed:
        console.print(f"missed: {'; '.join(failed)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["mutation"]:  # a script of its own: it may import what this package may not
        del sys.argv[1]
        runpy.run_module("benchmarks.ckb.run_mutation", run_name="__main__", alter_sys=True)
    else:
        typer.run(main)
