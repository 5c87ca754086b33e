"""The process of an engine's server, inside the sandbox, and the requests that are made to it.

It is split off the driver's process before the tree is opened there: it holds torch, whose import takes seconds, and
nothing of the candidate's. Once it is told to, it runs the server module as `python -m` would.
"""

import http.client
import json
import multiprocessing
import runpy
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import watch

FORK = multiprocessing.get_context("fork")


class Server:
    """A process that waits until it is started, and then is the server."""

    def __init__(self) -> None:
        there, self._start = FORK.Pipe(duplex=False)
        self._process = FORK.Process(target=wait, args=(there, self._start), daemon=True)
        self._process.start()
        there.close()

    def start(self, tree_dir: str, packages: list[str], arguments: list[str]) -> None:
        """Raises OSError if it was ended meanwhile."""
        self._start.send({"tree_dir": tree_dir, "packages": packages, "arguments": arguments})

    @property
    def status(self) -> int | None:
        """Its exit status, once it has one."""
        return self._process.exitcode

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


SERVERS: list[Server] = []
"""The one of this process, if it was prepared."""


def wait(start: Connection, parents_end: Connection) -> None:
    """Ends when the other process does."""
    parents_end.close()
    try:
        setup = start.recv()
    except EOFError:
        return
    folder = Path(setup["tree_dir"])
    sys.path += [path for path in setup["packages"] if path not in sys.path]
    for held in watch.CURRENT:
        held.open_tree(str(folder))
    package = ModuleSpec(folder.name, None, is_package=True)
    package.submodule_search_locations = [str(folder)]
    sys.modules[folder.name] = module_from_spec(package)
    sys.argv = [str(folder / "server.py"), *setup["arguments"]]
    runpy.run_module(f"{folder.name}.server", run_name="__main__", alter_sys=True)


def prepare_server() -> dict[str, Any]:
    """Has a process ready. To be called before the tree is opened."""
    SERVERS.append(Server())
    return {}


def start_server(checkpoint: str, port: int, tree_dir: str, packages: list[str]) -> dict[str, Any]:
    """Starts the engine's server, watched by the same rules, and returns at once."""
    SERVERS[-1].start(tree_dir, packages, [checkpoint, "--host", "127.0.0.1", "--port", str(port)])
    return {}


def http_request(
    port: int, method: str, path: str, body: dict[str, Any] | str | None, timeout_s: float
) -> dict[str, Any]:
    """One request to the server: status, content type and text. Waits for the server to listen at first."""
    text = body if isinstance(body, str) or body is None else json.dumps(body)
    end = time.monotonic() + timeout_s
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=max(0.1, end - time.monotonic()))
        try:
            connection.request(method, path, text, {"content-type": "application/json"} if text else {})
            response = connection.getresponse()
            data = response.read().decode(errors="replace")
            return {"status": response.status, "type": response.getheader("content-type", ""), "text": data}
        except ConnectionRefusedError:
            if SERVERS[-1].status is not None:
                raise RuntimeError(f"the server ended with exit status {SERVERS[-1].status}") from None
            if time.monotonic() > end:
                raise TimeoutError(f"the server did not listen on port {port} within {timeout_s:.0f} s") from None
            time.sleep(0.05)
        finally:
            connection.close()


def http_at_once(port: int, path: str, bodies: list[dict[str, Any]], timeout_s: float) -> dict[str, Any]:
    """The answers to several requests that are sent at the same time, in the order of the bodies."""
    ready = threading.Barrier(len(bodies))

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        ready.wait(timeout_s)
        return http_request(port, "POST", path, body, timeout_s)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return {"answers": list(pool.map(ask, bodies))}


def stop_server() -> dict[str, Any]:
    SERVERS[-1].stop()
    return {}


OPERATIONS = {
    "prepare_server": prepare_server,
    "start_server": start_server,
    "http": http_request,
    "http_at_once": http_at_once,
    "stop_server": stop_server,
}
