# ---
# contract: setup
# title: C++ operators, compiled once into the engine's own cache
# applies_to: platform.compiler != None and (choice.linear == 'native' or choice.attention == 'native')
# constants: [DTYPE, THREADS]
# ---
import ctypes
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

import torch

FLAGS = ["-O3", "-march=native", "-fopenmp", "-Wno-psabi"]
SOURCES: list[str] = []
"""C++ of the operators below, compiled as one unit."""


def cache_folders() -> list[Path]:
    """Where compiled operators may lie: beside the engine, then in the user's own cache."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return [Path(__file__).parent / "__pycache__", user / "compiled-engines"]


@cache
def native() -> ctypes.CDLL:
    """The compiled operators, found by the hash of their source, flags and processor, or built on the first call."""
    processor = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")][:1]
    source = "".join(SOURCES)
    name = "kernels_" + hashlib.sha256(repr((source, FLAGS, processor)).encode()).hexdigest()[:16]
    built = [path for folder in cache_folders() if (path := folder / f"{name}.so").is_file()]
    return ctypes.CDLL(str(built[0] if built else build(name, source)))


def build(name: str, source: str) -> Path:
    """Compile in a fresh folder, then rename: neither two processes at once nor a killed one leave half a library."""
    from torch.utils.cpp_extension import load_inline

    refused = []
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                options = {"is_python_module": False, "no_implicit_headers": True, "build_directory": work}
                library = load_inline(name, source, extra_cflags=FLAGS, extra_ldflags=["-fopenmp"], **options)
                return Path(library).replace(folder / f"{name}.so")
        except OSError as error:  # not writable: try the next folder
            refused.append(str(error))
    raise OSError(f"compiled operators can be stored nowhere: {'; '.join(refused)}")


def call(function: str, *arguments: torch.Tensor | int) -> None:
    """Call a compiled operator: tensors go as pointers, numbers as `long`."""
    pointers = (ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_long(a) for a in arguments)
    getattr(native(), function)(*pointers)


def setup() -> None:
    """Compute on the machine's physical cores; build or load the compiled operators."""
    torch.set_num_threads(THREADS)
    native()
