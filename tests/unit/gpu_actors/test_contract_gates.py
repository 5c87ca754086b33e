"""Gates that execute contracts: right composed trees pass, each planted breach is caught by the gate that should."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from ckb.facts import Facts
from ckb.hashing import sha256_json, tree_sha256
from ckb.records import Choice, Contract, Tensor
from ckb.space import in_force
from gpu_actors.child import ChildFailure
from gpu_actors.gates import calls, errors, states
from gpu_actors.gates.base import Subject, read
from gpu_actors.gates.errors import EXPERIMENTS
from gpu_actors.gates.errors_experiments import Refusal
from gpu_actors.gates.interface import deviations
from gpu_actors.jobs import EngineJob, Verdict
from gpu_actors.verifier import Verifier
from tests.unit.gpu_actors import tiny
from tests.unit.roles.composed import KNOWLEDGE, brief_of, compose

BUILT = ("execution", "model", "integration")
Edits = dict[str, tuple[str, str]]


def facts(family: str, **changes: Any) -> Facts:
    held = tiny.facts(family)
    parts = {
        part: getattr(held, part).model_copy(
            update={k: v for k, v in changes.items() if k in type(getattr(held, part)).model_fields}
        )
        for part in ("platform", "workload")
    }
    return held.model_copy(update=parts)


def composed(target: Facts, change: Mapping[str, Choice] | None = None) -> tuple[dict[str, str], tuple[Contract, ...]]:
    """The files of an engine, and the contracts in force for it."""
    answer = compose(brief_of(target, change))
    built = (c for c in KNOWLEDGE.contracts.values() if c.stage in BUILT)
    return dict(answer.files), tuple(in_force(built, target, answer.choices))


def verify(folder: Path, files: dict[str, str], rows: tuple[Contract, ...], target: Facts, **fields: Any) -> Verdict:
    family = target.model.model_type
    if not (folder / family).exists():
        tiny.write_checkpoint(folder / family, family)
    tree = folder / f"tree_{sha256_json(files)[:16]}"
    tree.mkdir(exist_ok=True)
    for name, text in files.items():
        (tree / name).write_text(text, encoding="utf-8")
    engine = EngineJob(tree=tree_sha256(tree), tree_dir=str(tree), checkpoint=str(folder / family), facts=target)
    defaults = {"stages": BUILT, "levels": ("L0", "L1", "L2"), "rows": rows, "ckb_version": 7}
    return Verifier(folder / "cache").verify(tiny.verify_job(engine, **(defaults | fields)))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contracts")


@pytest.mark.parametrize(
    "context",
    [pytest.param((16, 16), id="32", marks=pytest.mark.slow), pytest.param((40, 3), id="43", marks=pytest.mark.slow)],
)
def test_every_gate_fits_a_target_of_a_short_context(work: Path, context: tuple[int, int]) -> None:
    """Of which the whole acceptance is asked: no gate may want more room than its Target has."""
    target = facts("llama", compiler=None, max_prompt=context[0], max_new=context[1])
    files, rows = composed(target)
    stages = (*BUILT, "acceptance")
    verdict = verify(work, files, rows, target, stages=stages, levels=("L0", "L1", "L2", "L3"), acceptance="full")
    assert verdict.passed, [f"{gate.gate}: {gate.summary}" for gate in verdict.failures]


@pytest.mark.parametrize(
    ("target", "change"),
    [
        pytest.param(facts("llama", compiler=None), {}, id="torch", marks=pytest.mark.slow),
        pytest.param(
            facts("qwen3", step="graph"), {"weight_fusion": "fused", "kv_layout": "token_major"}, id="compiled"
        ),
    ],
)
def test_a_right_engine_fulfils_every_column_and_the_evidence_names_the_rows(
    target: Facts, change: dict[str, Choice], work: Path, tmp_path: Path
) -> None:
    files, rows = composed(target, change)
    verdict = verify(work, files, rows, target, evidence_dir=str(tmp_path))
    assert verdict.passed, [f"{gate.gate}: {gate.summary}" for gate in verdict.failures]
    reads = verdict.readability
    assert reads, "the tests of all stages ran"
    assert reads.executed >= 0.9, reads.idle
    assert reads.fact_branches == ()
    assert reads.median_function <= 10
    assert reads.longest_function <= 50
    executed = {gate.gate: gate for gate in verdict.gates if gate.contract == "contracts"}
    assert len(executed) == 12, "four gates a stage"
    stored = json.loads((tmp_path / f"{executed['calls_model'].evidence[0].sha256}.json").read_text())["data"]
    (mlp,) = (row for row in rows if row.id == "mlp")
    assert stored["contracts"]["mlp"] == sha256_json(mlp.model_dump(mode="json"))
    assert stored["ckb_version"] == 7
    assert len(stored["calls"]["model:mlp"]) > 1


class Breach(NamedTuple):
    """An engine that computes what it should, and breaks a contract."""

    gate: str
    edits: Edits
    says: str
    stages: tuple[str, ...] = ("execution",)


BREACHES = {
    "dtype": Breach(
        "calls_execution",
        {"kernels.py": ("return weight * wide.to(x.dtype)", "return (weight * wide.to(x.dtype)).double()")},
        "rms_norm: y is float64, the contract says compute",
    ),
    "transposed": Breach(
        "calls_execution",
        {"cache.py": ("return self.v[layer, :, :length]", "return self.v[layer, :, :length].transpose(0, 1)")},
        "KVCache.values: values has shape",
    ),
    "method": Breach("interface_execution", {"cache.py": ("def values(", "def vals(")}, "no KVCache.values"),
    "parameter": Breach(
        "interface_execution",
        {"kernels.py": ("def silu_mul(gate_up: torch.Tensor)", "def silu_mul(both: torch.Tensor, gate_up=None)")},
        "silu_mul takes (both, gate_up), the contract says (gate_up)",
    ),
    "exception": Breach(
        "errors_execution",
        {"cache.py": ('raise ValueError(f"position', 'raise IndexError(f"position')},
        "it must end in ValueError; found IndexError",
    ),
    "numbers": Breach(
        "errors_execution",
        {"cache.py": ("of {self.capacity}", "of the cache")},
        "the message must hold the capacity ('8')",
    ),
    "threads": Breach(
        "states_execution",
        {"kernels.py": ("torch.set_num_threads(THREADS)", "torch.set_num_threads(THREADS + 1)")},
        "must be 'operators loaded and threads fixed', found 'something else",
    ),
    "named tensor": Breach(
        "errors_model",
        {"weights.py": ("has no {'second ' * (name in self.consumed)}tensor {name}", "lacks a tensor")},
        "the message must hold the tensor's name",
        ("execution", "model"),
    ),
    "state": Breach(
        "states_integration",
        {"scheduler.py": ('self._move(request, "running", "finished")', 'self._move(request, "running", "failed")')},
        "Request.state after its last token: must be 'finished', found 'failed'",
        BUILT,
    ),
}


SLOW = ("transposed", "parameter", "numbers", "named tensor")
"""Second breaches of a gate."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in BREACHES]
)
def test_a_breach_of_a_contract_is_caught_by_the_gate_that_reads_its_column(name: str, work: Path) -> None:
    target, breach = facts("llama", compiler=None), BREACHES[name]
    files, rows = composed(target)
    for file, (old, new) in breach.edits.items():
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    verdict = verify(work, files, rows, target, stages=breach.stages)
    found = {gate.gate: gate.summary for gate in verdict.failures}
    assert breach.says in found.get(breach.gate, ""), found


