"""python -m tests.mutants.table [--out docs/mutants.md] [--work FOLDER] [--only REGEX] [--minutes M] [--smollm2]
[--workers N]

Runs every mutant and every correct variant against all gates, and writes what was said as a document. What the folder
holds already, for the same tree, seed and gates, is not done again.
"""

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Annotated

import jinja2
import typer

from ckb.hashing import sha256_json, tree_sha256
from ckb.whole_files import replace_text
from tests.mutants import arithmetic, cheats, loading, sampling, scheduling, serving, state, subtle
from tests.mutants.bases import BASES
from tests.mutants.mutant import FAMILIES, Mutant, Variant
from tests.mutants.runner import SEEN_LATE, Workshop, made_of
from tests.mutants.variants import VARIANTS

ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).with_name("mutants.md.jinja")
MUTANTS: tuple[Mutant, ...] = (
    *arithmetic.MUTANTS, *state.MUTANTS, *scheduling.MUTANTS, *sampling.MUTANTS, *loading.MUTANTS,
    *serving.MUTANTS, *cheats.MUTANTS,
)  # fmt: skip
SEEDS = (11, 12, 13, 14, 15)
"""Of the draws of five verdicts on each variant. A mutant is judged once, by the first."""
SAID = 110
CAUGHT = Path(__file__).with_name("caught.txt")
"""Names of the mutants that their own gate caught when they were last judged, one a line; for gates before the
acceptance."""


def caught() -> set[str]:
    """Mutants that a sample may be drawn from: what its own gate has caught once, it must always catch."""
    return set(CAUGHT.read_text(encoding="utf-8").splitlines())


Work = list[tuple[Mutant | Variant, int]]
"""Trees, and the seeds of their verdicts."""


@dataclass(frozen=True)
class Row:
    """One tree and one seed."""

    name: str
    failed: dict[str, str]
    passed: tuple[str, ...]
    seconds: float
    seed: int
    machine: str
    """Where it was judged."""


@dataclass(frozen=True)
class Value:
    """What one gate is worth."""

    gate: str
    caught: int
    alone: int
    missed: tuple[str, ...]
    """Names of the mutants that it was asked about and let through."""


@cache
def gates() -> str:
    """The hash of whatever judges."""
    return tree_sha256(ROOT / "gpu_actors")


def kept(one: Mutant | Variant, seed: int, work: Path) -> Path:
    """Where its result lies: by the tree, the base, the seed and the gates."""
    asked = [made_of(one).files, one.base, isinstance(one, Mutant) and one.timed, seed, gates()]
    return work / "rows" / f"{sha256_json(asked)[:32]}.json"


def judged(one: Mutant | Variant, seed: int, shop: Workshop) -> Row:
    """Its row, from the folder or made now."""
    file = kept(one, seed, shop.work)
    if not file.exists():
        found = shop.judge(one, seed)
        file.parent.mkdir(exist_ok=True)
        replace_text(file, json.dumps([found.failed, found.passed, found.seconds, here()]))
    failed, passed, seconds, machine = json.loads(file.read_text(encoding="utf-8"))
    return Row(one.name, failed, tuple(passed), seconds, seed, machine)


@cache
def here() -> str:
    """This machine, as far as verdicts may depend on it."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch').partition('+')[0]}"


def places(rows: Iterable[Row]) -> list[tuple[str, int, float]]:
    """Each machine, how many of the rows were judged on it, and their median seconds."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row.machine, []).append(row.seconds)
    return [(machine, len(seconds), median(seconds)) for machine, seconds in sorted(found.items())]


def values(rows: Iterable[Row]) -> list[Value]:
    """Of each gate: how many mutants it caught, and how many nobody else did. The most valuable first."""
    caught: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    missed: dict[str, list[str]] = {}
    for row in rows:
        for gate in row.passed:
            missed.setdefault(gate, []).append(row.name)
        for gate in row.failed:
            caught[gate] += 1
            alone[gate] += len(row.failed) == 1
    gates = missed.keys() | caught.keys()
    found = [Value(gate, caught[gate], alone[gate], tuple(missed.get(gate, ()))) for gate in gates]
    return sorted(found, key=lambda value: (-value.alone, -value.caught, value.gate))


def ordered(work: Work) -> Work:
    """By base: the reference holds one checkpoint at a time."""
    places = list(BASES)
    return sorted(work, key=lambda item: places.index(item[0].base))


def run(work: Work, open_shop: Callable[[], Workshop], end: float, workers: int = 1) -> list[Row]:
    """Rows until the time is up; what is kept already costs none. What is timed is judged alone, after the others."""
    timed = [item for item in work if isinstance(item[0], Mutant) and item[0].timed]
    rest = [item for item in work if item not in timed]
    return [*shared(rest, open_shop, end, workers), *shared(timed, open_shop, end, 1)]


