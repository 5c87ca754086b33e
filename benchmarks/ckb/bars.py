"""What was measured beside what it has to be, and the machine that it was measured on."""

import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.table import Table


@dataclass(frozen=True)
class Measure:
    """One figure. With a bar it passes or fails, without one it is only shown."""

    what: str
    value: float
    unit: str
    most: float | None = None
    """The bar: the value may be at most this."""
    exactly: float | None = None
    """The bar: the value must be this."""

    @property
    def missed(self) -> bool:
        """Whether there is a bar and the value doesn't meet it (NaN meets none)."""
        if self.exactly is not None:
            return self.value != self.exactly
        return self.most is not None and not self.value <= self.most

    @property
    def bar(self) -> str:
        if self.exactly is not None:
            return f"{self.exactly:g} {self.unit}"
        return "" if self.most is None else f"at most {self.most:g} {self.unit}"


def table(title: str, measures: Iterable[Measure]) -> Table:
    """A row for each measure, with its verdict."""
    shown = Table("measure", "value", "bar", "verdict", title=title, title_justify="left")
    for one in measures:
        verdict = "missed" if one.missed else "met" if one.bar else ""
        shown.add_row(one.what, f"{one.value:,.4g} {one.unit}", one.bar, verdict)
    return shown


def missed(measures: Iterable[Measure]) -> list[str]:
    return [one.what for one in measures if one.missed]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values don't exceed; NaN of none."""
    if not values:
        return float("nan")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def machine(folder: Path) -> Iterator[str]:
    """Lines on what the figures depend on."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    yield f"{_processor()}, {os.cpu_count()} logical cores, {memory:.0f} GiB, Linux {platform.release()}"
    yield f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, load before the start {load}"
    yield f"store on {_file_system(folder)}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(folder: Path) -> str:
    """Type and device of the file system, since on tmpfs an fsync costs nothing."""
    whole = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if whole.is_relative_to(part.mountpoint)]
    if not mounts:
        return "an unknown file system"
    closest = max(mounts, key=lambda part: len(part.mountpoint))
    return f"{closest.fstype} ({closest.device})"
