"""python -m benchmarks.verification.page

Writes the section "On an H200" of docs/verification.md from the newest folder of records/: no figure is copied by hand,
and a test holds the page to the records.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.verification.found import Found, Judged
from ckb.errors import UserError

HERE = Path(__file__).parent
RECORDS = HERE / "records"
PAGE = HERE.parents[1] / "docs" / "verification.md"
HEADING = "## On an H200\n\n"
LONGEST = 6
"""Gates that are named with their seconds."""
AIM_S = 120
"""What a right engine should take at most, once the reference's outputs are stored."""


def newest(records: Path, step: str) -> Path:
    """The folder in which a step was recorded last. Raises UserError where it is in none."""
    held = [(read(path.parent, path.stem).at, path.parent) for path in records.glob(f"*h200*/{step}.json")]
    if not held:
        raise UserError(
            f"{records} holds no record of the step {step} on an H200: run benchmarks.verification.run_h200"
        )
    return max(held)[1]


def read(folder: Path, step: str) -> Found:
    """Raises UserError for a step that was not recorded."""
    path = folder / f"{step}.json"
    if not path.exists():
        raise UserError(f"{folder} holds {sorted(p.name for p in folder.iterdir())}, and not {path.name}")
    return Found.model_validate_json(path.read_text(encoding="utf-8"))


def section(records: Path) -> str:
    """What the newest records hold, in Markdown. The wrong engines may have been judged before the right one was: then
    of another commit and checkpoint, which the page says."""
    folder, earlier = newest(records, "gates"), newest(records, "mutants")
    made, gates, mutants = read(folder, "checkpoint"), read(folder, "gates"), read(earlier, "mutants")
    (right,) = gates.judged
    assert made.checkpoint
    checkpoint = made.checkpoint
    tree, lines = stated(right, "tree", r"tree (\w{8})\w*, (\d+) lines")
    positions, outside = stated(right, "acceptance_top1", r"of (\d+) positions, at all but 0 of the ([\d.]+%) outside")
    environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined, autoescape=False)
    return environment.get_template("h200.md.jinja").render(
        folder=folder.name, earlier="" if earlier == folder else earlier.name, mutants=mutants,
        shape=checkpoint.shape, bytes=checkpoint.bytes, written_s=checkpoint.seconds,
        measures=checkpoint.measures, measuring_s=checkpoint.measuring_s, sharpness=checkpoint.sharpness,
        commit=gates.commit, device=gates.device, machine=gates.machine, date=gates.at[:10],
        torch=gates.versions["torch"], transformers=gates.versions["transformers"],
        aim_s=AIM_S, lines=lines, tree=tree, positions=positions, outside=outside,
        right=right, engine_s=right.seconds, gates_s=sum(gate.seconds for gate in right.gates),
        longest=sorted(right.gates, key=lambda gate: -gate.seconds)[:LONGEST],
        runs=runs(records),
    )  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The right engine's verdict in one record."""

    folder: str
    commit: str
    gates: int
    seconds: float
    greedy_s: float


def runs(records: Path) -> list[Run]:
    """All that were recorded, the newest last: hosts of one kind of device differ in speed, and an engine that starts
    each operation from the host shows it."""
    found = [(path.parent.name, read(path.parent, path.stem)) for path in records.glob("*h200*/gates.json")]
    return [
        Run(
            folder, one.commit, len(one.judged[0].gates), one.judged[0].seconds,
            sum(gate.seconds for gate in one.judged[0].gates if gate.gate == "acceptance_greedy"),
        )
        for folder, one in sorted(found, key=lambda pair: pair[1].at)
    ]  # fmt: skip


def stated(one: Judged, gate: str, pattern: str) -> tuple[str, ...]:
    """What a gate's summary says, by the pattern's groups. Raises UserError where it doesn't."""
    summary = next((row.summary for row in one.gates if row.gate == gate), "")
    if not (found := re.search(pattern, summary)):
        raise UserError(f"the gate {gate} of {one.name!r} says {summary!r}, and nothing like {pattern!r}")
    return found.groups()


def written(page: str, text: str) -> str:
    """The page with this section, which is its last."""
    if page.count(HEADING) != 1:
        raise UserError(f"{PAGE} has {page.count(HEADING)} headings {HEADING.strip()!r}; it must have one")
    return page[: page.index(HEADING)] + HEADING + text


if __name__ == "__main__":
    try:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), section(RECORDS)), encoding="utf-8")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
