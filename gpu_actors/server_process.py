"""Somebody else's server: as a process group that we start, or wherever its URL is.

What runs here is the user's trusted program and no candidate: it is not confined and gets the whole environment, but it
is ended as a group, and while others are timed it is stopped like any arm.
"""

import ipaddress
import json
import os
import shlex
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psutil

from benchmarks.baselines.presets import KEYS, preset_of
from benchmarks.baselines.records import Baseline
from ckb.facts import Facts
from ckb.violations import Violation
from gpu_actors.sandbox import Confinement, Sandbox, free_port
from gpu_actors.user import last_lines

IN_FOLDER = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')
"""A command runs where its user wrote it, so that relative paths mean what they say."""
NOBODY = 1 << 30
"""A process id that no process has."""


class Held(Protocol):
    """What is known of a process tree: gpu_actors.sandbox.Sandbox, or Footprint."""

    sample_s: float

    @property
    def pid(self) -> int: ...
    @property
    def peak_rss_bytes(self) -> int: ...


class Telling(Protocol):
    """What a process's watch tells: gpu_actors.watched.Told, or Untold."""

    def read(self) -> None: ...
    def rows(self, candidate: str, gate: str) -> tuple[Violation, ...]: ...


class Process(Protocol):
    """An arm's process, as the benchmarker sees it: gpu_actors.child.Child, ServerProcess or Elsewhere."""

    @property
    def alive(self) -> bool:
        """It runs and is ours to stop."""

    @property
    def started_ns(self) -> int: ...
    @property
    def sandbox(self) -> Held: ...
    @property
    def told(self) -> Telling: ...
    def close(self) -> None: ...


class Untold:
    """A trusted program has no watch, so there is nothing to tell."""

    def read(self) -> None:
        pass

    def rows(self, _candidate: str, _gate: str) -> tuple[()]:
        return ()


class ServerProcess:
    """A server that we started on a free port."""

    def __init__(self, baseline: Baseline, facts: Facts, checkpoint: Path, log: Path):
        """`log`: the file that keeps its last lines, as many as a sandbox keeps, when it is closed."""
        self.log = log
        preset, graph = preset_of(baseline), facts.workload.step
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="enginesmith-", delete=False) as file:
            self._config = Path(file.name)
        self.port = free_port()
        values = {
            "checkpoint": str(checkpoint.resolve()),
            "port": str(self.port),
            "dtype": facts.workload.dtype,
            "tensor_parallel": str(baseline.tensor_parallel),
            "context": str(facts.workload.max_context),
            "config": str(self._config),
        }
        config = preset.config | preset.graph_config.get(graph, {})
        self._config.write_text(json.dumps(filled(config, values)), encoding="utf-8")
        self.command: list[str] = [filled(word, values) for word in (*baseline.command, *preset.graph.get(graph, ()))]
        self.told = Untold()
        self.started_ns = time.perf_counter_ns()
        rules = Confinement(mode="none", disk_bytes=1 << 50, environment=dict(os.environ))
        self.sandbox = Sandbox([*IN_FOLDER, baseline.folder, *self.command], rules)

    @property
    def alive(self) -> bool:
        return self.sandbox.running

    def last_words(self, wait_s: float = 0.0) -> str:
        """The last lines that it wrote, and how it ended if it has or does so within `wait_s`."""
        status = self.sandbox.wait(wait_s)
        if status is None:
            return f"its last output: {last_lines(self.sandbox.output)}"
        self.sandbox.drain()
        return f"it ended with exit status {status}; its last output: {last_lines(self.sandbox.output)}"

    def close(self) -> None:
        self.sandbox.close()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text(f"{shlex.join(self.command)}\n{self.sandbox.output}", encoding="utf-8")
        self._config.unlink(missing_ok=True)


def filled(value: Any, values: dict[str, str]) -> Any:
    """The same JSON with the names of KEYS in braces replaced; other braces are the command's own."""
    if isinstance(value, str):
        for name in KEYS:
            value = value.replace(f"{{{name}}}", values[name])
        return value
    if isinstance(value, dict):
        return {name: filled(item, values) for name, item in value.items()}
    return value


@dataclass
class Footprint:
    """What is known of a process that is not ours: where its processor time is counted, if it is on this host."""

    pid: int
    sample_s: float = 0.0
    peak_rss_bytes: int = 0
    """Not measured: others may use it too."""


class Elsewhere:
    """A server that runs already. It is neither stopped nor ended: other clients may use it."""

    alive = False

    def __init__(self, url: str):
        parts = urlsplit(url)
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        self.local = is_local(parts.hostname or "")
        self.sandbox = Footprint(listener(port) if self.local else NOBODY)
        self.started_ns = time.perf_counter_ns()
        self.told = Untold()

    def close(self) -> None:
        pass


def is_local(host: str) -> bool:
    """Whether a host name means this machine."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {address.address.partition("%")[0] for nic in psutil.net_if_addrs().values() for address in nic}
    return any(ipaddress.ip_address(address).is_loopback or address in own for address in found)


def listener(port: int) -> int:
    """The process that listens on a TCP port of this host, as far as its user lets us see it, else NOBODY."""
    for connection in psutil.net_connections(kind="tcp"):
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        if listens and connection.pid:
            return int(connection.pid)
    return NOBODY
