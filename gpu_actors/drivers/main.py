"""Entry point of every child: python -I -S -B main.py REQUEST_FD REPLY_FD SETUP_JSON WATCH_FD.

Loads the other scripts of this folder as the package `driver`, so that nothing of ours has to be importable.
"""

import contextlib
import ctypes
import importlib
import json
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def main() -> None:
    request_fd, reply_fd, setup = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    watch_fd, sys.argv = int(sys.argv[4]), [sys.argv[0]]
    spec = ModuleSpec("driver", None, is_package=True)
    spec.submodule_search_locations = [str(Path(__file__).parent)]
    sys.modules["driver"] = module_from_spec(spec)
    sys.path += setup["packages"]
    if rules := setup["watch"]:  # before anything else is imported: what comes first can't be seen
        watch = importlib.import_module("driver.watch").watch(rules, watch_fd)
    serve = importlib.import_module("driver.channel").serve
    operations = load(Path(setup["driver"]))
    settle_environment()
    if rules:
        operations = operations | {"mark": watch.mark}
    serve(request_fd, reply_fd, operations)


def settle_environment() -> None:
    """What OpenMP was told by the environment it has read once it is loaded. From then on nothing there may tell a
    candidate whether it is judged or timed."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgomp.so.1")  # that of the system, with which a candidate's C++ is linked
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        os.environ.pop(name, None)


def load(driver: Path) -> dict[str, Any]:
    """The operations of a driver script, which may import its neighbours in this folder as `.name`."""
    spec = spec_from_file_location(f"driver.{driver.stem}", driver)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    operations: dict[str, Any] = module.OPERATIONS
    return operations


if __name__ == "__main__":
    main()
