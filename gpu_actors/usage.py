"""What an arm of a benchmark used of the machine and its devices, request by request; what no engine can do with."""

from collections import defaultdict

from ckb.facts import Facts, Frozen

IDLE = 0.02
"""Least share of one processor, or of a device's time, that whoever generates tokens keeps busy."""


class DeviceUse(Frozen):
    """One device at the end of one request."""

    device: str
    """cuda-0."""
    bytes: int
    """Of its memory that the arm holds; by how much it grew while the arm was loaded, where the driver doesn't name
    processes as we do."""
    busy: float
    """Share of the last sampling period in which a kernel ran."""


class Sample(Frozen):
    """One timed or warming request."""

    at_s: float
    """Its end, since the benchmark began."""
    rss_bytes: int
    """Resident memory of the process tree at its end."""
    processors: float
    """How many processors it kept busy, on average."""
    devices: tuple[DeviceUse, ...] = ()


class Usage(Frozen):
    """One arm's series."""

    samples: tuple[Sample, ...] = ()
    peak_rss_bytes: int = 0

    @property
    def by_device(self) -> dict[str, tuple[DeviceUse, ...]]:
        found: dict[str, list[DeviceUse]] = defaultdict(list)
        for sample in self.samples:
            for use in sample.devices:
                found[use.device].append(use)
        return {device: tuple(uses) for device, uses in found.items()}


def too_idle(usage: Usage, facts: Facts) -> str:
    """Why nobody can have computed tokens: what computes them was at rest the whole time. Empty if it was not."""
    if facts.platform.accelerator == "cpu":
        most = max((sample.processors for sample in usage.samples), default=0.0)
        return f"it kept {most:.1%} of one processor busy (at least {IDLE:.0%})" if most < IDLE else ""
    for device, uses in usage.by_device.items():
        if (most := max(use.busy for use in uses)) <= 0:
            return f"{device} was at rest during all {len(uses)} requests (utilisation {most:.0%})"
    return ""


def too_small(usage: Usage, facts: Facts, tokens: int) -> str:
    """Why the model can't have been there: less memory than the weights that every token passes and a cache of `tokens`
    positions, spread over the devices. Empty if there is enough."""
    least = facts.model.decode_bytes(tokens, facts.workload.dtype)
    if facts.platform.accelerator == "cpu":
        held = {"resident memory": max([usage.peak_rss_bytes, *(sample.rss_bytes for sample in usage.samples)])}
    else:
        held = {device: max(use.bytes for use in uses) for device, uses in usage.by_device.items()}
        least //= max(1, len(held))
    for what, found in held.items():
        if found < least:
            return f"{what} of {found:,} bytes is less than weights and cache, {least:,} bytes"
    return ""
