"""Attacks on the sandbox, with bubblewrap, with namespaces of our own, and with neither: what is contained by what."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gpu_actors import cgroups, layers, sandbox
from gpu_actors.layers import Layer
from gpu_actors.sandbox import Confinement, Sandbox
from tests.unit.gpu_actors.attacks import ATTACKS, CANDIDATE
from tests.unit.gpu_actors.walls import without

WALLS: dict[str, frozenset[Layer]] = {
    "bubblewrap": frozenset(),
    "namespaces": frozenset({"bubblewrap"}),
    "neither": frozenset({"bubblewrap", "namespaces"}),
}
"""Layers left out."""


@dataclass
class Host:
    """What there is to reach, all of it open to every user."""

    folder: Path
    there: dict[str, Any]
    victim: "subprocess.Popen[bytes]"

    def state(self) -> list[object]:
        """What an attack could have changed."""
        files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        stopped = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
        sizes = [(str(p), p.stat().st_size, p.stat().st_mode, p.stat().st_nlink) for p in files]
        return [*sizes, stopped, Path(self.there["shm"]).stat().st_size]


@dataclass(frozen=True)
class Attempts:
    """What came of some attacks in one sandbox."""

    outcomes: dict[str, str]
    isolation: str
    unharmed: bool
    """Whether the host was the same afterwards."""


def echo(server: socket.socket) -> None:
    """Answers one message of each who comes, until the socket is shut."""
    with contextlib.suppress(OSError):
        while True:
            if server.type == socket.SOCK_DGRAM:
                data, address = server.recvfrom(5)
                if not address:  # it was shut
                    return
                server.sendto(data, address)
            else:
                with server.accept()[0] as peer:
                    peer.sendall(peer.recv(5))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = (
        Path("/var/tmp") / f"enginesmith-attacks-{os.getpid()}"
    )  # where every user may look: pytest's own is private
    shm = Path("/dev/shm") / folder.name
    folder.mkdir()
    (folder / "kernels").mkdir()
    for name in ("secret", "reference", "checkpoint", "kernels/right.so", "descriptor"):
        (folder / name).write_text("something\n")
    shm.write_text("")
    shutil.copy("/usr/bin/id", folder / "id")
    for path in (*folder.rglob("*"), folder, shm):
        path.chmod(0o777)
    (folder / "id").chmod(0o4755)
    names = {"tcp": socket.socket(), "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM)}
    names |= {"unix": socket.socket(socket.AF_UNIX), "abstract": socket.socket(socket.AF_UNIX)}
    for name, where in (("tcp", ("127.0.0.1", 0)), ("udp", ("127.0.0.1", 0)), ("unix", str(folder / "socket")),
                        ("abstract", f"\0{folder.name}")):  # fmt: skip
        names[name].bind(where)
        if name != "udp":
            names[name].listen()
        threading.Thread(target=echo, args=(names[name],), daemon=True).start()
    (folder / "socket").chmod(0o777)
    victim = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"])
    descriptor = os.open(folder / "descriptor", os.O_WRONLY)
    os.set_inheritable(descriptor, True)
    disks = [p for p in Path("/dev").iterdir() if p.is_block_device()] or [Path("/dev/full")]
    there = {name: str(folder / name) for name in ("secret", "reference", "checkpoint", "kernels", "descriptor")}
    there |= {"tcp": names["tcp"].getsockname()[1], "udp": names["udp"].getsockname()[1]}
    there |= {
        "unix": str(folder / "socket"),
        "abstract": folder.name,
        "victim": victim.pid,
        "setuid": str(folder / "id"),
    }
    there |= {"shm": str(shm), "disk": str(disks[0]), "clone": {"x86_64": 56}.get(os.uname().machine, 220)}
    there |= {"descriptor": descriptor, "groups": "/sys/fs/cgroup/memory"}
    yield Host(folder, there, victim)
    os.close(descriptor)
    victim.kill()
    victim.wait()
    for sock in names.values():
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
    shm.unlink(missing_ok=True)
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=WALLS)
def walls(request: pytest.FixtureRequest) -> frozenset[Layer]:
    if request.param == "bubblewrap" and not layers.bubblewrap():
        pytest.skip("bubblewrap is not installed, or does not work here")
    return WALLS[request.param]


@pytest.fixture(scope="module")
def attempts(host: Host, walls: frozenset[Layer]) -> Attempts:
    """All attacks, each once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINESMITH_SECRET", "x")
        patch.setenv("LD_PRELOAD", "")
        return make(host, list(ATTACKS), without(walls))


