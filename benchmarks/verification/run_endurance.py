"""python benchmarks/verification/run_endurance.py [--candidates N] [--seed S] [--out FILE.json]

N verdicts in a row through one device, a third of them on candidates that crash, hang, lie or take too much: is each
one a row with the status that it should have, and is anything left of them afterwards? Prints a table, writes it as
JSON, and exits with 1 unless both hold. Run it from the checkout: it needs the tiny engine of its tests.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a script's own folder is what it would import from

import psutil
import typer
from rich.console import Console
from rich.table import Table

from gpu_actors import cgroups, processes
from gpu_actors.device import Device
from gpu_actors.jobs import Verdict
from tests.unit.gpu_actors import tiny

CONTRACTS = ("setup", "linear", "rms-norm")
DEADLINE_S = 300.0
HANG_S = 10.0
"""Deadline of a candidate that never answers: it is spent to its end each time."""
LIMITS = {"max_memory_bytes": 2 << 30, "max_disk_bytes": 200 << 20}
"""The disk limit is one that is reached in a second."""
GROWTH = 64 << 20
"""How much more memory this process may hold afterwards: Python gives little back."""
SETUP = ("kernels.py", "    torch.set_num_threads(THREADS)")
LINEAR = ("kernels.py", "    return F.linear(x, packed)")
SAY = (
    "    import os\n    for fd in range(3, 30):\n        try:\n            os.write(fd, {what})\n"
    "        except OSError:\n            pass"
)


@dataclass(frozen=True)
class Kind:
    """What a candidate does, and what its verdict must say."""

    place: tuple[str, str]
    code: str
    says: str
    """Part of the first failed gate's summary; empty for one that passes."""
    deadline_s: float = DEADLINE_S


RIGHT = Kind(SETUP, SETUP[1], "")
BAD = {
    "crashes": Kind(SETUP, "    import os\n    os.abort()", "CRASHED"),
    "leaves without an answer": Kind(SETUP, "    import os\n    os._exit(0)", "CRASHED"),
    "never answers": Kind(SETUP, "    import time\n    time.sleep(3600)", "TIMEOUT", HANG_S),
    "answers rubbish": Kind(SETUP, SAY.format(what=r"b'\xff\xfe rubbish\n'"), "PROTOCOL"),
    "answers another request": Kind(
        SETUP, SAY.format(what="""b'{"id": 99, "values": {}, "arrays": []}\\n'"""), "PROTOCOL"
    ),
    "answers with a pickle": Kind(SETUP, SAY.format(what=r"b'\x80\x04cos\nabort\n(tR.\n'"), "PROTOCOL"),
    "lies": Kind(LINEAR, "    return F.linear(x, packed) * 1.01", "error"),
    "fills the disk": Kind(
        SETUP,
        "    import os\n    for i in range(10_000):\n        path = os.path.join(os.environ['HOME'], str(i))\n"
        "        with open(path, 'wb') as file:\n            file.write(b'x' * (1 << 20))",
        "bytes to the disk",
    ),
    "fills the memory": Kind(SETUP, "    held = []\n    while True:\n        held.append(b'x' * (64 << 20))", "memory"),
    "fills its output": Kind(SETUP, "    while True:\n        print('x' * 65536)", "to stdout"),
    "starts threads": Kind(
        SETUP,
        "    import threading, time\n    for _ in range(10_000):\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "RuntimeError",
    ),
    "holds a port": Kind(
        SETUP,
        "    from http.server import HTTPServer, BaseHTTPRequestHandler\n"
        "    HTTPServer(('127.0.0.1', 0), BaseHTTPRequestHandler).serve_forever()",
        "TIMEOUT",
        HANG_S,
    ),
    "forks": Kind(SETUP, "    import os\n    for _ in range(10_000):\n        os.fork()", "os.fork"),
}


def main(
    candidates: Annotated[int, typer.Option(min=3)] = 200,
    seed: int = 0,
    out: Annotated[Path | None, typer.Option(help="file for the table as JSON")] = None,
) -> None:
    """Exits with 1 if a row is missing or wrong, or anything is left."""
    folder = Path(tempfile.mkdtemp(prefix="endurance-"))
    temporary = folder / "tmp"  # counted apart from what others of this machine leave there
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    try:
        found = endure(folder, candidates, seed)
    finally:
        tempfile.tempdir = None
        shutil.rmtree(folder)
    show(found)
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(0 if found["holds"] else 1)


