"""What an arm of a benchmark used of the machine and its devices, request by request; what no engine can do with."""

from collections import defaultdict
from statistics import median

from ckb.facts import Facts, Frozen

IDLE = 0.02
"""Least share of one processor, or of a device's time, that whoever generates tokens keeps busy."""
ENOUGH = 3
"""Fewest samples of a device's utilisation that say anything: a request may be shorter than a sampling period."""


class DeviceUse(Frozen):
    """One device at the end of one request."""

    device: str
    """cuda-GPU-UUID."""
    bytes: int
    """Of its memory that the arm holds; by how much it grew while the arm was loaded, where the driver doesn't name
    processes as we do."""
    busy: float
    """Share of the last sampling period in which a kernel ran; that period may reach back before the request."""


class Sample(Frozen):
    """One timed or warming request."""

    at_s: float
    """Its end, since the benchmark began."""
    rss_bytes: int
    """Resident memory of the process tree at its end."""
    processors: float
    """How many processors it kept busy, on average."""
    devices: tuple[DeviceUse, ...] = ()
    utilisation: dict[str, tuple[float, ...]] = {}
    """Device -> how busy it was in the sampling periods that lie wholly within the request."""


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

    @property
    def utilisation(self) -> dict[str, tuple[float, ...]]:
        """Device -> the samples of its utilisation within the arm's own requests."""
        found: dict[str, list[float]] = {device: [] for device in self.by_device}
        for sample in self.samples:
            for device, shares in sample.utilisation.items():
                found.setdefault(device, []).extend(shares)
        return {device: tuple(shares) for device, shares in found.items()}


def too_idle(usage: Usage, facts: Facts) -> str:
    """Why nobody can have computed tokens: what computes them was at rest in at least half of the time. Empty if it was
    not, or if too little was seen to say so (`unseen`)."""
    if facts.platform.accelerator == "cpu":
        middle = median([sample.processors for sample in usage.samples] or [0.0])
        return f"it kept {middle:.1%} of one processor busy (at least {IDLE:.0%})" if middle < IDLE else ""
    for device, shares in usage.utilisation.items():
        if len(shares) >= ENOUGH and (middle := median(shares)) <= 0:
            return (
                f"{device} was at rest: utilisation {middle:.0%}, median of {len(shares)} samples within its requests"
            )
    return ""


def unseen(usage: Usage, facts: Facts) -> tuple[str, ...]:
    """Of which devices it was not seen whether they were at work, and why."""
    if facts.platform.accelerator == "cpu":
        return ()
    return tuple(
        f"whether {device} was at work is not judged: {len(shares)} sample(s) of its utilisation lie within "
        f"{len(usage.samples)} request(s), {ENOUGH} are needed"
        for device, shares in usage.utilisation.items()
        if len(shares) < ENOUGH
    )


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
