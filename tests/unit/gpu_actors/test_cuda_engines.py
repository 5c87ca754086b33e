"""Engines for a CUDA device, with the one constant that names the device set to the processor: the same fragments, the
whole gate set. On a device the same is asked by benchmarks/verification/run_h200.py."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from ckb.facts import Facts
from ckb.records import STAGES, Choice, Contract
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_contract_gates import composed, facts, verify

DEVICE = 'DEVICE = torch.device("cuda")'


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each format of weights; engines in bfloat16 are for checkpoints that hold it."""
    work = tmp_path_factory.mktemp("cuda")
    (work / "fp32").mkdir()
    for family in ("llama", "qwen3"):
        stored = tiny.write_checkpoint(work / "bf16" / family, family) / "model.safetensors"
        half = {name: tensor.bfloat16() for name, tensor in load_file(stored).items()}
        save_file(half, stored, metadata={"format": "pt"})
    return work


def target(family: str, weights: str, accelerator: str, **workload: Any) -> Facts:
    held = facts(family, accelerator=accelerator, capability=9.0 if accelerator == "cuda" else 0.0, **workload)
    return held.model_copy(update={"model": held.model.model_copy(update={"weights": weights})})


def engine(cuda: Facts, change: Mapping[str, Choice]) -> tuple[dict[str, str], tuple[Contract, ...]]:
    """The files of an engine for a device that names the processor instead, and its contracts."""
    files, rows = composed(cuda, change)
    assert DEVICE in files["kernels.py"]
    assert not any("cuda" in text for name, text in files.items() if name != "kernels.py"), "one place names the device"
    return files | {"kernels.py": files["kernels.py"].replace(DEVICE, DEVICE.replace("cuda", "cpu"))}, rows


JOINED = {"kv_layout": "token_major", "weight_fusion": "fused"}


@pytest.mark.parametrize(
    ("family", "dtype", "decoding", "change"),
    [
        ("llama", "float32", "sample", JOINED),
        ("qwen3", "bfloat16", "greedy", {}),
        pytest.param("llama", "bfloat16", "greedy", {}, marks=pytest.mark.slow),
        pytest.param("qwen3", "float32", "sample", JOINED, marks=pytest.mark.slow),
    ],
)
def test_engines_for_a_device_pass_every_gate(
    family: str, dtype: str, decoding: str, change: dict[str, Choice], work: Path
) -> None:
    weights = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    of = functools.partial(target, family, weights, dtype=dtype, decoding=decoding)
    files, rows = engine(of("cuda"), change)
    # in bfloat16 the tie band is the reference's largest error, which 384 logits are too few to tell
    whole = dtype == "float32"
    asked: dict[str, Any] = {"stages": STAGES, "levels": ("L0", "L1", "L2", "L3")} if whole else {}
    verdict = verify(work / weights, files, rows, of("cpu"), **asked)
    assert verdict.passed, [f"{gate.gate}: {gate.summary}" for gate in verdict.failures]
    assert {"calls_execution", "server"} <= {gate.gate for gate in verdict.gates}
    assert ("acceptance_logits" in {gate.gate for gate in verdict.gates}) == whole