def test_cpp_is_held_to_its_types_and_names() -> None:
    target = facts("qwen3", step="graph")
    files, rows = composed(target)
    assert list(deviations(files, rows)) == []
    for old, new, says in (
        ("long length, float* out) {", "int length, float* out) {", None),
        ("static inline float exponential(float x)", "static inline float exponential(double x)", "exponential's x is"),
        ("typedef float kv_t;", "typedef float kv;", "no type kv_t"),
        ("static inline void rotate(float* head", "static inline void turn(float* head", "no function rotate"),
        ("constexpr float NORM_EPS", "constexpr double NORM_EPS", "NORM_EPS is constexpr double"),
    ):
        if says:
            assert old in files["kernels.py"]
            changed = files | {"kernels.py": files["kernels.py"].replace(old, new)}
            assert any(says in fault for fault in deviations(changed, rows)), says


def row(id: str) -> Contract:
    return KNOWLEDGE.contracts[id]


def changed(id: str, function: int, **columns: Any) -> Contract:
    """A contract with one function's columns changed."""
    interface = list(row(id).interface)
    interface[function] = interface[function].model_copy(update=columns)
    return row(id).model_copy(update={"interface": tuple(interface)})


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"tensor": list(shape), "dtype": dtype, "device": "cpu", **more}


