"""The engines that mutants are made of: composed from the seed knowledge for seeded 4-layer checkpoints, and one for
SmolLM2-135M."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from benchmarks.verification.edits import Files
from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.facts import Dtype, Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import STAGES, Choice, Contract
from ckb.space import complete, in_force, selection
from gpu_actors import seeded
from roles.authors.composer.assembly import compose

BUILT = STAGES[:3]
SEED = 5
"""Of the checkpoints: one with which the gates' own texts reach an end token in both families."""
WRITES = threading.Lock()
SMOLLM2 = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct"


@dataclass(frozen=True)
class Base:
    """A small Target and the choices that its engine is made with."""

    family: Literal["llama", "qwen3"]
    weights: Literal["fp32", "bf16"] = "fp32"
    dtype: Dtype = "float32"
    native: bool = False
    """With a compiler: C++ operators, and a compiled step."""
    real: bool = False
    """SmolLM2-135M in the place of a seeded checkpoint."""
    new: int = 32
    """Most new tokens of a request."""
    decoding: Literal["greedy", "sample"] = "greedy"
    change: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def checkpoint(self) -> str:
        return f"{self.family}-{self.weights}"

    @property
    def facts(self) -> Facts:
        platform = PlatformFacts(
            accelerator="cpu", name="test", count=1, cores=1 + self.native, isa=("avx2", "fma"), memory_bytes=8 << 30,
            compiler="g++" if self.native else None,
        )  # fmt: skip
        workload = WorkloadFacts(
            kind="single_stream", batch=1, max_prompt=448 if self.real else 96, max_new=64 if self.real else self.new,
            dtype=self.dtype,
            step="graph" if self.native else "eager", serve="offline", decoding=self.decoding,
        )  # fmt: skip
        model = real_facts() if self.real else seeded.facts_of(self.family, weights=self.weights)
        return Facts(model=model, platform=platform, workload=workload)


BASES: dict[str, Base] = {
    "llama": Base("llama"),
    "qwen3": Base("qwen3", change={"weight_fusion": "fused", "kv_layout": "token_major"}),
    "llama long": Base("llama", new=96),
    "llama sampled": Base("llama", decoding="sample"),
    "llama native": Base("llama", "bf16", native=True),
    "smollm2": Base("llama", "bf16", native=True, real=True),
    "qwen3 bfloat16": Base("qwen3", "bf16", "bfloat16", native=True, change={"weight_fusion": "fused"}),
}


@dataclass(frozen=True)
class Composed:
    """A tree, and the contracts in force for it."""

    files: Files
    rows: tuple[Contract, ...]


@cache
def real_facts() -> ModelFacts:
    return read_checkpoint(SMOLLM2, read_seed()["models"]).facts


@cache
def knowledge() -> Knowledge:
    return read_knowledge()


def composed(facts: Facts, change: Mapping[str, Choice]) -> Composed:
    """The composer's engine for some facts and choices."""
    known = knowledge()
    contracts = [c for c in known.contracts.values() if c.stage in BUILT]
    owned = {contract.id for contract in contracts}
    fragments = [f for f in known.fragments.values() if f.contract in owned]
    choices = complete(change, contracts, fragments, facts)
    files = compose(selection(contracts, fragments, facts, choices), facts, choices)[0]
    return Composed(files, tuple(in_force(contracts, facts, choices)))


@cache
def right(base: str) -> Composed:
    """The right engine of a base."""
    return composed(BASES[base].facts, BASES[base].change)


def checkpoint(work: Path, base: Base) -> Path:
    """Its checkpoint, written when it is first asked for."""
    if base.real:
        return SMOLLM2
    folder = work / base.checkpoint
    with WRITES:
        if not folder.exists():
            seeded.write(folder, seeded.facts_of(base.family, weights=base.weights), seed=SEED)
    return folder
