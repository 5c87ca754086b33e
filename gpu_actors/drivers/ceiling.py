"""How fast a device's memory is read at best: trusted code, alone in its process, so the clock is in here too."""

import time
from collections.abc import Callable
from typing import Any

import torch

READS_AT_ONCE = 8
"""Timed together on an accelerator: its queue hides what starting one costs, which a decode step in a graph doesn't
pay either."""
WIDTH = 4096
"""Columns of the matrix that is read as a decode step reads one."""
Reader = tuple[Callable[[], object], int]
"""What reads, and how many bytes."""


def readers(data: torch.Tensor) -> list[Reader]:
    """`data`: float32 [N]. One stream a thread reaches about three quarters of what several reach, and a good engine
    reads several."""
    halves, quarters = data.view(2, -1), data.view(4, -1)
    vector = torch.ones(quarters.shape[1], device=data.device)
    found: list[Reader] = [
        (data.sum, data.nbytes),
        (lambda: torch.dot(halves[0], halves[1]), data.nbytes),
        (lambda: quarters @ vector, data.nbytes + vector.nbytes),
    ]
    if data.device.type != "cpu":
        matrix = data.view(torch.bfloat16).view(-1, WIDTH)
        row = torch.ones(WIDTH, dtype=torch.bfloat16, device=data.device)
        found.append((lambda: matrix @ row, data.nbytes))
    return found


def best_read(device: torch.device, bytes_: int, seconds: float) -> float:
    """GB/s over a buffer of so many bytes, tried for so long."""
    processor = device.type == "cpu"
    wait = (lambda: None) if processor else (lambda: torch.cuda.synchronize(device))
    times = 1 if processor else READS_AT_ONCE
    pairs = readers(torch.ones(bytes_ // 4, device=device))
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for read, moved in pairs:
            wait()
            start = time.perf_counter()
            for _ in range(times):
                read()
            wait()
            best = max(best, times * moved / (time.perf_counter() - start) / 1e9)
    return best


def ceiling(device: str, count: int, bytes_: int, seconds: float, threads: int) -> dict[str, Any]:
    """`gb_s`: of all `count` devices together, each measured alone. `cache_bytes`: of their last-level caches, 0 for a
    processor, whose kernel tells. `bytes_`: a multiple of 16 times WIDTH. Nothing of a device stays taken."""
    torch.set_num_threads(threads)
    if device == "cpu":
        return {"gb_s": best_read(torch.device("cpu"), bytes_, seconds), "cache_bytes": 0}
    devices = [torch.device(device, index) for index in range(count)]
    gb_s = sum(best_read(one, bytes_, seconds) for one in devices)
    torch.cuda.empty_cache()
    caches = [int(torch.cuda.get_device_properties(one).L2_cache_size) for one in devices]
    return {"gb_s": gb_s, "cache_bytes": sum(caches)}


OPERATIONS = {"ceiling": ceiling}
