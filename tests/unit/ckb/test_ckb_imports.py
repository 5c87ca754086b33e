"""What importing ckb costs: no tensors, no Ray, no provider."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({"torch", "ray", "litellm", "transformers", "pandas"} & sys.modules.keys()))
"""


def test_no_module_of_ckb_imports_torch_ray_or_litellm() -> None:
    files = [path for path in (ROOT / "ckb").rglob("*.py") if "knowledge" not in path.parts]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    assert {"ckb", "ckb.store", "ckb.schemas.traces", "ckb.audit"} <= set(names)
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