def test_a_changed_column_disagrees_with_calls_that_agreed_before() -> None:
    target = facts("llama")
    x, y = tensor(5, 48), tensor(5, 48)
    seen = {"kernels:rms_norm": [{"takes": {"x": x, "weight": tensor(48)}, "returns": y}]}
    norm = row("rms-norm")
    (function,) = norm.interface

    def faults(*takes: Tensor, returns: tuple[Tensor, ...] = function.returns) -> list[str]:
        one = changed("rms-norm", 0, takes=takes or function.takes, returns=returns)
        return list(calls.faults([one], [one], seen, {}, target))

    first, second = function.takes
    assert faults() == []
    assert "has shape [5, 48]" in faults(first.model_copy(update={"shape": ("M", "INTERMEDIATE")}), second)[0]
    assert "nothing else fixes its axis N" in faults(first.model_copy(update={"shape": ("N", "H")}), second)[0]
    assert "x is float32, the contract says float16" in faults(first.model_copy(update={"dtype": "float16"}), second)[0]
    pinned = first.model_copy(update={"shape": ("5", "H")})
    assert "it returns something, the contract says nothing" in faults(pinned, second, returns=())[0]
    assert "no test of the stage calls it" in next(calls.faults([norm], [norm], {}, {}, target))
    flowing = {"kernels:rms_norm": [{"takes": {"x": x | {"from": ["kernels:linear", 0]}, "weight": tensor(48)},
                                     "returns": y}]}  # fmt: skip
    host = changed("rms-norm", 0, takes=(first.model_copy(update={"placement": "host"}), second))
    found = list(calls.faults([host], [host, row("linear")], flowing, {}, target))
    assert "placed on host; kernels:linear returned it on device" in found[0]


def test_python_types_are_compared_as_far_as_they_were_looked_into() -> None:
    text, whole = {"kinds": ["str", "object"]}, {"kinds": ["int", "object"], "value": 3}
    pair = {"kinds": ["tuple", "object"], "length": 2, "items": [text, whole]}
    table = {"kinds": ["dict", "object", "Mapping"], "length": 1, "items": [text], "values": [pair]}
    for kind, description, right in (
        ("str | None", {"kinds": ["NoneType", "object"]}, True),
        ("int", {"kinds": ["bool", "int", "object"], "value": 1}, False),
        ("list[int]", {"kinds": ["list", "object"], "length": 1, "items": [whole]}, True),
        ("list[str]", {"kinds": ["list", "object"], "length": 1, "items": [whole]}, False),
        ("dict[str, tuple[str, int]]", table, True),
        ("dict[str, tuple[int, int]]", table, False),
        ("tuple[str, ...]", pair | {"items": [text, text]}, True),
        ("torch.dtype", {"kinds": ["dtype", "object"]}, True),
    ):
        assert calls.matches(calls.parsed(kind), description) == right, kind


def test_an_error_case_that_no_experiment_knows_fails_and_so_does_one_that_is_gone() -> None:
    cache = row("kv-cache")
    (case,) = cache.error_cases
    key = ("kv-cache", case.function, case.condition)
    assert key in EXPERIMENTS
    seen = {key: Refusal("ValueError", "8 of 7", {"the last position": ("8",), "the capacity": ("7",)})}
    assert list(errors.faults([cache], seen)) == []
    for update, says in (
        ({"condition": "positions past the end"}, "no experiment for 'positions past the end'"),
        ({"exception": "IndexError"}, "it must end in IndexError; found ValueError"),
        ({"message": ("the last position",)}, "no longer asks for 'the capacity'"),
        ({"message": (*case.message, "the hour")}, "no experiment knows 'the hour'"),
    ):
        other = cache.model_copy(update={"error_cases": (case.model_copy(update=update),)})
        assert any(says in fault for fault in errors.faults([other], seen)), says
    without = cache.model_copy(update={"error_cases": ()})
    assert "says nothing of 'positions past the capacity'" in next(errors.faults([without], seen))


def test_a_transition_is_held_to_the_states_that_were_seen() -> None:
    request = row("request")
    seen = {(request.id, t.subject, t.event): (t.before, t.after) for t in request.transitions}
    assert list(states.faults([request], seen)) == []
    first, *rest = request.transitions
    for update, says in (
        ({"after": "finished"}, "must be 'finished', found 'running'"),
        ({"event": "noon"}, "no experiment for 'Request.state' at 'noon'"),
    ):
        other = request.model_copy(update={"transitions": (first.model_copy(update=update), *rest)})
        assert any(says in fault for fault in states.faults([other], seen)), says


def test_an_answer_that_an_experiment_can_not_read_is_its_candidates_fault() -> None:
    subject = cast("Subject", None)
    for wrong in (lambda _: {}["states"], lambda _: [][0], lambda _: int("many"), lambda _: len(3)):  # type: ignore[arg-type]
        with pytest.raises(ChildFailure, match="its answer can't be read") as caught:
            read(wrong, subject)
        assert caught.value.kind == "PROTOCOL"
    assert read(lambda _: 7, subject) == 7
