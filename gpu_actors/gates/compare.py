"""Compares arrays with bounds that follow from rounding, in units of the compute dtype's unit roundoff u.

Two bounds hold at once: each element within its own tolerance, and the root mean square of all errors within a small
multiple of u times the root mean square of what was expected. The first catches a wrong element, the second a small
systematic error (a scale that is 1% off is 2.6 u in bfloat16) and an output of zeros (an error of 1 / u).
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ckb.facts import Dtype, WeightFormat
from gpu_actors.gates.base import Finding, failed, passed

Array = np.ndarray[Any, np.dtype[Any]]
ROUNDOFF: dict[str, float] = {"float32": 2.0**-24, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Comparison:
    """One array against what was expected."""

    case: str
    passed: bool
    worst: float
    """Largest error of an element over its tolerance."""
    rms: float
    """Root mean square of the errors over its bound."""
    note: str = ""


def rounded(array: Array, dtype: Dtype | WeightFormat) -> Array:
    """The nearest values that a dtype can hold, as float64: what both sides compute from."""
    single = np.ascontiguousarray(array, dtype=np.float32)
    if dtype in ("bfloat16", "bf16"):
        bits = single.view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        single = bits.astype(np.uint32).view(np.float32)
    return single.astype(np.float64)


def rms(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0


def compare(case: str, found: Array, expected: Array, tolerance: Array | float, rms_bound: float) -> Comparison:
    """`tolerance` by element (or one for all); `rms_bound` for the errors, both absolute."""
    if found.shape != expected.shape:
        return Comparison(case, False, np.inf, np.inf, f"shape {found.shape}, expected {expected.shape}")
    if not np.isfinite(found).all():
        return Comparison(case, False, np.inf, np.inf, f"{int((~np.isfinite(found)).sum())} values are not finite")
    error = np.abs(found.astype(np.float64) - expected)
    worst = float(np.max(error / tolerance)) if error.size else 0.0
    spread = rms(error) / rms_bound
    return Comparison(case, worst <= 1.0 and spread <= 1.0, worst, spread)


def judged(what: str, comparisons: Iterable[Comparison]) -> Finding:
    """PASS if every comparison holds; otherwise the worst one, in words."""
    done = list(comparisons)
    data = {"comparisons": [asdict(c) for c in done]}
    bad = [c for c in done if not c.passed]
    if not bad:
        top = max(done, key=lambda c: max(c.worst, c.rms))
        return passed(f"{what}: {len(done)} cases within bounds, the closest at {max(top.worst, top.rms):.2f}", **data)
    first = max(bad, key=lambda c: max(c.worst, c.rms))
    numbers = first.note or f"largest error {first.worst:.3g} x its bound, rms {first.rms:.3g} x its bound"
    return failed(f"{what}: {len(bad)} of {len(done)} cases wrong; {first.case}: {numbers}", **data)
