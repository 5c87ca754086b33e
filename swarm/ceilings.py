"""What this machine can do at best, measured in a second before a plan is made. numpy only.

The benchmarks measure the read bandwidth again, in the run that is judged; this one tells what is possible at all.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.roofline.floor import Machine
from ckb.errors import UserError
from ckb.facts import PlatformFacts

READ_BYTES = 256 * 2**20
"""Much more than any cache holds."""
SQUARE = 1024
REPEATS = 8


def measure(platform: PlatformFacts) -> Machine:
    """Best of several streaming reads with all cores, and of several dense float32 products.

    Raises UserError for an accelerator that this can't measure.
    """
    if platform.accelerator != "cpu":
        raise UserError(f"the ceilings of {platform.name} can't be measured yet: set hardware.accelerator to cpu")
    cores = platform.cores
    block = np.ones(READ_BYTES // 8 // cores, dtype=np.float64)
    blocks = [block.copy() for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        read_s = best(lambda: list(pool.map(np.max, blocks)))
    left = np.ones((SQUARE, SQUARE), dtype=np.float32)
    product_s = best(lambda: left @ left)
    return Machine(read_gb_s=block.nbytes * cores / read_s / 1e9, peak_gflop_s=2 * SQUARE**3 / product_s / 1e9)


def best(work: Callable[[], object]) -> float:
    """Shortest of several timings, seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
