"""One small real kernel of each operator library: trusted code, so the clock is in here too.

A kernel is a matrix-vector product or the attention of one new token, since decoding consists of these. The inputs come
from the parent as bfloat16 numbers, which every dtype holds exactly; each timed run has a vector of its own, and every
answer goes back to the parent, which knows what is right.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[int], Any]
"""Starts the kernel on the vector of that number; the answer may still be in the making."""
Settle = Callable[[], None]
"""Waits until everything that was started is done."""
Kernel = tuple[Run, Settle, Callable[[Any], Array]]
"""How to run it, to wait for it, and to read an answer as float32."""

FLAGS = ["-O3", "-march=native", "-fopenmp", "-Wno-psabi"]
"""What engines are compiled with: a probe without OpenMP would say nothing about them."""
SOURCE = """
extern "C" void product(const float* w, const float* x, float* y, long rows, long width) {
    #pragma omp parallel for
    for (long row = 0; row < rows; ++row) {
        const float* line = w + row * width;
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long i = 0; i < width; ++i) sum += line[i] * x[i];
        y[row] = sum;
    }
}
"""


def widened(bits: Array) -> Array:
    """float32 of the bit patterns of bfloat16 numbers."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def on_device(bits: Array, device: str, dtype: str) -> Any:
    import torch

    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(device, getattr(torch, dtype))


def settle_torch(device: str) -> Settle:
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


def read_torch(answer: Any) -> Array:
    values: Array = answer.float().cpu().numpy()
    return values


def torch_product(device: str, dtype: str, copies: int, w: Array, x: Array) -> Kernel:
    """As an engine without kernels of its own multiplies."""
    from torch.nn.functional import linear

    matrix, vectors = on_device(w, device, dtype).repeat(copies, 1), on_device(x, device, dtype)
    return lambda i: linear(vectors[i], matrix), settle_torch(device), read_torch


def cpp_product(device: str, dtype: str, copies: int, w: Array, x: Array) -> Kernel:
    """C++ with OpenMP, built by torch's own tools and called without them, as composed engines do it."""
    from pathlib import Path

    from torch.utils.cpp_extension import load_inline

    work = Path.home() / "operator"
    work.mkdir()
    options = {"is_python_module": False, "no_implicit_headers": True, "build_directory": str(work)}
    library = load_inline("operator_probe", SOURCE, extra_cflags=FLAGS, extra_ldflags=["-fopenmp"], **options)
    function = ctypes.CDLL(str(library)).product
    matrix, vectors = np.tile(widened(w), (copies, 1)), widened(x)

    def run(i: int) -> Array:
        answer = np.empty(len(matrix), np.float32)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (matrix, vectors[i], answer))
        function(*pointers, *map(ctypes.c_long, matrix.shape))
        return answer

    return run, lambda: None, lambda answer: answer


def triton_product(device: str, dtype: str, copies: int, w: Array, x: Array) -> Kernel:
    from .operators_triton import product

    matrix, vectors = on_device(w, device, dtype).repeat(copies, 1), on_device(x, device, dtype)
    return lambda i: product(matrix, vectors[i]), settle_torch(device), read_torch


def mlx_product(device: str, dtype: str, copies: int, w: Array, x: Array) -> Kernel:
    import mlx.core as mx

    kind = getattr(mx, dtype)
    matrix = mx.array(np.tile(widened(w), (copies, 1))).astype(kind)
    vectors = [mx.array(row).astype(kind) for row in widened(x)]

    def run(i: int) -> Any:
        answer = (matrix @ vectors[i]).astype(mx.float32)
        mx.eval(answer)  # nothing has been computed before
        return answer

    return run, lambda: None, np.array


def flash_attention(device: str, dtype: str, copies: int, q: Array, k: Array, v: Array) -> Kernel:
    """q [repeats, heads, dim], k and v [tokens, kv heads, dim]."""
    from flash_attn import flash_attn_with_kvcache

    queries, keys, values = (on_device(a, device, dtype) for a in (q, k, v))
    keys, values = keys[None], values[None]

    def run(i: int) -> Any:
        return flash_attn_with_kvcache(queries[i][None, None], keys, values, cache_seqlens=len(k))[0, 0]

    return run, settle_torch(device), read_torch


def flashinfer_attention(device: str, dtype: str, copies: int, q: Array, k: Array, v: Array) -> Kernel:
    """q [repeats, heads, dim], k and v [tokens, kv heads, dim]."""
    import flashinfer

    queries, keys, values = (on_device(a, device, dtype) for a in (q, k, v))
    return lambda i: flashinfer.single_decode_with_kv_cache(queries[i], keys, values), settle_torch(device), read_torch


KERNELS: dict[str, Callable[..., Kernel]] = {
    "torch": torch_product,
    "cpp": cpp_product,
    "triton": triton_product,
    "mlx": mlx_product,
    "flash_attn": flash_attention,
    "flashinfer": flashinfer_attention,
}


def attempt(
    name: str, device: str, dtype: str, threads: int, copies: int, launches: int, repeats: int, **arrays: Array
) -> dict[str, Any]:
    """Answers [repeats, ...] in float32 and the seconds of one launch in each repeat. Vector number `repeats` is for
    the first launch, which compiles. `copies`: how often the matrix lies in memory, one below the other, so that no
    cache holds it; `launches`: how many are timed together, since a device's queue hides what starting one costs."""
    if name != "mlx":
        import torch

        torch.set_num_threads(threads)
    run, settle, read = KERNELS[name](device, dtype, copies, **arrays)
    run(repeats)
    settle()
    seconds, answers = [], []
    for i in range(repeats):
        start = time.perf_counter()
        for _ in range(launches):
            answer = run(i)
        settle()
        seconds.append((time.perf_counter() - start) / launches)
        answers.append(read(answer))
    return {"seconds": seconds, "answers": np.stack(answers)}


OPERATIONS = {"attempt": attempt}
