"""Composed trees for tiny checkpoints with random weights, imported in this process as packages."""

import importlib
import itertools
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import STAGES, Choice
from roles.authors.composer import Composer
from roles.briefs import Evidence, ImplementerAnswer, ImplementerBrief

KNOWLEDGE = read_knowledge()
NUMBERS = itertools.count()


def facts_of(config: Any, weights: str = "bf16", dtype: str = "float32", **platform: object) -> Facts:
    """The facts of a transformers configuration on a machine with two cores."""
    qwen = config.model_type == "qwen3"
    model = ModelFacts(
        model_type=config.model_type,
        architecture=config.architectures[0] if config.architectures else "",
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        max_positions=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
        rope_type="default",
        qk_norm=qwen,
        attention_bias=False,
        mlp_bias=False,
        activation="silu",
        sliding_window=None,
        tied_head=config.tie_word_embeddings,
        weights=weights,
        parameters=100_000,
        bos_token=1,
        eos_tokens=(2,),
    )
    machine: dict[str, Any] = {"isa": ("avx2", "fma"), "compiler": "g++", **platform}
    return Facts(
        model=model,
        platform=PlatformFacts(accelerator="cpu", name="test", count=1, cores=2, memory_bytes=8 << 30, **machine),
        workload=WorkloadFacts.model_validate(
            {"kind": "single_stream", "batch": 1, "max_prompt": 96, "max_new": 32, "dtype": dtype}
            | {"step": "graph", "serve": "offline", "decoding": "greedy"}
        ),
    )


def brief_of(
    facts: Facts,
    change: Mapping[str, Choice] | None = None,
    *,
    seed: int = 0,
    stage: str = "integration",
    knowledge: Knowledge = KNOWLEDGE,
    choices: Mapping[str, Choice] | None = None,
    failures: tuple[Evidence, ...] = (),
) -> ImplementerBrief:
    """What an implementer is told at a stage: the contracts up to it and their fragments."""
    stages = STAGES[: STAGES.index(stage) + 1]  # type: ignore[arg-type]
    contracts = tuple(c for c in knowledge.contracts.values() if c.stage in stages)
    owned = {contract.id for contract in contracts}
    return ImplementerBrief(
        run="run",
        facts=facts,
        choices=dict(choices or {}),
        issue="i1",
        stage=stages[-1],
        objective="an engine",
        contracts=contracts,
        fragments=tuple(f for f in knowledge.fragments.values() if f.contract in owned),
        change=dict(change or {}),
        failures=failures,
        seed=seed,
    )


def compose(brief: ImplementerBrief) -> ImplementerAnswer:
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, ImplementerAnswer)
    return answer


def imported(answer: ImplementerAnswer, folder: Path) -> ModuleType:
    """The package of a tree; its modules are attributes. Trees in one folder share the kernels that they compile."""
    name = f"composed_{next(NUMBERS)}"
    tree, shared = folder / name, folder / "compiled"
    tree.mkdir()
    shared.mkdir(exist_ok=True)
    (tree / "__pycache__").symlink_to(shared)
    for file, text in answer.files.items():
        (tree / file).write_text(text, encoding="utf-8")
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(tree)]
    sys.modules[name] = package = module_from_spec(spec)
    sys.dont_write_bytecode = True  # modules of the same name would overwrite each other in the shared folder
    for file in answer.files:
        importlib.import_module(f"{name}.{file.removesuffix('.py')}")
    return package