HARMLESS = dict.fromkeys(("kills the parent", "stops the parent"), "os.kill(HOST['victim'], 0)")
"""What to try instead where it would succeed: signal 0 only asks whether it may."""


def make(host: Host, names: list[str], confinement: Confinement, *, harmless: bool = False) -> Attempts:
    confinement = replace(confinement, read=(Path(host.there["setuid"]), Path(host.there["checkpoint"])))
    codes = {name: HARMLESS.get(name, ATTACKS[name].code) if harmless else ATTACKS[name].code for name in names}
    argv = [sys.executable, "-I", "-S", "-B", "-c", CANDIDATE, json.dumps(host.there), json.dumps(codes)]
    before = host.state()
    with Sandbox(argv, confinement) as child:
        assert child.wait(60) == 0, child.output
        child.drain()
        return Attempts(json.loads(child.output), child.isolation, host.state() == before)


def needs(name: str) -> None:
    by = ATTACKS[name].by
    if name == "raises the limit of its control group" and "memory" not in cgroups.places():
        pytest.skip("no control group can be made here")
    if os.getuid() != 0 and ("identity" in by or by == "limits" or name == "reads a disk"):
        pytest.skip("only root has an identity to drop, or the rights that are taken from it")


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_contained(attempts: Attempts, name: str) -> None:
    outcome = attempts.outcomes[name]
    assert outcome != "done", attempts.isolation
    assert outcome not in ("", "NameError", "AttributeError", "TypeError", "ValueError", "SyntaxError"), "no attempt"


def test_the_host_is_what_it_was_after_all_of_them(attempts: Attempts) -> None:
    assert attempts.unharmed


def test_what_is_not_contained_is_stated(host: Host, attempts: Attempts, walls: frozenset[Layer]) -> None:
    """Landlock lets files be named and measured that may not be read."""
    stated = "names and sizes of the host's files" in attempts.isolation.partition("open: ")[2]
    assert stated == ("bubblewrap" in walls)
    looked = make(host, ["reads a file of the host"], without(walls))
    assert (looked.outcomes["reads a file of the host"] == "EACCES") == stated, "with bubblewrap there is no such file"


HOLDS = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("holds", flush=True)
time.sleep(float(sys.argv[2]))
"""


def test_a_child_that_holds_the_port_is_in_nobody_s_way(walls: frozenset[Layer]) -> None:
    """Without a network of its own it may have one port of the host, and the next child has another."""

    def holding(port: int, seconds: int) -> list[str]:
        return [sys.executable, "-I", "-S", "-B", "-c", HOLDS, str(port), str(seconds)]

    with pytest.MonkeyPatch.context() as patch:
        ports = [sandbox.free_port(), sandbox.free_port()]
        patch.setattr(sandbox, "free_port", iter(ports).__next__)
        with Sandbox(holding(ports[0], 60), without(walls)) as first:
            with Sandbox(holding(ports[1], 0), without(walls)) as second:
                assert second.wait(30) == 0, second.output
            assert first.running, first.output
    with socket.create_server(("127.0.0.1", ports[0])):
        pass  # what it held is free again


CONTROLS = [name for name, attack in ATTACKS.items() if attack.by != "launch"]


@pytest.mark.parametrize("by", sorted({ATTACKS[name].by for name in CONTROLS}, key=str), ids=str)
def test_attacks_succeed_without_the_layers_that_contain_them(
    host: Host, by: tuple[Layer, ...] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would prove nothing that they fail."""
    monkeypatch.setattr(layers, "NEEDED", ())
    names = [name for name in CONTROLS if ATTACKS[name].by == by]
    if not may_raise_limits():  # not even outside
        names = [name for name in names if name != "raises its limits"]
    for name in names:
        needs(name)
    off = Confinement(mode="none") if by == "limits" else without(WALLS["neither"] | set(by))
    try:
        assert make(host, names, off, harmless=True).outcomes == dict.fromkeys(names, "done")
    finally:
        restore(host)


def may_raise_limits() -> bool:
    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(held.split()[1], 16) >> 24 & 1)


def restore(host: Host) -> None:
    """What an attack that succeeded has changed."""
    checkpoint, kernels = Path(host.there["checkpoint"]), Path(host.there["kernels"])
    checkpoint.chmod(0o777)
    for path in (checkpoint, kernels / "right.so"):
        path.write_text("something\n")
        path.chmod(0o777)
    (kernels / "x.so").unlink(missing_ok=True)
