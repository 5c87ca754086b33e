"""Roles stay light: a worker that answers briefs must not pay for what only other processes need."""

import subprocess
import sys
from pathlib import Path

import roles

HEAVY = ("torch", "litellm", "openai", "ray", "git", "transformers")
SCRIPT = """
import importlib, pkgutil, sys
import roles
for module in pkgutil.walk_packages(roles.__path__, "roles."):
    importlib.import_module(module.name)
    print(module.name)
print("heavy:", *sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


def test_no_module_of_roles_imports_a_heavy_package() -> None:
    root = Path(roles.__path__[0]).parent
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *HEAVY], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    *modules, heavy = result.stdout.splitlines()
    assert "roles.authors.gateway" in modules
    assert heavy == "heavy:"
