"""A Target: model x hardware x workload x constraints, one YAML file that a user writes.

Defaults stand on the fields and nowhere else; unknown keys are errors; the resolved Target is stored with its run.
"""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from ckb.errors import UserError
from ckb.facts import Dtype, Frozen, WeightFormat
from ckb.frameworks import FRAMEWORKS, OPERATOR_LIBRARIES
from roles.settings import (
    AuthorConfig,
    AuthorKey,
    CliSettings,
    ComposerSettings,
    EnsembleSettings,
    LitellmSettings,
    ReplaySettings,
    only_the_composer,
)
from swarm.paths import resolve


class TargetError(UserError):
    """A Target that can't be read; the message names the file, each field and what it may hold."""


class Model(Frozen):
    path: str
    """Hugging Face directory: config.json, safetensors, tokenizer files. Relative to ENGINESMITH_HOME."""


class Hardware(Frozen):
    pool: str = "local"
    """Named hardware pool; so far there is only `local`: this machine or the cluster that the run joined."""
    accelerator: Literal["cpu", "cuda"] = "cpu"
    """cpu is one device whatever its cores."""
    count: int = Field(1, ge=1, le=64)
    """Devices that one engine uses."""


class Workload(Frozen):
    kind: Literal["single_stream", "batch", "poisson", "ramp"] = "single_stream"
    """single_stream: one request at a time; batch: all at once; poisson and ramp: open-loop arrivals. So far only
    single_stream can be measured."""
    prompt_tokens: tuple[int, ...] = Field((256,), min_length=1)
    """Prompt lengths to measure, tokens, each exact."""
    new_tokens: tuple[int, ...] = Field((256,), min_length=1)
    """Generated lengths to measure, tokens, each exact: EOS is ignored while measuring."""
    max_context: int | None = Field(None, ge=2, le=2_000_000)
    """Most tokens of one sequence, prompt and new ones together: the engine refuses longer requests. Left out: the
    longest of `prompt_tokens` and of `new_tokens` together."""
    batch: int = Field(1, ge=1, le=4096)
    """Most sequences at once."""

    @model_validator(mode="after")
    def lengths_are_positive(self) -> "Workload":
        for name, values in (("prompt_tokens", self.prompt_tokens), ("new_tokens", self.new_tokens)):
            if bad := [v for v in values if not 1 <= v <= 1_000_000]:
                raise ValueError(f"{name} must lie between 1 and 1,000,000, got {bad}")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names a length twice: {list(values)}")
        return self

    @model_validator(mode="after")
    def what_is_measured_fits_into_the_context(self) -> "Workload":
        prompt, new = max(self.prompt_tokens), max(self.new_tokens)
        if self.max_context is not None and self.max_context < prompt + new:
            whole = f"{prompt} prompt_tokens with {new} new_tokens are {prompt + new}"
            raise ValueError(f"max_context is {self.max_context}, and {whole}")
        return self

    @model_validator(mode="after")
    def a_single_stream_has_one_sequence(self) -> "Workload":
        if self.kind == "single_stream" and self.batch != 1:
            raise ValueError(
                f"single_stream is one sequence at a time, batch is {self.batch}: set it to 1, or kind to batch"
            )
        return self


class Stage(Frozen):
    """One objective of a staged search."""

    metric: str
    target: float | None = None


class Objective(Frozen):
    metric: str = "tpot_ms"
    """A metric of benchmarks.metrics, or user.NAME: what the user's own benchmark prints as NAME."""
    direction: Literal["min", "max"] | None = None
    """May be left out and must equal the metric's own direction; needed for a metric of the user's benchmark."""
    target: float | None = None
    """Stop when the metric reaches this value; beyond the roofline is an error."""
    slo: dict[str, float] = Field(default_factory=dict)
    """Metric -> bound, for goodput."""
    stages: tuple[Stage, ...] = ()
    """Objectives in order; the earlier ones become guards. Not offered so far."""


class Mode(Frozen):
    step: Literal["eager", "graph"] = "graph"
    """eager: operator by operator; graph: the decode step may be captured or compiled as one program."""
    serve: Literal["offline", "server"] = "offline"
    """What is measured: the engine's `stream` in its process, or its HTTP server; the latter not so far."""


