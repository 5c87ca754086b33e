"""Engines for a CUDA device, with the one constant that names the device set to the processor: the same fragments, the
whole gate set. On a device the same is asked by benchmarks/verification/run_h200.py."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ckb.facts import Facts
from ckb.records import STAGES, Choice, Contract
from gpu_actors.drivers import stages
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_contract_gates import composed, facts, verify
from tests.unit.roles.composed import brief_of, compose, imported

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
        pytest.param("llama", "float32", "sample", JOINED, marks=pytest.mark.slow),
        pytest.param("qwen3", "bfloat16", "greedy", {}, marks=pytest.mark.slow),
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
    verdict = verify(work / weights, files, rows, of("cpu"), deadline_s=600.0, **asked)
    assert verdict.passed, [f"{gate.gate}: {gate.summary}" for gate in verdict.failures]
    assert {"calls_execution", "server"} <= {gate.gate for gate in verdict.gates}
    assert ("acceptance_logits" in {gate.gate for gate in verdict.gates}) == whole


# Where tensors lie doesn't show on a processor. torch's device `meta` computes nothing, and is no processor.


class OneDevice(TorchDispatchMode):
    """Refuses what a real device refuses: operators, copies apart, on tensors of two devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.dim()}
        if len(devices) > 1 and func not in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            raise RuntimeError(f"{func} on tensors of two devices, {devices}")
        return func(*args, **(kwargs or {}))


def without_numbers(folder: Path, edits: Mapping[str, tuple[str, str]]) -> ModuleType:
    """An engine whose device is `meta`, with one edit a file, as a package of this process."""
    answer = compose(brief_of(target("qwen3", "fp32", "cuda", dtype="bfloat16")))
    files = dict(answer.files)
    for name, (old, new) in [("kernels.py", (DEVICE, DEVICE.replace("cuda", "meta"))), *edits.items()]:
        assert old in files[name]
        files[name] = files[name].replace(old, new)
    return imported(answer.model_copy(update={"files": files}), folder)


def kept_or_handed_out(package: ModuleType, checkpoint: Path) -> dict[str, torch.Tensor]:
    """Every tensor that an engine keeps or hands out, by name."""
    with OneDevice():
        return work_of(package, package.engine.Engine.load(checkpoint), checkpoint)


def work_of(package: ModuleType, engine: Any, checkpoint: Path) -> dict[str, torch.Tensor]:
    cache = package.cache.KVCache(8)
    hidden = engine.model.forward(torch.tensor([5, 6, 7]), cache, 0)
    found = {"hidden": hidden, "head": engine.model.head(hidden), "step": engine.model.step(8, cache, 3)}
    tables = dict(zip(("cosine", "sine"), package.kernels.rope_table(), strict=True))
    weights = package.weights.load_weights(str(checkpoint)).tensors
    return found | tables | weights | {"logits": engine.logits([5, 6]), "keys": cache.k, "values": cache.v}


def test_every_tensor_of_an_engine_lies_on_the_device(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "qwen3", "qwen3")
    found = kept_or_handed_out(without_numbers(tmp_path, {}), checkpoint)
    assert {name for name, tensor in found.items() if tensor.device.type != "meta"} == set()
    assert len(found) > 20
    left_behind = {
        "cache.py": ("device=DEVICE", "device='cpu'"),
        "model.py": ("tokens.to(DEVICE)", "tokens"),
        "weights.py": ("norm.to(DEVICE, DTYPE, copy=True)", "norm.to(DTYPE, copy=True)"),
        "kernels.py": ("angles.sin().to(DEVICE, DTYPE)", "angles.sin().to(DTYPE)"),
    }
    for file, edit in left_behind.items():
        with pytest.raises(RuntimeError, match=r"tensors of two devices|copy out of meta tensor"):
            kept_or_handed_out(without_numbers(tmp_path, {file: edit}), checkpoint)


def test_drivers_place_inputs_where_contracts_say_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = without_numbers(tmp_path, {})
    monkeypatch.setattr(stages, "PARTS", {"package": package.__name__, "device": "meta"})

    def ones(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
        return np.ones(shape, dtype=np.float32)

    head, mixed = ones(3, 4, 16), ones(2, 5, 16)
    operations: tuple[Callable[[], object], ...] = (
        lambda: stages.linear(ones(80, 48), "bf16", x0=ones(3, 48)),
        lambda: stages.rms_norm(ones(3, 48), ones(48)),
        lambda: stages.rope(head, 2),
        lambda: stages.silu_mul(ones(3, 160)),
        lambda: stages.attention(head, mixed, mixed, 2, poison=2),
        lambda: stages.cache(8, [[0, 0]], [[0, 3]], k0=ones(3, 2, 16), v0=ones(3, 2, 16)),
    )
    for operation in operations:  # all that stops it is that this device has no numbers to bring back
        with OneDevice(), pytest.raises(NotImplementedError, match="no data"):
            operation()
    monkeypatch.setitem(stages.PARTS, "device", "cpu")
    with OneDevice(), pytest.raises(RuntimeError, match="tensors of two devices"):
        stages.rope(head, 2)
