"""How an arm of a benchmark behaves while its clock runs and when it should rest, as seen from outside its process.

The rules are those of the honesty gates (gates/honesty.py), asked of the very process that is timed: what behaved while
it was judged may not do so for a record.
"""

import time
from dataclasses import dataclass, field
from statistics import median

from ckb.facts import Facts
from gpu_actors import processes
from gpu_actors.child import Child
from gpu_actors.gates.honesty import IDLES_MS, REST_S, RESTS_MS, RESTS_SHARE, SETTLES_MS
from gpu_actors.observed import Built, cpu_ns
from gpu_actors.server_process import Process
from gpu_actors.telemetry import Telemetry
from gpu_actors.usage import DeviceUse, Sample, Usage, too_idle, too_small, unseen

SPIN_S = 0.03
"""How long after the last token the watch begins: threads of OpenMP spin for up to 17 ms before they sleep, which is no
work, and these processes are not told to sleep at once. In the gates they are, and what lasts less shows there."""
CALL_S = 60.0
"""Deadline of a question about the process itself."""


@dataclass
class Conduct:
    """One arm's."""

    process: Process
    telemetry: Telemetry
    engine: Child | None
    """The same process where it runs an engine of ours: only these are judged, and answer the questions asked here."""
    start_s: float
    """When the benchmark began, monotonic."""
    before: dict[str, int] = field(default_factory=dict)
    """Bytes in use on each device before the arm was loaded."""
    loaded: dict[str, int] = field(default_factory=dict)
    """By how much they grew meanwhile."""
    samples: list[Sample] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)
    """Processor time from SPIN_S after the last token of a request on, for REST_S."""
    settled_ms: list[float] = field(default_factory=list)
    idle_ms: list[float] = field(default_factory=list)
    """Processor time from there to the next request."""
    built: str = ""
    _rested: int | None = None
    _start: int = 0
    _start_at: int = 0
    _start_us: int = 0
    _warm: Built | None = None

    @property
    def _cpu(self) -> int:
        return cpu_ns(self.process.sandbox.pid)

    def loads(self) -> None:
        """Call before the arm is loaded, and `has_loaded` afterwards."""
        self.before = {state.device: state.used_bytes for state in self.telemetry.states()}

    def has_loaded(self) -> None:
        states = self.telemetry.states()
        self.loaded = {s.device: max(0, s.used_bytes - self.before.get(s.device, 0)) for s in states}

    def begins(self) -> None:
        """Call right before a request."""
        self._start, self._start_at, self._start_us = self._cpu, time.perf_counter_ns(), now_us()
        if self._rested is not None:
            self.idle_ms.append((self._start - self._rested) / 1e6)

    def ends(self) -> None:
        """Call right after the last token, when the clock has stopped: watches the arm rest. Raises ChildFailure."""
        last, took, end_us = self._cpu, time.perf_counter_ns() - self._start_at, now_us()
        spent = last - self._start
        self._sample(spent / max(1, took))
        if self.engine:
            asked = time.perf_counter_ns()
            self.engine.call("settle", CALL_S)
            self.settled_ms.append((time.perf_counter_ns() - asked) / 1e6)
        time.sleep(SPIN_S)
        still = self._cpu
        time.sleep(REST_S)
        self._rested = self._cpu
        self.after_ms.append(max(0.0, (self._rested - still) / 1e6 - RESTS_SHARE * spent / 1e6))
        # only now: the driver takes its time until a period's sample can be read
        utilisation = self.telemetry.utilisation(self._start_us, end_us)
        self.samples[-1] = self.samples[-1].model_copy(update={"utilisation": utilisation})

    def _sample(self, processors: float) -> None:
        pid = self.process.sandbox.pid
        held = self.telemetry.held_bytes(pid)
        devices = tuple(
            DeviceUse(device=s.device, bytes=self._held(s.device, held), busy=s.busy) for s in self.telemetry.states()
        )
        resident = sum(processes.rss_bytes(member) for member in processes.tree(pid))
        at = time.monotonic() - self.start_s
        self.samples.append(Sample(at_s=at, rss_bytes=resident, processors=processors, devices=devices))

    def _held(self, device: str, held: dict[str, int | None]) -> int:
        told = held.get(device)
        return self.loaded.get(device, 0) if told is None else told

    def warmed_up(self) -> None:
        """Call after the warm-up of a shape: nothing may be built from now on. Raises ChildFailure."""
        if self.engine:
            self._warm = Built.of(self.engine, CALL_S)
            self._rested = self._cpu

    def shape_done(self) -> None:
        """Call after the last request of a shape. Raises ChildFailure."""
        if self.engine and self._warm:
            self.built = self.built or Built.of(self.engine, CALL_S).since(self._warm)
            self._rested = self._cpu

    def fault(self, facts: Facts, tokens: int) -> str:
        """What can't be of an honest engine, in words; empty for nothing. `tokens`: of the longest sequence."""
        if not self.engine or not self.samples:
            return ""
        if self.built:
            return f"after its warm-up it still built or loaded {self.built}"
        if self.after_ms and (left := median(self.after_ms)) > RESTS_MS:
            return f"{left:.1f} ms of processor time after the last token (at most {RESTS_MS:.0f})"
        device = facts.platform.accelerator != "cpu"  # where there is none, all that is timed is the question itself
        if device and self.settled_ms and (left := median(self.settled_ms)) > SETTLES_MS:
            return f"its device was at work for {left:.1f} ms after the last token (at most {SETTLES_MS:.0f})"
        if self.idle_ms and (left := median(self.idle_ms)) > IDLES_MS:
            return f"{left:.1f} ms of processor time between two requests (at most {IDLES_MS:.0f})"
        return too_idle(self.usage, facts) or too_small(self.usage, facts, tokens)

    def not_judged(self, facts: Facts) -> tuple[str, ...]:
        """What `fault` had too little to judge by, in words."""
        return unseen(self.usage, facts) if self.engine else ()

    @property
    def usage(self) -> Usage:
        return Usage(samples=tuple(self.samples), peak_rss_bytes=self.process.sandbox.peak_rss_bytes)


def now_us() -> int:
    """Microseconds since 1970, the time that NVML's samples carry."""
    return time.time_ns() // 1000
