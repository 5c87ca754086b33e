"""Released engines: finding one, and running its own server as a child process."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
from pydantic import BaseModel, ValidationError

from ckb.errors import UserError
from ckb.hashing import tree_sha256
from swarm.paths import engines_dir, found_in, resolve

START_S = 300.0
"""Most time until a server answers: the first start compiles kernels."""


class EngineManifest(BaseModel):
    """The part of manifest.json that running an engine needs."""

    tree: str
    checkpoint: str


def find_engine(name: str) -> Path:
    """An engine's folder from its path, its path below engines/, or its Target's folder (the latest engine of it)."""
    for folder in (Path(name), resolve(name), engines_dir() / name):
        for place in (folder, folder / "latest"):
            if (place / "manifest.json").is_file():
                return place.resolve()
    known = sorted(str(p.parent.relative_to(engines_dir())) for p in engines_dir().glob("*/engine_*/manifest.json"))
    raise UserError(f"{name} is no engine (a folder with manifest.json); {found_in(engines_dir(), known)}")


def read_manifest(engine: Path) -> EngineManifest:
    try:
        return EngineManifest.model_validate_json((engine / "manifest.json").read_bytes())
    except ValidationError as error:
        raise UserError(f"{engine / 'manifest.json'} is no manifest: {error.errors()[0]['msg']}") from error


def checkpoint_of(engine: Path, named: str | None) -> Path:
    """The checkpoint to run an engine on: the named one, or the one that its manifest was made for."""
    checkpoint = resolve(named or read_manifest(engine).checkpoint)
    if not (checkpoint / "config.json").is_file():
        raise UserError(f"the checkpoint {checkpoint} has no config.json; name another one with --checkpoint")
    return checkpoint


def changed_since_release(engine: Path) -> bool:
    """Whether the engine's files differ from those that passed the gates."""
    return tree_sha256(engine) != read_manifest(engine).tree


def server_command(engine: Path, checkpoint: Path, host: str, port: int) -> list[str]:
    return [sys.executable, "-m", f"{engine.name}.server", str(checkpoint), "--host", host, "--port", str(port)]


PASSED_ON = (
    *("HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"),
    *("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"),
)
"""Names of environment variables."""


def start_server(
    engine: Path, checkpoint: Path, host: str, port: int, output: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """The engine's server in a session of its own: Ctrl-C reaches us alone, and we end it (see `stop`).

    ninja of this environment must be on its PATH to build kernels. Of the environment it gets what it needs to run: no
    key of a provider is any business of generated code.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.Popen(
        server_command(engine, checkpoint, host, port),
        cwd=engine.parent,
        env={name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def check_port(host: str, port: int) -> None:
    """Raises UserError when the address can't be listened on."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(f"can't listen on {host}:{port}: {error}; choose another --port or --host") from error


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def running_server(engine: Path, checkpoint: Path) -> Iterator[str]:
    """The engine's server on a free port; yields its address once it answers, and ends it afterwards."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    with tempfile.TemporaryFile() as output:
        child = start_server(engine, checkpoint, "127.0.0.1", port, output)
        try:
            wait_until_ready(url, child, output)
            yield url
        finally:
            stop(child)


def wait_until_ready(url: str, child: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            output.seek(0)
            tail = output.read()[-1500:].decode(errors="replace").strip()
            raise UserError(f"the engine's server ended with exit status {child.returncode}:\n{tail}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise UserError(f"the engine's server did not answer within {START_S:.0f} s")


def end_like_ctrl_c() -> None:
    """A service manager's stop and a closed terminal end this process like Ctrl-C does, its child included."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Asks a server to end, and ends it when it does not."""
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
