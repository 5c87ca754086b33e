"""What this machine can do at best: a processor is measured in a second before a plan is made, with numpy only; of a
device the data sheet is taken, since nothing of ours computes on it before the first candidate does.

The benchmarks measure the read bandwidth again, in the run that is judged; this one tells what is possible at all.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.roofline.floor import Machine
from ckb.errors import UserError
from ckb.facts import Dtype, PlatformFacts
from ckb.schemas import Platform

READ_BYTES = 256 * 2**20
"""Much more than any cache holds."""
SQUARE = 1024
REPEATS = 8
RATES: dict[Dtype, tuple[str, ...]] = {"bfloat16": ("bf16",), "float32": ("fp32", "bf16")}
"""Names of a dtype's rate in data sheets. One that a sheet leaves out takes a faster one's, which bounds it as well."""


def measure(platform: PlatformFacts) -> Machine:
    """Best of several streaming reads with all cores, and of several dense float32 products.

    Raises UserError for an accelerator that this can't measure.
    """
    if platform.accelerator != "cpu":
        raise UserError(
            f"what {platform.name} can do at best is not known: no row of the platforms table names it among its "
            "`devices` with bandwidth and peak rate; add it there, or set hardware.accelerator to cpu"
        )
    cores = platform.cores
    block = np.ones(READ_BYTES // 8 // cores, dtype=np.float64)
    blocks = [block.copy() for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        read_s = best(lambda: list(pool.map(np.max, blocks)))
    left = np.ones((SQUARE, SQUARE), dtype=np.float32)
    product_s = best(lambda: left @ left)
    return Machine(read_gb_s=block.nbytes * cores / read_s / 1e9, peak_gflop_s=2 * SQUARE**3 / product_s / 1e9)


def nominal(platform: PlatformFacts, dtype: Dtype, rows: Iterable[Platform]) -> Machine | None:
    """The data sheet's word on a device and dtype, of all `count` devices together; None if no row has one. `rows`:
    those that are about this machine."""
    fitting = [device for row in rows for device in row.devices if device.name in platform.name]
    device = max(fitting, key=lambda device: len(device.name), default=None)
    if device is None or device.read_gb_s is None:
        return None
    rate = next((device.tflops[name] for name in RATES[dtype] if name in device.tflops), None)
    if rate is None:
        return None
    return Machine(read_gb_s=device.read_gb_s * platform.count, peak_gflop_s=1000 * rate * platform.count)


def best(work: Callable[[], object]) -> float:
    """Shortest of several timings, seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
