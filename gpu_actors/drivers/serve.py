"""Runs an engine's server module as `python -m` would: serve.py SETUP_JSON, inside the sandbox."""

import json
import runpy
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path


def main() -> None:
    setup = json.loads(sys.argv[1])
    folder = Path(setup["tree_dir"])
    sys.path += setup["packages"]
    driver = ModuleSpec("driver", None, is_package=True)
    driver.submodule_search_locations = [str(Path(__file__).parent)]
    sys.modules["driver"] = module_from_spec(driver)
    watch = import_module("driver.watch").watch(setup["rules"], setup["fd"])
    watch.open_tree(str(folder))
    package = ModuleSpec(folder.name, None, is_package=True)
    package.submodule_search_locations = [str(folder)]
    sys.modules[folder.name] = module_from_spec(package)
    sys.argv = [str(folder / "server.py"), *setup["arguments"]]
    runpy.run_module(f"{folder.name}.server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
