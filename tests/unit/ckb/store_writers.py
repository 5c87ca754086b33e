"""Writers for test_store_processes: started once, they fork, since a process that imports pyarrow takes a second.

python store_writers.py append PLACE WRITERS COUNT     each writer appends COUNT rows, all at once
python store_writers.py kill DEED TEMPLATE FOLDER      in FOLDER/<n>, a copy of TEMPLATE, a writer is killed at the n-th
                                                       step of DEED; n grows until a writer survives
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from ckb.compaction import compact
from ckb.maintenance import vacuum
from ckb.store import Store
from tests.unit.ckb.samples import ROWS, experience

DEEDS: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(
        {"experience": [experience("new")], "runs": [ROWS["runs"]]}, message="m", by="b"
    ),
    "overwrite": lambda store: store.overwrite(
        {"experience": [experience("a", text="new")]}, parent=store.latest, message="m", by="b"
    ),
    "compact": lambda store: compact(store, by="b"),
    "tag": lambda store: store.tag("gold"),
    "vacuum": lambda store: vacuum(store, timedelta(hours=1), by="b", now=datetime.now(UTC) + timedelta(hours=2)),
}


def fork(work: Callable[[], object]) -> int:
    """Runs `work` in a child process, which ends with status 0 or 1. Returns its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def append(place: str, writer: int, rows: int) -> None:
    store = Store(place)
    for n in range(rows):
        store.append({"experience": [experience(f"{writer}-{n}")]}, message="m", by=str(writer))


def die_at(last: int) -> None:
    """From here on the process is killed just before its `last`-th step: the creation of a file, the second half of its
    content, and each call of fsync, link, unlink and mkdir."""
    steps = count(1)

    def step() -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            step()
            return call(*arguments, **keywords)

        return wrapped

    class Halving:
        """An open file whose content arrives in two halves."""

        def __init__(self, file: BinaryIO):
            self._file = file

        def write(self, data: bytes) -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            step()
            self._file.write(data[len(data) // 2 :])

        def __enter__(self) -> "Halving":
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    plain = Path.open

    def opened(path: Path, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        if "x" not in mode:
            return plain(path, mode, *arguments, **keywords)
        step()
        return Halving(plain(path, mode, *arguments, **keywords))  # type: ignore[arg-type]

    Path.open = opened  # type: ignore[method-assign,assignment]
    for name in ("fsync", "link", "unlink", "mkdir"):
        setattr(os, name, stepping(getattr(os, name)))


def run(*arguments: object) -> list[int]:
    """Starts this module as a process, and returns the exit codes of those that it forked."""
    command = [sys.executable, "-m", "tests.unit.ckb.store_writers", *map(str, arguments)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    return [int(code) for code in done.stdout.split()]


def do_and_die(deed: str, root: Path, step: int) -> None:
    store = Store(root)
    die_at(step)
    DEEDS[deed](store)


def kill(deed: str, template: Path, folder: Path) -> list[int]:
    """Exit codes of the writers, one a step; the last one lived."""
    codes: list[int] = []
    while not codes or codes[-1] == -signal.SIGKILL:
        root, step = folder / str(len(codes) + 1), len(codes) + 1
        shutil.copytree(template, root)
        codes.append(code(fork(lambda root=root, step=step: do_and_die(deed, root, step))))  # type: ignore[misc]
    return codes


if __name__ == "__main__":
    if sys.argv[1] == "append":
        place, writers, rows = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        pids = [fork(lambda writer=writer: append(place, writer, rows)) for writer in range(writers)]  # type: ignore[misc]
        print(*map(code, pids))
    else:
        print(*kill(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