def shared(work: Work, open_shop: Callable[[], Workshop], end: float, workers: int) -> list[Row]:
    """The rows of several workers, each with a workshop of its own, that take from one list."""
    todo, lock = iter(ordered(work)), threading.Lock()
    rows: list[Row] = []

    def worker() -> None:
        with open_shop() as shop:
            while True:
                with lock:
                    one, seed = next(todo, (None, 0))
                if one is None:
                    return
                if time.monotonic() > end and not kept(one, seed, shop.work).exists():
                    continue
                row = judged(one, seed, shop)
                with lock:
                    rows.append(row)
                    what = ", ".join(row.failed) or "passes every gate"
                    print(f"{len(rows)}/{len(work)} {one.name} (seed {seed}, {row.seconds:.0f} s): {what}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(worker) for _ in range(workers)]:
            done.result()
    return rows


def document(mutants: list[Mutant], rows: dict[str, Row], variants: list[Variant], again: list[Row]) -> str:
    """The page."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        commit=commit.stdout.strip(),
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        families=[(family, [m for m in mutants if m.family == family]) for family in FAMILIES],
        rows=rows,
        escaped=[m for m in mutants if m.name in rows and not rows[m.name].failed],
        elsewhere=[m for m in mutants if m.name in rows and rows[m.name].failed and m.gate not in rows[m.name].failed],
        values=values(rows.values()),
        variants=[(v, [row for row in again if row.name == v.name]) for v in variants],
        planned=len(mutants),
        machines=[("mutants", *place) for place in places(rows.values())]
        + [("right variants", *place) for place in places(again)],
        seeds=SEEDS,
    )


def cell(text: str) -> str:
    """One line that no table breaks at."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    plain = re.sub(r"(/[\w.-]+){2,}/?", "...", plain)  # a path of this machine says nothing to anybody else
    return plain if len(plain) <= SAID else plain[: SAID - 3] + "..."


def main(
    out: Annotated[Path, typer.Option(help="Where the document is written")] = ROOT / "docs" / "mutants.md",
    work: Annotated[Path | None, typer.Option(help="Folder of what is known already; default: a temporary one")] = None,
    only: Annotated[str, typer.Option(help="Names that match this regular expression")] = "",
    minutes: Annotated[float, typer.Option(min=0, help="Start no tree after this")] = 240.0,
    smollm2: Annotated[bool, typer.Option(help="The twelve subtle ones on SmolLM2-135M, and no document")] = False,
    partial: Annotated[
        bool, typer.Option(help="Write the document although verdicts are missing: it says which")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Verdicts at once; an engine here computes on one core")] = 1,
    repeats: Annotated[int, typer.Option(min=0, max=len(SEEDS), help="Verdicts on each variant")] = len(SEEDS),
) -> None:
    """Judge mutants and variants. The document is written once everything was judged, with --partial as far as it was.

    Exit status 1 if a mutant passes every gate or a variant fails one, 2 for what can't be asked, 3 if the time was up
    before everything was judged."""
    end = time.monotonic() + 60 * minutes
    try:
        wanted = re.compile(only)
    except re.error as error:
        raise typer.BadParameter(f"--only is no regular expression: {only!r}: {error}") from None
    mutants = [m for m in (subtle.MUTANTS if smollm2 else MUTANTS) if wanted.search(m.name)]
    variants = [] if smollm2 else [v for v in VARIANTS if wanted.search(v.name)]
    if not mutants and not variants:
        raise typer.BadParameter(f"--only {only!r} matches none of {len(MUTANTS)} mutants and {len(VARIANTS)} variants")
    with tempfile.TemporaryDirectory(prefix="enginesmith-mutants-") as temporary:
        folder = (work or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)

        def open_shop() -> Workshop:
            return Workshop(folder, "screen" if smollm2 else None)

        rows = {row.name: row for row in run([(m, SEEDS[0]) for m in mutants], open_shop, end, workers)}
        again = run([(v, seed) for v in variants for seed in SEEDS[:repeats]], open_shop, end, workers)
    escaped, rejected = sum(not row.failed for row in rows.values()), sum(bool(row.failed) for row in again)
    print(f"{len(rows)} of {len(mutants)} mutants judged, {escaped} pass every gate; {len(again)} verdicts on "
          f"{len(variants)} right variants, {rejected} rejections")  # fmt: skip
    if (left := len(mutants) - len(rows) + len(variants) * repeats - len(again)) > 0:
        print(f"{left} verdicts are missing: the same command with --work {folder} goes on")
    if (partial or not left) and not smollm2 and not only:
        out.write_text(document(mutants, rows, variants, again), encoding="utf-8")
        again_caught = {m.name for m in mutants if m.name in rows and m.gate in rows[m.name].failed.keys() - SEEN_LATE}
        names = sorted((caught() - rows.keys()) | again_caught)
        CAUGHT.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    sys.exit(1 if escaped or rejected else 3 if left else 0)


if __name__ == "__main__":
    typer.run(main)
