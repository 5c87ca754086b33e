"""Writers for test_store_processes: started once, they fork, since a process that imports pyarrow takes a second.

python store_writers.py append ROOT WRITERS COUNT     each writer appends COUNT rows, all at once
python store_writers.py kill ROOT...                  in ROOT number n a writer is killed at the n-th step of a commit
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckb.store import Store
from tests.unit.ckb.samples import ROWS, experience


def fork(work: Callable[[], None]) -> int:
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


def codes(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def append(root: str, writer: int, count: int) -> None:
    store = Store(Path(root))
    for n in range(count):
        store.append({"experience": [experience(f"{writer}-{n}")]}, message="m", by=str(writer))


def die_at(step: int) -> None:
    """From here on the process is killed just before its `step`-th call of fsync, link or unlink."""
    calls = 0

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **keywords)

        return wrapped

    os.fsync, os.link, os.unlink = stepping(os.fsync), stepping(os.link), stepping(os.unlink)


def commit_and_die(root: str, step: int) -> None:
    store = Store(Path(root))
    die_at(step)
    store.append({"experience": [experience("new")], "runs": [ROWS["runs"]]}, message="m", by="b")


if __name__ == "__main__":
    if sys.argv[1] == "append":
        root, writers, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        print(*codes([fork(lambda writer=writer: append(root, writer, count)) for writer in range(writers)]))  # type: ignore[misc]
    else:
        roots = enumerate(sys.argv[2:], 1)
        print(*codes([fork(lambda root=root, step=step: commit_and_die(root, step)) for step, root in roots]))  # type: ignore[misc]