class Constraints(Frozen):
    dtype: Dtype = "float32"
    """Compute dtype of the engine and of the reference it is compared with."""
    weights: WeightFormat | None = None
    """How weights are held; left out: as the checkpoint stores them. Another format than the checkpoint's is lossy
    and needs its own contracts."""
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Devices that share each matrix; so far 1."""
    expert_parallel: int = Field(1, ge=1, le=64)
    """Devices that share the experts of a mixture; so far 1."""
    mode: Mode = Mode()
    decoding: Literal["greedy", "sample"] = "greedy"
    """greedy: the likeliest token, always; sample: each request may ask for a temperature."""
    max_memory_gib: float | None = Field(None, gt=0, le=1_000_000)
    """Most memory of the engine's process tree; left out: what the machine has."""


PolicyName = Literal["issue_tracker", "evolutionary", "ralph"]


class Search(Frozen):
    policy: PolicyName = "issue_tracker"
    """issue_tracker: a backlog of falsifiable hypotheses, several dispatched in each round; evolutionary: islands over
    whole trees, children of the best; ralph: one issue, again and again, one candidate a round (docs/policies.md)."""
    parallel: int = Field(4, ge=1, le=256)
    """Implementers at work at once."""
    rounds: int = Field(6, ge=0, le=10_000)
    """Rounds of the performance loop after the engine was accepted."""
    retries: int = Field(3, ge=0, le=100)
    """Further attempts of one implementer at one issue, with the evidence against the last one."""
    seed: int = Field(0, ge=0)
    """Implementers with other seeds choose other valid designs."""


class IssueLimits(Frozen):
    """What one issue may use of a run's budget: past it the issue gets no further attempt, and the others go on. What
    was handed in by then is still reviewed, gated and judged."""

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    tokens: int | None = Field(None, ge=0)
    minutes: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Wall time since it was opened, while a driver was at work."""
    device_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Of its own verdicts and tests; a benchmark that its candidates share counts for none."""


class Budget(Frozen):
    """Hard limits of one run; 0 for money and tokens means: no call that costs any."""

    usd: float = Field(0, ge=0, allow_inf_nan=False)
    tokens: int = Field(0, ge=0)
    """Prompt and completion tokens of all language model calls."""
    minutes: float = Field(30, gt=0, allow_inf_nan=False)
    """Wall time, that of earlier drivers of the run included."""
    device_seconds: float = Field(1800, gt=0, allow_inf_nan=False)
    """Time for which verifier and benchmarker hold a device; what several of them hold at once counts once."""
    soft: float = Field(0.8, gt=0, le=1)
    """Share of a limit from which nothing new is started."""
    issue: IssueLimits | None = None
    """Limits of each issue; None: the run's alone."""


class User(Frozen):
    """What the user brings along (VibeServe, section 3.1): mounted read-only, hashed before and after each gate."""

    reference: str | None = None
    """Python file with `generate(checkpoint, prompts, max_new_tokens) -> list[list[int]]`."""
    checker: str | None = None
    """Command: `{checker} ENGINE_DIR CHECKPOINT`; exit status 0 passes."""
    benchmark: str | None = None
    """Command: `{benchmark} ENGINE_DIR CHECKPOINT`; prints lines {"metric": name, "value": number}."""
    instructions: str | None = None
    """Plain words that every implementer's brief carries."""
    deliverable: str | None = None
    """The shape wanted of the result, in words; every implementer's brief carries them too."""


