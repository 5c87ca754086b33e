"""Starts a command as a confined child process group, watches what it uses, and ends the whole group.

What runs here is generated code. layers.py says behind which walls and what each is for; docs/sandbox.md for whoever
wants to know what that means. The child gets a clean environment, a private folder as its HOME and TMPDIR, an
allow-list of files, no network but its own loopback, and limits (drivers/confine.py and drivers/rules.py apply them and
report what took effect). The parent looks at the group's memory, processes and folders and ends it when one passes a
limit.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from ckb.errors import UserError
from gpu_actors import cgroups, layers, processes
from gpu_actors.allowance import Allowance, Guard
from gpu_actors.confinement import DRIVERS, environment, give, identity, specification
from gpu_actors.confinement import Confinement as Confinement  # by which it is known: the two go together

UNTIMED = {"GOMP_SPINCOUNT": "1000"}
"""Environment of children whose speed is not measured: threads that spin at a barrier while their partner waits for a
processor make a run beside others up to ten times slower than threads that soon sleep. Those that sleep at once
(OMP_WAIT_POLICY=PASSIVE) are slower again, alone and beside others: a barrier of a decode step is short."""
REQUEST_FD, REPLY_FD, WATCH_FD = "{request}", "{reply}", "{watch}"
"""Words of a command line that stand for the numbers of the two protocol pipes, and of the one on which a child's watch
tells of violations (drivers/watch.py)."""
PIPES = (REQUEST_FD, REPLY_FD, WATCH_FD, "report")
OUTPUT_KEPT = 64 * 1024
OUTPUT_LIMIT = 64 * 1024**2
SAMPLE_S = 0.05
HEADROOM = 64 * 1024**2
"""What a control group may hold beyond the watched limit: the watch, which can say what happened, should be first."""


class Sandbox:
    """One confined process group with pipes for a protocol. Close it (or use it as a context manager)."""

    def __init__(self, argv: list[str], confinement: Confinement):
        """Raises UserError where the layers that are needed don't work."""
        self.private = Path(tempfile.mkdtemp(prefix="enginesmith-"))
        self.port = free_port()
        """The TCP port that the child may listen on, where it has no network of its own."""
        self.killed: str | None = None
        """Why the parent ended the group, or None."""
        self.sample_s = SAMPLE_S
        """Time between two looks at what the group uses; may be changed at any time."""
        self._output = bytearray()
        self._output_bytes = 0
        self._seen: dict[int, float] = {}
        self._closing = threading.Event()
        self._shared = tuple(path.resolve() for path in confinement.write)
        self._memory_bytes = confinement.memory_bytes or processes.memory_bytes() * 15 // 16
        folders = (self.private, *self._shared)
        self._guard = Guard(Allowance(self._memory_bytes, confinement.disk_bytes, folders))
        with contextlib.ExitStack() as undo:
            undo.callback(remove, self.private)
            limited = confinement.mode != "none" and "cgroups" not in confinement.without
            self._group = cgroups.Group(self._memory_bytes + HEADROOM, confinement.tasks, use=limited)
            undo.callback(self._group.remove)
            self._start(argv, confinement, folders, undo)
            undo.pop_all()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._drain, self._watch)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(
        self, argv: list[str], confinement: Confinement, folders: tuple[Path, ...], undo: contextlib.ExitStack
    ) -> None:
        request, self.request_fd = os.pipe()
        self.reply_fd, reply = os.pipe()
        self.watch_fd, watch = os.pipe()
        report_fd, report = os.pipe()
        undo.callback(self._close_pipes)
        passed = (request, reply, watch, report)
        try:
            pipes = dict(zip(PIPES, passed, strict=True))
            told = specification(confinement, self.private, argv, pipes, self._group.files, self.port)
            spec = self.private / "confine.json"  # which grows with what is installed, and an argument may not
            spec.write_text(json.dumps(told), encoding="utf-8")
            uid = identity(confinement, self.private)
            if uid is not None:
                for folder in folders:
                    give(folder, uid)
            self._process = self._launch(spec, passed, confinement)
            assert self._process.stdout
            undo.callback(self._process.stdout.close)
            undo.callback(self._end)
        finally:
            for fd in passed:
                os.close(fd)
            with os.fdopen(report_fd, encoding="utf-8") as answer:
                lines = [json.loads(line) for line in answer]
        if len(lines) != 2:
            assert self._process.stdout
            said = self._process.stdout.read().decode(errors="replace")[-500:].strip()
            raise UserError(
                "the sandbox can't be set up on this machine; `sandbox: none` runs generated code without it "
                f"(written in every record). The launcher said: {said or 'nothing'}"
            )
        applied = lines[0] | lines[1]  # by the watcher and by the confined process, in either order
        self.pid: int = applied["pid"]
        self._seen[self.pid] = processes.start_time(self.pid)
        self.isolation = layers.describe(told | applied, self._group)

    def _launch(self, spec: Path, passed: tuple[int, ...], confinement: Confinement) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(DRIVERS / "confine.py"), str(spec)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=passed,
            cwd=self.private,
            env=environment(self.private, confinement.environment),
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        """The last lines that the child wrote to stdout and stderr."""
        return bytes(self._output).decode(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Exit status (128 + signal when a signal ended it), or None when it still runs after `timeout_s`."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if self._group.out_of_memory():
            self.killed = self.killed or f"its memory reached the limit of {self._memory_bytes:,} bytes"
        return status

    def drain(self) -> None:
        """Waits until everything that an ended child wrote has arrived in `output`."""
        self._threads[0].join(5.0)

    def kill(self, reason: str) -> None:
        """Ends the whole group at once, also what left its session. The first reason is kept."""
        self.killed = self.killed or reason
        self._end()

    def close(self) -> None:
        """Ends what still runs, reaps it and removes the private folder. What filled the disk is removed, wherever."""
        self._closing.set()
        self._end()
        for thread in self._threads:
            thread.join()
        self._close_pipes()
        if self._process.stdout:
            self._process.stdout.close()
        self._group.remove()
        remove(self.private)
        for folder in self._shared if self._guard.full else ():
            remove(folder)
            folder.mkdir()

    @property
    def peak_rss_bytes(self) -> int:
        """Largest sum of the group's resident sets that was seen."""
        return self._guard.peak_rss_bytes

    def _end(self) -> None:
        """Ends every process of the group that the tree, an earlier look or the control group tells of. Its watcher
        ends and reaps the orphans that nobody saw."""
        watcher = self._process.pid

        def seen() -> list[int]:
            # once it is reaped its number may be another's, and that one's children are nothing to us
            below = processes.tree(watcher)[1:] if self._process.poll() is None else []
            return [*below, *(pid for pid in list(self._seen) if self._is_ours(pid))]

        processes.end(seen)
        self._group.kill()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()

    def _is_ours(self, pid: int) -> bool:
        """Whether a process that was seen is still there: its number may have been given to another since."""
        at = self._seen.get(pid, 0.0)
        return at > 0 and processes.start_time(pid) == at

    def _close_pipes(self) -> None:
        for fd in (self.request_fd, self.reply_fd, self.watch_fd):
            os.close(fd)

    def _drain(self) -> None:
        stream: IO[bytes] | None = self._process.stdout
        assert stream
        fd = stream.fileno()
        while chunk := os.read(fd, 65536):
            self._output_bytes += len(chunk)
            self._output += chunk
            del self._output[:-OUTPUT_KEPT]
            if self._output_bytes > OUTPUT_LIMIT:
                self.kill(f"it wrote more than {OUTPUT_LIMIT // 1024**2} MiB to stdout")
                return

    def _watch(self) -> None:
        while not self._closing.wait(self.sample_s) and self._is_ours(self.pid):
            members = processes.tree(self.pid)
            for pid in members:
                if pid not in self._seen:
                    self._seen[pid] = processes.start_time(pid)
            if reason := self._guard.excess(members):
                self.kill(reason)


def remove(folder: Path) -> None:
    """Removes a folder, also if whoever filled it took the right to look into parts of it."""

    def open_up(_: object, path: str, __: object) -> None:
        for place in (Path(path).parent, Path(path)):
            if place.is_relative_to(folder) and not place.is_symlink():
                with contextlib.suppress(OSError):
                    place.chmod(0o700)

    for _ in range(2):  # the second time with the rights that the first one lacked
        shutil.rmtree(folder, onerror=open_up)
        if not folder.exists():
            return
    shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_for(process: Sandbox, deadline: float) -> int | None:
    """Exit status of a child that runs to its end, or None after killing it at `deadline` (monotonic seconds)."""
    status = process.wait(max(0.0, deadline - time.monotonic()))
    if status is None:
        process.kill("it ran past its deadline")
    return status
