"""Starts a command as a confined child process group, watches its memory, and ends the whole group.

What runs here is generated code. The child gets a clean environment, a private folder as its HOME and TMPDIR, an
allow-list of files, no network but its own loopback, and limits (drivers/confine.py applies them and reports what
took effect). The parent samples the resident memory of the process tree and kills the group when it passes a limit.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from ckb.errors import UserError
from gpu_actors import processes, readable

CONFINE = Path(__file__).parent / "drivers" / "confine.py"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
UNTIMED = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Environment of children whose speed is not measured: threads that spin at a barrier while their partner waits for a
processor make a run beside others up to ten times slower than threads that sleep."""
REQUEST_FD, REPLY_FD, WATCH_FD = "{request}", "{reply}", "{watch}"
"""Words of a command line that stand for the numbers of the two protocol pipes, and of the one on which a child's watch
tells of violations (drivers/watch.py)."""
PIPES = (REQUEST_FD, REPLY_FD, WATCH_FD, "report")
OUTPUT_KEPT = 64 * 1024
OUTPUT_LIMIT = 64 * 1024**2
PROCESS_LIMIT = 256
SAMPLE_S = 0.05


@dataclass(frozen=True)
class Confinement:
    """What one child may do."""

    mode: Literal["auto", "none"] = "auto"
    """none: no confinement at all but the clean environment; it is written in every record."""
    read: tuple[Path, ...] = ()
    """Readable beside the system, the interpreter and its packages: the engine's tree."""
    data: tuple[Path, ...] = ()
    """Readable but for Python sources: the checkpoint."""
    write: tuple[Path, ...] = ()
    """Writable beside the private folder: the tree's own kernel cache."""
    operators: tuple[str, ...] = ()
    """Operator libraries that the candidate's code may import beside what every engine may."""
    environment: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    """Limit of the tree's resident memory; 0 is the machine's memory."""
    file_bytes: int = 8 * 1024**3
    open_files: int = 4096
    cpu_seconds: int = 3600
    devices: tuple[str, ...] = ()
    """Device files that are passed through, as glob patterns: /dev/nvidia*."""


