"""Real packages in a folder of their own that import and misbehave when their kernel is called."""

import sys
from pathlib import Path

import pytest

BROKEN = {
    "raises": "raise RuntimeError('no kernel image is available\\nfor this device')",
    "hangs": "import time; time.sleep(600)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "exits": "import os; os._exit(0)",
    "answers zeros": "return 0 * right",
    "answers a little wrong": "return 1.01 * right",
    "answers no numbers": "return right * float('nan')",
    "answers another shape": "return right[:1]",
    "has no memory": "raise MemoryError('tried to allocate 2 EiB')",
    "takes all memory": "import time; held = bytearray(b'x' * (3 << 30)); time.sleep(600)",
    "spoils its process": "np.stack = None; raise RuntimeError('half done')",
    "works": "return right",
}
"""What its kernel does -> the code that does it."""

MLX = """
import numpy as np
float32 = np.float32
eval = id

class array(np.ndarray):
    def __new__(cls, values):
        return np.asarray(values).view(cls)

    def __matmul__(self, vector):
        right = (np.asarray(self) @ np.asarray(vector)).view(array)
        {body}
"""
"""As much of mlx.core as one product needs, on numpy: without torch a child starts in a tenth of the time."""

FLASHINFER = """
import torch

def single_decode_with_kv_cache(q, k, v):
    group = len(q) // k.shape[1]
    k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    weights = torch.einsum("hd,thd->ht", q.float(), k).div(q.shape[-1] ** 0.5).softmax(-1)
    right = torch.einsum("ht,thd->hd", weights, v).to(q.dtype)
    {body}
"""


def install(folder: Path, module: str, source: str, monkeypatch: pytest.MonkeyPatch, version: str = "9.9") -> None:
    """A package in a site folder that comes first, for this process and for the children that it starts."""
    package, info = folder / module, folder / f"{module}-{version}.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    info.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
    if str(folder) not in sys.path:
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])


def install_mlx(folder: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package mlx whose product behaves as BROKEN says."""
    install(folder, "mlx", "", monkeypatch)
    (folder / "mlx" / "core.py").write_text(MLX.format(body=BROKEN[behaviour]))


def install_flashinfer(folder: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package flashinfer whose attention behaves as BROKEN says."""
    install(folder, "flashinfer", FLASHINFER.format(body=BROKEN[behaviour]), monkeypatch)
