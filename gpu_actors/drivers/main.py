"""Entry point of every child: python -I -S -B main.py REQUEST_FD REPLY_FD SETUP_JSON.

Loads the other scripts of this folder as the package `driver`, so that nothing of ours has to be importable.
"""

import importlib
import json
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path


def main() -> None:
    request_fd, reply_fd, setup = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    sys.argv = [sys.argv[0]]
    spec = ModuleSpec("driver", None, is_package=True)
    spec.submodule_search_locations = [str(Path(__file__).parent)]
    sys.modules["driver"] = module_from_spec(spec)
    sys.path += setup["packages"]
    importlib.import_module("driver.isolate").block(setup["forbidden"])
    serve = importlib.import_module("driver.channel").serve
    serve(request_fd, reply_fd, importlib.import_module(f"driver.{setup['driver']}").OPERATIONS)


if __name__ == "__main__":
    main()