def endure(folder: Path, candidates: int, seed: int) -> dict[str, Any]:
    kinds = order(candidates, seed)
    checkpoint = tiny.write_checkpoint(folder / "model", "llama")
    device = Device("cpu", folder / "cache", folder / "leases")
    judge(device, folder, checkpoint, "right", 0)  # whatever is made once in a process is there before it is counted
    before = held(folder)
    rows = []
    for number, kind in enumerate(kinds, 1):
        rows.append(row(device, folder, checkpoint, kind, number))
        print(f"{number} of {candidates}: {kind}, {rows[-1]['seconds']} s", file=sys.stderr, flush=True)
    after = held(folder)
    leaked = {name: after[name] - before[name] for name in after if name != "memory" and after[name] > before[name]}
    if after["memory"] - before["memory"] > GROWTH:
        leaked["memory"] = after["memory"] - before["memory"]
    wrong = [found for found in rows if not found["as it should"]]
    return {
        "candidates": candidates, "seed": seed, "rows": rows, "before": before, "after": after, "leaked": leaked,
        "holds": len(rows) == candidates and not wrong and not leaked,
    }  # fmt: skip


def order(candidates: int, seed: int) -> list[str]:
    """A third are bad, each kind in turn, at places that are drawn."""
    bad = [list(BAD)[i % len(BAD)] for i in range(candidates // 3)]
    kinds = [*bad, *["right"] * (candidates - len(bad))]
    random.Random(seed).shuffle(kinds)
    return kinds


def row(device: Device, folder: Path, checkpoint: Path, name: str, number: int) -> dict[str, Any]:
    begun = time.monotonic()
    verdict = judge(device, folder, checkpoint, name, number)
    said = verdict.failures[0].summary if verdict.failures else ""
    expected = BAD[name].says if name in BAD else ""
    fine = expected in said if expected else verdict.passed
    return {
        "number": number, "kind": name, "passed": verdict.passed, "gates": len(verdict.gates), "said": said[:200],
        "as it should": fine and verdict.passed == (not expected), "seconds": round(time.monotonic() - begun, 2),
    }  # fmt: skip


def judge(device: Device, folder: Path, checkpoint: Path, name: str, number: int) -> Verdict:
    kind = BAD.get(name, RIGHT)
    file, old = kind.place
    tree = tiny.write_engine(folder / f"candidate_{number}", edits={file: (old, kind.code)})
    engine = tiny.engine_job(tree, checkpoint).model_copy(update=LIMITS)
    fields = {"stages": ("execution",), "levels": ("L1",), "contracts": CONTRACTS, "deadline_s": kind.deadline_s}
    try:
        return device.verify(tiny.verify_job(engine, candidate=f"c{number}", seed=number, **fields))
    finally:
        shutil.rmtree(tree)


def held(folder: Path) -> dict[str, int]:
    """What this process, and whatever its candidates started, holds of the machine."""
    mine = psutil.Process()
    ours = {mine.pid, *processes.tree(mine.pid), *of(folder)}
    ports = [c for pid in ours if psutil.pid_exists(pid) for c in connections(pid) if c.status == psutil.CONN_LISTEN]
    groups = {group for place in cgroups.places().values() for group in place.glob(f"enginesmith-{mine.pid}-*")}
    return {
        "processes": len(ours),
        "handles": mine.num_fds(),
        "threads": mine.num_threads(),
        "ports": len(ports),
        "folders": len(list((folder / "tmp").iterdir())),
        "control groups": len(groups),
        "memory": mine.memory_info().rss,
    }


def connections(pid: int) -> list[Any]:
    try:
        return psutil.Process(pid).net_connections()
    except psutil.Error:
        return []


def of(folder: Path) -> list[int]:
    """Processes that were started with this run's folder in their environment, whoever is their parent now."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in value for value in process.environ().values()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def show(found: dict[str, Any]) -> None:
    console = Console(width=110)
    table = Table("kind", "rows", "as they should", "median s")
    for kind, count in sorted(Counter(row["kind"] for row in found["rows"]).items()):
        own = [row for row in found["rows"] if row["kind"] == kind]
        seconds = sorted(row["seconds"] for row in own)[len(own) // 2]
        table.add_row(kind, str(count), str(sum(row["as it should"] for row in own)), f"{seconds:.1f}")
    console.print(table)
    for wrong in [row for row in found["rows"] if not row["as it should"]]:
        console.print(f"{wrong['number']} {wrong['kind']}: {wrong['said'] or 'passed'}", markup=False)
    for name in found["after"]:
        console.print(f"{name}: {found['before'][name]:,} before, {found['after'][name]:,} after")
    console.print("nothing leaked" if not found["leaked"] else f"leaked: {found['leaked']}")


if __name__ == "__main__":
    typer.run(main)
