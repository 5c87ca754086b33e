"""Runs a coding agent's command line: confined by mounts, with a network, without a terminal, until a deadline.

It is no candidate: it must reach its provider and bring its own program and login along. So it gets namespaces and
read-only mounts of the system, of its program and of what a Target names; writable are its folder, a home of its own
and the folders that a Target names. Frameworks' sources are covered wherever they lie in what it sees. With a network
it could still fetch one: the isolation says so, and the comparison with fingerprints of releases comes afterwards.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from ckb.errors import UserError
from gpu_actors import bubblewrap, layers, processes
from gpu_actors.sandbox import remove

OUTPUT_LIMIT = 16 * 1024**2
ERRORS_KEPT = 64 * 1024
LOOK_S = 0.1
PATHS = ("/usr/local/bin", "/usr/bin", "/bin")
CONFINED = (
    "bubblewrap: own pid, ipc, uts namespace; read-only mounts without frameworks; no terminal; clean environment; "
    "open: the network, memory"
)
UNCONFINED = "sandbox: none (no terminal, a clean environment only)"


@dataclass(frozen=True)
class Ended:
    """How a command ended; no process of its is left."""

    status: int | None
    """None: it was ended from outside."""
    output: str
    errors: str
    reason: str
    """Why it was ended from outside, or empty."""
    isolation: str


def run(
    argv: Sequence[str],
    folder: Path,
    deadline_s: float,
    variables: Mapping[str, str],
    *,
    mode: Literal["auto", "none"] = "auto",
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    hide: Sequence[Path] = (),
) -> Ended:
    """`hide`: folders that are covered, whatever shows them. Raises UserError for a program that isn't there, and where
    nothing can confine it."""
    program = program_of(argv[0], mode)
    own = Path(tempfile.mkdtemp(prefix="enginesmith-home-"))
    try:
        words = [program, *argv[1:]]
        if mode == "auto":
            places = (folder, own, *write)
            shown = bubblewrap.agent(layers.bubblewrap(), Path(program), read=read, write=places, hide=hide)
            words = [*shown, "--chdir", str(folder), *words]
        given = environment(own, Path(program).parent, variables)
        watched = Watched(words, folder, given)
        return watched.until(deadline_s, CONFINED if mode == "auto" else UNCONFINED)
    finally:
        remove(own)


def program_of(name: str, mode: Literal["auto", "none"]) -> str:
    """The program of a command line. Raises UserError for one that isn't there or can't be confined."""
    program = shutil.which(name)
    if program is None:
        raise UserError(f"the command {name!r} is not there: it is no file, and not on the PATH of this process")
    if mode == "auto" and not layers.bubblewrap():
        raise UserError(
            f"nothing here can confine {name!r}: install bubblewrap (bwrap), or set `sandbox: none`, with which it "
            "may read and write what you may"
        )
    return program


def environment(own: Path, programs: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """All that the command is told of this machine. What is named comes last: a login may need another HOME."""
    path = os.pathsep.join([str(programs), *PATHS])
    known = {"PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", "CI": "1", "HOME": str(own), "TMPDIR": str(own)}
    return known | dict(variables)


class Watched:
    """A process group whose output is kept up to a limit, and that is ended as a whole."""

    def __init__(self, words: Sequence[str], folder: Path, given: Mapping[str, str]):
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=dict(given),
            start_new_session=True,  # no terminal to ask on, and one group to end
        )
        self._seen: dict[int, float] = {}
        self._output, self._errors = bytearray(), bytearray()
        self._too_much = False
        assert self._process.stdout
        assert self._process.stderr
        self._threads = [
            threading.Thread(target=self._keep, args=(self._process.stdout, self._output, OUTPUT_LIMIT), daemon=True),
            threading.Thread(target=self._keep, args=(self._process.stderr, self._errors, ERRORS_KEPT), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def until(self, deadline_s: float, isolation: str) -> Ended:
        """Waits for the command, and ends what is left of it in any case."""
        reason = ""
        deadline = time.monotonic() + deadline_s
        try:
            while self._process.poll() is None and not reason:
                self._look()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(LOOK_S)
                if time.monotonic() > deadline:
                    reason = f"it ran longer than its deadline of {deadline_s:g} s"
                if self._too_much:
                    reason = f"it wrote more than {OUTPUT_LIMIT // 1024**2} MiB to stdout"
        finally:
            self._end()
        for thread in self._threads:
            thread.join(5.0)
        output, errors = (bytes(kept).decode(errors="replace") for kept in (self._output, self._errors))
        return Ended(None if reason else self._process.returncode, output, errors, reason, isolation)

    def _look(self) -> None:
        """Notes who belongs to it: one that leaves the group and loses its parent is found by its number and birth."""
        for pid in processes.tree(self._process.pid):
            if pid not in self._seen:
                self._seen[pid] = processes.start_time(pid)

    def _end(self) -> None:
        running = self._process.poll() is None

        def members() -> list[int]:
            below = processes.tree(self._process.pid) if running else []
            mine = [pid for pid, born in self._seen.items() if born > 0 and processes.start_time(pid) == born]
            return list(dict.fromkeys([*below, *mine]))

        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        processes.end(members)
        self._process.wait()

    def _keep(self, stream: IO[bytes], kept: bytearray, limit: int) -> None:
        """The last of a stream. stdout is a record of what was done: one that passes the limit ends the command."""
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                kept += chunk
                if len(kept) > limit:
                    self._too_much = self._too_much or kept is self._output
                    del kept[:-limit]
