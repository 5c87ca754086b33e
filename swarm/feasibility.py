"""Whether a Target can be met at all, found out before anything is spent: memory, and the roofline."""

from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

from benchmarks.metrics import GOODPUT, USER_METRIC, find_metric
from benchmarks.roofline.floor import Machine, floor
from ckb.errors import UserError
from ckb.facts import DTYPE_BYTES, WEIGHT_BYTES, Facts, Frozen, ModelFacts, PlatformFacts, WorkloadFacts
from gpu_actors.benchmark_jobs import Scenario
from swarm.target import Target

MARGIN = 1.15
"""Ceilings are measured to about this factor on a machine that does other things too."""
BETTER = {"min": "smaller", "max": "larger"}
GIB = 2**30
INTERPRETER_BYTES = 300 * 2**20
"""A Python process with torch and a tokenizer in it, before it loads a model: 280 MiB measured."""


class Memory(Frozen):
    """What an engine for the Target needs at least, against what there is."""

    weight_bytes: int
    kv_bytes: int
    workspace_bytes: int
    """Activations and logits of the longest prompt, and the interpreter with torch."""
    allowed_bytes: int
    """The tighter of constraints.max_memory_gib and the platform's memory."""

    @property
    def needed_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.workspace_bytes


class Feasibility(Memory):
    """That a Target can be met: memory, and the ceiling that its bound was computed with."""

    read_gb_s: float
    """Measured read bandwidth of the platform's memory."""


@dataclass(frozen=True)
class Bound:
    """The objective and the best value that it can have."""

    metric: str
    direction: Literal["min", "max"]
    unit: str
    value: float | None
    """None: there is no roofline for a metric of the user's own."""


def facts_of(target: Target, model: ModelFacts, platform: PlatformFacts) -> Facts:
    """The facts that knowledge is chosen by. Raises UserError where the Target contradicts its checkpoint."""
    wanted = target.constraints.weights
    if wanted and model.weights in WEIGHT_BYTES and wanted != model.weights:
        raise UserError(
            f"constraints.weights: {wanted} asked for, the checkpoint stores {model.weights}. Another format than the "
            f"checkpoint's has no contract: set constraints.weights to {model.weights} or leave it out"
        )
    workload = WorkloadFacts(
        kind=target.workload.kind,
        batch=target.workload.batch,
        max_prompt=max(target.workload.prompt_tokens),
        max_new=max(target.workload.new_tokens),
        context=target.workload.max_context,
        dtype=target.constraints.dtype,
        step=target.constraints.mode.step,
        serve=target.constraints.mode.serve,
        decoding=target.constraints.decoding,
    )
    if workload.max_context > model.max_positions:
        sum_of = f"{workload.max_prompt} prompt_tokens and {workload.max_new} new_tokens are"
        asked, which = ("max_context is", "it") if workload.context else (sum_of, "one of them")
        raise UserError(
            f"workload: {asked} {workload.max_context} positions, the model was made for {model.max_positions}; "
            f"shorten {which}"
        )
    return Facts(model=model, platform=platform, workload=workload)


def check_memory(target: Target, facts: Facts) -> Memory:
    """Weights, cache and workspace against the limit. Raises UserError with the numbers when they can't fit."""
    model, workload = facts.model, facts.workload
    tokens = workload.batch * workload.max_context
    widest = 2 * model.intermediate + 4 * model.hidden + 2 * model.heads * model.head_dim
    longest = workload.max_context if workload.context else workload.max_prompt
    activations = longest * widest * DTYPE_BYTES[workload.dtype]
    found = Memory(
        weight_bytes=model.weight_bytes,
        kv_bytes=model.kv_bytes(tokens, workload.dtype),
        workspace_bytes=INTERPRETER_BYTES + activations + 4 * model.vocab * workload.batch,
        allowed_bytes=allowed_bytes(target, facts.platform),
    )
    if found.needed_bytes > found.allowed_bytes:
        raise UserError(
            f"the model cannot fit: weights {gib(found.weight_bytes)}, cache of {tokens} positions "
            f"{gib(found.kv_bytes)} and workspace {gib(found.workspace_bytes)} need {gib(found.needed_bytes)}; "
            f"{gib(found.allowed_bytes)} are there ({limit_words(target, facts.platform)}). Raise "
            "constraints.max_memory_gib, shorten max_context, prompt_tokens or new_tokens of workload, or choose a "
            "smaller model"
        )
    return found