def environment(private: Path, extra: dict[str, str]) -> dict[str, str]:
    """The whole environment of a child: nothing of the host's but where programs are and how many threads to use."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    kept = {name: os.environ[name] for name in ("CUDA_HOME", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return {
        "PATH": path,
        "LANG": "C.UTF-8",
        "LOGNAME": "engine",  # some of torch's modules ask who they are, and /etc/passwd can't be read
        "HOME": str(private),
        "TMPDIR": str(private),
        "XDG_CACHE_HOME": str(private / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **kept,
        **extra,
    }


class Sandbox:
    """One confined process group with pipes for a protocol. Close it (or use it as a context manager)."""

    def __init__(self, argv: list[str], confinement: Confinement):
        self.private = Path(tempfile.mkdtemp(prefix="enginesmith-"))
        self.port = free_port()
        """The TCP port that the child may listen on, where it has no network of its own."""
        self.killed: str | None = None
        """Why the parent ended the group, or None."""
        self.peak_rss_bytes = 0
        self.sample_s = SAMPLE_S
        """Time between two looks at the tree's memory; may be changed at any time."""
        self._output = bytearray()
        self._output_bytes = 0
        self._seen: dict[int, float] = {}
        self._closing = threading.Event()
        try:
            self._start(argv, confinement)
        except BaseException:
            shutil.rmtree(self.private, ignore_errors=True)
            raise
        self._threads = [
            threading.Thread(target=self._drain, daemon=True),
            threading.Thread(
                target=self._watch, args=(confinement.memory_bytes or processes.memory_bytes(),), daemon=True
            ),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, argv: list[str], confinement: Confinement) -> None:
        request_read, self.request_fd = os.pipe()
        self.reply_fd, reply_write = os.pipe()
        self.watch_fd, watch_write = os.pipe()
        report_read, report_write = os.pipe()
        passed = (request_read, reply_write, watch_write, report_write)
        spec = self.private / "confine.json"  # which grows with what is installed, and an argument may not
        told = self._specification(argv, confinement, dict(zip(PIPES, passed, strict=True)))
        spec.write_text(json.dumps(told), encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(CONFINE), str(spec)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                cwd=self.private,
                env=environment(self.private, confinement.environment),
                start_new_session=True,
            )
        finally:
            for fd in passed:
                os.close(fd)
        with os.fdopen(report_read, encoding="utf-8") as report:
            lines = [json.loads(line) for line in report]
        if len(lines) != 2:
            stdout = self._process.stdout
            output = stdout.read().decode(errors="replace")[-500:] if stdout else ""
            self._end_process()
            self._close_pipes()
            raise UserError(
                "the sandbox can't be set up on this machine; `sandbox: none` runs generated code without it "
                f"(written in every record). The launcher said: {output.strip() or 'nothing'}"
            )
        applied = lines[0] | lines[1]  # by the watcher and by the confined process, in either order
        self.pid: int = applied["pid"]
        self.isolation = describe(applied, confinement)

    def _specification(self, argv: list[str], confinement: Confinement, pipes: dict[str, int]) -> dict[str, object]:
        limited = confinement.mode != "none"
        grants = [readable.readable_system(), *map(readable.without_python, confinement.data)] if limited else []
        listed = [*readable.site_folders(), *(path for _, paths in grants for path in paths)]
        read = [Path(sys.prefix) / "pyvenv.cfg", Path(sys.executable).parent, CONFINE.parent]
        read += [*readable.readable_packages(), *confinement.read, *(path for paths, _ in grants for path in paths)]
        devices = [path for pattern in confinement.devices for path in glob.glob(pattern)]  # noqa: PTH207
        limits = {"file_bytes": confinement.file_bytes, "open_files": confinement.open_files}
        return {
            "argv": [str(pipes.get(part, part)) for part in argv],
            "confine": limited,
            "read": [str(path.resolve()) for path in read],
            "list": [str(path) for path in listed],
            "devices": devices,
            "write": [str(self.private), *(str(p.resolve()) for p in confinement.write), *DEVICES, *devices],
            "limits": {**limits, "cpu_seconds": confinement.cpu_seconds} if limited else {},
            "port": self.port,
            "report": pipes["report"],
            "keep": [fd for name, fd in pipes.items() if name != "report"],
        }

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
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def drain(self) -> None:
        """Waits until everything that an ended child wrote has arrived in `output`."""
        self._threads[0].join(5.0)

    def kill(self, reason: str) -> None:
        """Ends the whole group at once, also what left its session. The first reason is kept."""
        self.killed = self.killed or reason
        self._end_process()

    def close(self) -> None:
        """Ends what still runs, reaps it and removes the private folder."""
        self._closing.set()
        self._end_process()
        for thread in self._threads:
            thread.join()
        self._close_pipes()
        shutil.rmtree(self.private, ignore_errors=True)

    def _end_process(self) -> None:
        members = processes.tree(self._process.pid)
        self._seen |= {pid: processes.start_time(pid) for pid in members}
        for pid, started in self._seen.items():
            # a pid that was given to another process since has another start time
            if pid != self._process.pid and started and processes.start_time(pid) == started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _close_pipes(self) -> None:
        for fd in (self.request_fd, self.reply_fd, self.watch_fd):
            os.close(fd)
        if self._process.stdout:
            self._process.stdout.close()

    def _drain(self) -> None:
        stream: IO[bytes] | None = self._process.stdout
        assert stream is not None
        fd = stream.fileno()
        while chunk := os.read(fd, 65536):
            self._output_bytes += len(chunk)
            self._output += chunk
            del self._output[:-OUTPUT_KEPT]
            if self._output_bytes > OUTPUT_LIMIT:
                self.kill(f"it wrote more than {OUTPUT_LIMIT // 1024**2} MiB to stdout")
                return

    def _watch(self, memory_limit: int) -> None:
        while not self._closing.wait(self.sample_s):
            members = processes.tree(self.pid)
            for pid in members:
                if pid not in self._seen:
                    self._seen[pid] = processes.start_time(pid)
            resident = sum(processes.rss_bytes(pid) for pid in members)
            self.peak_rss_bytes = max(self.peak_rss_bytes, resident, processes.peak_rss_bytes(self.pid))
            if resident > memory_limit:
                self.kill(f"its resident memory of {resident:,} bytes is over the limit of {memory_limit:,}")
            if len(members) > PROCESS_LIMIT:
                self.kill(f"it started more than {PROCESS_LIMIT} processes")


def describe(applied: dict[str, object], confinement: Confinement) -> str:
    """What was in force, in words, for the record."""
    if confinement.mode == "none":
        return "sandbox: none (a clean environment only)"
    spaces = applied["namespaces"]
    assert isinstance(spaces, list)
    network = "own network namespace" if "network" in spaces else "network open"
    if applied["ports"]:
        network = "TCP limited to one port by Landlock, UDP open"
    return "; ".join(
        [
            f"Landlock ABI {applied['landlock']}" if applied["landlock"] else "files not confined (no Landlock)",
            network,
            "own pid namespace" if "pid" in spaces else "shared pid namespace",
            "own /proc" if applied["proc"] else "host /proc",
            "seccomp" if applied["seccomp"] else "no seccomp",
            "rlimits, memory and process count watched, clean environment",
        ]
    )


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
