"""The analytic floor of a metric: bytes that must be read over the read bandwidth, operations over the peak rate.

A floor is what no engine can beat on this machine, not what one will reach. It leaves out everything but the reads of
a decode step and the multiplications of a prefill.
"""

from dataclasses import dataclass

from benchmarks.metrics import find_metric
from ckb.errors import UserError
from ckb.facts import Facts, ModelFacts


@dataclass(frozen=True)
class Machine:
    """What a platform can do at best."""

    read_gb_s: float
    """Streaming read of main (or device) memory."""
    peak_gflop_s: float
    """Dense multiply-adds in the compute dtype, counted as two operations."""


def prefill_flops(model: ModelFacts, tokens: int) -> float:
    """Operations of a prefill: two a parameter of the layers and token, attention's products, one row of the head."""
    embedding = model.vocab * model.hidden * (1 if model.tied_head else 2)
    layers = 2.0 * (model.parameters - embedding) * tokens
    attention = 2.0 * 2.0 * model.layers * model.heads * model.head_dim * tokens * (tokens + 1) / 2
    return layers + attention + 2.0 * model.vocab * model.hidden


def decode_floor_ms(facts: Facts, context: int, machine: Machine) -> float:
    """Shortest time of one decode step at a context, batch 1."""
    return facts.model.decode_bytes(context, facts.workload.dtype) / machine.read_gb_s / 1e6


def prefill_floor_ms(facts: Facts, prompt: int, machine: Machine) -> float:
    """Shortest time of a prefill: its operations, or one read of the weights if that takes longer."""
    operations = prefill_flops(facts.model, prompt) / machine.peak_gflop_s / 1e6
    return max(operations, decode_floor_ms(facts, 0, machine))


def floor(metric: str, facts: Facts, prompt: int, new_tokens: int, machine: Machine) -> float:
    """Best possible value of a metric for one scenario, in the metric's unit. Raises UserError for an unknown metric.

    Every percentile of a time has the same floor. Start-up has none but 0.
    """
    found = find_metric(metric, {"latency_ms": float("inf")})
    first = prefill_floor_ms(facts, prompt, machine)
    # the cache grows while decoding: the mean step is that of the mean context
    step = decode_floor_ms(facts, prompt + new_tokens // 2, machine)
    latency = first + step * (new_tokens - 1)
    times = {"ttft": first, "tpot": step, "latency": latency}
    if found.unit == "ms":
        return times[metric.split("_")[0]]
    values = {
        "output_tok_s": 1000 * new_tokens / latency,
        "decode_tok_s": 1000 / step,
        "requests_s": 1000 / latency,
        "goodput_requests_s": 1000 / latency,
        "peak_memory_bytes": float(
            facts.model.weight_bytes + facts.model.kv_bytes(prompt + new_tokens, facts.workload.dtype)
        ),
        "startup_s": 0.0,
    }
    if metric not in values:
        raise UserError(f"no floor is known for metric {metric!r}")
    return values[metric]
