"""The registry of objective metrics: name, unit, direction, exact definition, and the function that computes it.

    METRICS["tpot_p99_ms"].value(rows)

Rows are timed generations of one scenario (same prompt length and new tokens), void ones left out. Two metrics are of
the process and not of a generation, and need what was measured of the arm: METRICS["startup_s"].value(rows, arm).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal, Protocol

from benchmarks.stats import percentile
from ckb.errors import UserError


class Timed(Protocol):
    """One timed generation: gpu_actors.benchmark_jobs.Row has these."""

    @property
    def new_tokens(self) -> int: ...
    @property
    def ttft_ms(self) -> float: ...
    @property
    def tpot_ms(self) -> float: ...
    @property
    def latency_ms(self) -> float: ...


class Process(Protocol):
    """What was measured of an engine's process: gpu_actors.benchmark_jobs.ArmResult has these."""

    @property
    def load_s(self) -> float: ...
    @property
    def peak_rss_bytes(self) -> int: ...


Rows = Sequence[Timed]


@dataclass(frozen=True)
class Metric:
    """One way to say how good an engine is."""

    name: str
    unit: str
    direction: Literal["min", "max"]
    definition: str
    of_rows: Callable[[Rows], float] | None = None
    of_process: Callable[[Process], float] | None = None

    def value(self, rows: Rows, process: Process | None = None) -> float:
        """Raises UserError when there is nothing to compute it from."""
        if self.of_process:
            if process is None:
                raise UserError(f"metric {self.name} is of an engine's process, which was not measured here")
            return self.of_process(process)
        if not self.of_rows:
            raise UserError(f"metric {self.name} is printed by the user's benchmark, not computed from timed rows")
        if not rows:
            raise UserError(f"metric {self.name} has no valid row to be computed from")
        return self.of_rows(rows)


FIELDS: dict[str, tuple[str, Callable[[Timed], float]]] = {
    "ttft": ("from the request to the first new token", lambda row: row.ttft_ms),
    "tpot": ("(last new token - first new token) / (new tokens - 1)", lambda row: row.tpot_ms),
    "latency": ("from the request to the last new token", lambda row: row.latency_ms),
}
REDUCTIONS: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "": ("median", median),
    "_mean": ("mean", mean),
    "_p50": ("50th percentile", lambda values: percentile(values, 0.50)),
    "_p95": ("95th percentile", lambda values: percentile(values, 0.95)),
    "_p99": ("99th percentile", lambda values: percentile(values, 0.99)),
}


STARTUP = "startup_s"


def _times() -> list[Metric]:
    def metric(field: str, suffix: str) -> Metric:
        what, get = FIELDS[field]
        how, reduce = REDUCTIONS[suffix]
        definition = f"{how} over requests of the time {what}, on the harness's clock"
        return Metric(f"{field}{suffix}_ms", "ms", "min", definition, lambda rows: reduce([get(row) for row in rows]))

    return [metric(field, suffix) for field in FIELDS for suffix in REDUCTIONS]


def _rates() -> list[Metric]:
    return [
        Metric(
            "output_tok_s",
            "tokens/s",
            "max",
            "new tokens of all requests over the sum of their latencies, prefill included",
            lambda rows: 1000 * sum(row.new_tokens for row in rows) / sum(row.latency_ms for row in rows),
        ),
        Metric(
            "decode_tok_s",
            "tokens/s",
            "max",
            "1000 / median tpot_ms: new tokens a second after the first",
            lambda rows: 1000 / median(row.tpot_ms for row in rows),
        ),
        Metric(
            "requests_s",
            "requests/s",
            "max",
            "requests over the sum of their latencies, one at a time",
            lambda rows: 1000 * len(rows) / sum(row.latency_ms for row in rows),
        ),
    ]


def _processes() -> list[Metric]:
    return [
        Metric(
            "peak_memory_bytes",
            "bytes",
            "min",
            "largest sum of the resident sets of the process tree, load included",
            of_process=lambda process: float(process.peak_rss_bytes),
        ),
        Metric(
            STARTUP,
            "s",
            "min",
            "from the start of the process to ready for the first request, kernel build included",
            of_process=lambda process: process.load_s,
        ),
    ]


METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_times(), *_rates(), *_processes())}
GOODPUT = "goodput_requests_s"
"""Named like a metric, but made for one service-level objective: see `goodput`."""
USER_METRIC = "user."
"""Prefix of the metrics that the user's own benchmark prints."""


def goodput(slo: Mapping[str, float]) -> Metric:
    """Requests a second that keep every bound of `slo` (ttft_ms, tpot_ms or latency_ms -> largest value)."""
    known = {f"{field}_ms": get for field, (_, get) in FIELDS.items()}
    if not slo or set(slo) - set(known):
        raise UserError(f"objective.slo bounds some of {', '.join(known)}; found {', '.join(slo) or 'nothing'}")

    def value(rows: Rows) -> float:
        kept = [row for row in rows if all(known[name](row) <= bound for name, bound in slo.items())]
        return 1000 * len(kept) / sum(row.latency_ms for row in rows)

    bounds = ", ".join(f"{name} <= {bound:g}" for name, bound in slo.items())
    return Metric(GOODPUT, "requests/s", "max", f"requests with {bounds} over the sum of all latencies", value)


def user_metric(name: str, direction: Literal["min", "max"]) -> Metric:
    """The metric `user.NAME`: no unit that we know of, and only the user knows its direction."""
    printed = name.removeprefix(USER_METRIC)
    return Metric(name, "", direction, f"median over runs of the {printed!r} that the user's own benchmark prints")


def find_metric(name: str, slo: Mapping[str, float] | None = None) -> Metric:
    """The metric of that name. Raises UserError with the known names for another one."""
    if name == GOODPUT:
        return goodput(slo or {})
    if name not in METRICS:
        raise UserError(f"objective.metric is {name!r}; known are {', '.join([*METRICS, GOODPUT])}")
    return METRICS[name]