class Target(Frozen):
    model: Model
    hardware: Hardware = Hardware()
    workload: Workload = Workload()
    objective: Objective = Objective()
    constraints: Constraints = Constraints()
    authors: dict[AuthorKey, AuthorConfig] = Field(default_factory=only_the_composer)
    """Author by role; `default` answers for the roles that are not named. A bare name stands for {kind: name}.
    Kinds: composer, litellm, cli, replay, and ensemble, of which one member answers each time (roles.settings)."""
    search: Search = Search()
    budget: Budget = Budget()
    sources: Literal["off"] = "off"
    """Generation reads no framework's source."""
    operators: tuple[str, ...] = ("torch", "triton")
    """Low-level operator libraries that an engine may call, by the names they are imported by (ckb.frameworks)."""
    libraries: Literal["allow", "forbid"] = "allow"
    """Whether kernels may call a library's matrix product; `forbid` is not offered so far."""
    sandbox: Literal["auto", "none"] = "auto"
    """auto: the strongest confinement that the machine has; none: generated code runs unconfined, and every record
    says so."""
    user: User = User()

    @field_validator("operators")
    @classmethod
    def operators_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.replace("-", "_") for name in names)
        if wrong := [name for name in names if name in FRAMEWORKS]:
            raise ValueError(f"{', '.join(wrong)} is an inference framework, and an engine is made without any")
        if unknown := [name for name in names if name not in OPERATOR_LIBRARIES]:
            known = ", ".join(OPERATOR_LIBRARIES)
            raise ValueError(f"{', '.join(unknown)} is no operator library that is known; there are {known}")
        return names

    @property
    def checkpoint(self) -> Path:
        return resolve(self.model.path)


def load_target(path: Path) -> Target:
    """Reads a Target. Raises TargetError with every fault of the file at once."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"can't read the Target {path}: {error}") from error
    return target_from_text(text, str(path))


class UniqueKeys(yaml.SafeLoader):
    """YAML without the rule that of two equal keys the last one holds: the other was meant to count too."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.value in lines:
                raise yaml.YAMLError(f"the key {key.value!r} is there twice, in lines {lines[key.value]} and {line}")
            lines[key.value] = line
        return super().construct_mapping(node, deep)


def target_from_text(text: str, where: str) -> Target:
    """A Target from YAML; `where` names its source in errors."""
    try:
        data = yaml.load(text, UniqueKeys)
    except yaml.YAMLError as error:
        raise TargetError(f"{where} is no YAML: {error}") from error
    return parse_target(data, where)


def parse_target(data: Any, where: str) -> Target:
    """A Target from parsed YAML; `where` names the file in errors."""
    if not isinstance(data, dict):
        raise TargetError(f"{where}: a Target is a mapping with the keys {', '.join(Target.model_fields)}")
    if isinstance(authors := data.get("authors"), dict):
        data = data | {"authors": {k: {"kind": v} if isinstance(v, str) else v for k, v in authors.items()}}
    try:
        return Target.model_validate(data)
    except ValidationError as error:
        lines = [f"  {fault_line(fault)}" for fault in error.errors(include_url=False)]
        raise TargetError("\n".join([f"{where} has {len(lines)} fault(s):", *lines])) from error


AUTHORS: dict[int | str, type[Frozen]] = {
    "cli": CliSettings,
    "composer": ComposerSettings,
    "ensemble": EnsembleSettings,
    "litellm": LitellmSettings,
    "replay": ReplaySettings,
}
"""Kind of an author, which pydantic puts into the place of a fault, -> its fields."""


def fault_line(fault: ErrorDetails) -> str:
    """`section.key: what is wrong, and what stands there`."""
    author = next((AUTHORS[name] for name in reversed(fault["loc"]) if name in AUTHORS), None)  # of a member its own
    *above, last = [name for name in fault["loc"] if name not in AUTHORS] or [""]
    place = ".".join(map(str, [*above, last]))
    if fault["type"] == "extra_forbidden":
        known = list(author.model_fields) if author else known_keys(above)
        return f"{place}: unknown key; {'.'.join(map(str, above)) or 'a Target'} has {', '.join(known)}"
    if fault["type"] in ("missing", "value_error"):
        return f"{place}: {fault['msg'].removeprefix('Value error, ')}"
    return f"{place}: {fault['msg']}, got {fault['input']!r}"


def known_keys(section: Sequence[int | str]) -> list[str]:
    """The keys of a section of a Target; none for a place that is no plain section."""
    record: Any = Target
    for name in section:
        record = record.model_fields[name].annotation if name in getattr(record, "model_fields", {}) else None
    return list(getattr(record, "model_fields", {}))