def check_metric(target: Target) -> None:
    """Raises UserError for an objective that contradicts itself: an unknown metric, the wrong direction."""
    wanted = target.objective
    if wanted.metric.startswith(USER_METRIC):
        user_bound(target)
        return
    metric = find_metric(wanted.metric, wanted.slo)
    if wanted.direction not in (None, metric.direction):
        raise UserError(
            f"objective.direction: {metric.name} is better when it is {BETTER[metric.direction]}, {wanted.direction} "
            f"asked for; set it to {metric.direction} or leave it out"
        )
    if wanted.slo and metric.name != GOODPUT:
        raise UserError(f"objective.slo is for the metric {GOODPUT} alone, objective.metric is {metric.name}")
    if metric.name.startswith(("tpot", "decode")) and 1 in target.workload.new_tokens:
        raise UserError(f"workload.new_tokens: 1 token has no time after the first, which {metric.name} is made of")


def bound_of(target: Target, facts: Facts, machine: Machine) -> Bound:
    """The objective and its roofline bound: the geometric mean over the scenarios, as the metric itself.

    Raises UserError for an objective.target beyond it.
    """
    wanted = target.objective
    if wanted.metric.startswith(USER_METRIC):
        return user_bound(target)
    metric = find_metric(wanted.metric, wanted.slo)
    floors = [floor(metric.name, facts, cell.prompt_tokens, cell.new_tokens, machine) for cell in scenarios_of(target)]
    best = geometric_mean(floors) if all(floors) else 0.0
    lenient = best / MARGIN if metric.direction == "min" else best * MARGIN
    goal = wanted.target
    if goal is not None and (goal < lenient if metric.direction == "min" else goal > lenient):
        raise UserError(
            f"objective.target: {metric.name} of {goal:g} {metric.unit} asked for, the roofline of "
            f"{facts.platform.name} is {best:.4g} {metric.unit} (reads at {machine.read_gb_s:.1f} GB/s, products at "
            f"{machine.peak_gflop_s:.0f} GFLOP/s, both measured now); no engine can be better. Set a target on this "
            "side of it or leave it out"
        )
    return Bound(metric.name, metric.direction, metric.unit, best)


def user_bound(target: Target) -> Bound:
    """A metric of the user's own benchmark has no roofline, and only the user knows its direction."""
    name, direction = target.objective.metric, target.objective.direction
    if not target.user.benchmark:
        raise UserError(f"objective.metric: {name} is printed by user.benchmark, which is not set")
    if direction is None:
        raise UserError(f"objective.direction: say whether {name} is better small (min) or large (max)")
    if target.objective.slo:
        raise UserError(f"objective.slo is for the metric {GOODPUT} alone, objective.metric is {name}")
    return Bound(name, direction, "", None)


def scenarios_of(target: Target) -> tuple[Scenario, ...]:
    """Every prompt length with every generated length."""
    workload = target.workload
    return tuple(Scenario(prompt_tokens=p, new_tokens=n) for p in workload.prompt_tokens for n in workload.new_tokens)


def allowed_bytes(target: Target, platform: PlatformFacts) -> int:
    limit = target.constraints.max_memory_gib
    return min(platform.memory_bytes, int(limit * GIB)) if limit else platform.memory_bytes


def limit_words(target: Target, platform: PlatformFacts) -> str:
    limit = target.constraints.max_memory_gib
    own = f"constraints.max_memory_gib is {limit:g}" if limit else "constraints.max_memory_gib is not set"
    return f"{own}, {platform.name} has {gib(platform.memory_bytes)}"


def gib(amount: int) -> str:
    return f"{amount / GIB:.2f} GiB"
