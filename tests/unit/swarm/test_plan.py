"""From a Target to its frozen Plan."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.roofline.floor import Machine
from ckb.build import ensure_store
from ckb.errors import UserError
from ckb.facts import PlatformFacts
from ckb.gaps import GapError
from ckb.hashing import sha256_file
from ckb.records import STAGES
from ckb.schemas import Fragment, Platform
from ckb.store import Store
from swarm import ceilings as processor
from swarm.ceilings import nominal
from swarm.plan import Plan, coverage_of, make_plan
from swarm.target import Target, parse_target
from tests.unit.ckb.samples import CONFIG, FACTS, write_checkpoint

PLATFORM = FACTS.platform.model_copy(update={"accelerator": "cpu", "compiler": "c++", "isa": ("avx2", "fma")})


H200 = PLATFORM.model_copy(
    update={"accelerator": "cuda", "name": "NVIDIA H200", "architecture": "sm_90", "capability": 9.0}
)


def measure(platform: PlatformFacts) -> Machine:
    return Machine(read_gb_s=10.0, peak_gflop_s=100.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return ensure_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


def target(checkpoint: Path, **sections: Any) -> Target:
    workload = {"prompt_tokens": [4, 8], "new_tokens": [8]}
    return parse_target({"model": {"path": str(checkpoint)}, "workload": workload, **sections}, "t.yaml")


@pytest.fixture(scope="module")
def plan(store: Store, checkpoint: Path) -> Plan:
    return make_plan(target(checkpoint), store, PLATFORM, measure)


def test_a_plan_covers_every_stage_and_each_contract_has_its_test(plan: Plan) -> None:
    assert {contract.stage for contract in plan.contracts} == set(STAGES)
    order = [STAGES.index(contract.stage) for contract in plan.contracts]
    assert order == sorted(order)
    assert {contract.test for contract in plan.contracts} <= {test.id for test in plan.tests}
    assert len(set(plan.contract_ids)) == len(plan.contracts)


def test_a_plan_holds_the_targets_numbers(plan: Plan) -> None:
    cache = next(contract for contract in plan.contracts if contract.id == "kv-cache")
    keys = next(function for function in cache.interface if function.name == "KVCache.keys")
    assert keys.returns[0].shape == (str(CONFIG["num_key_value_heads"]), "length", "16")
    assert [(s.prompt_tokens, s.new_tokens) for s in plan.scenarios] == [(4, 8), (8, 8)]
    assert plan.facts.workload.max_context == 16
    assert (plan.metric, plan.direction, plan.unit) == ("tpot_ms", "min", "ms")
    assert plan.bound > 0
    assert plan.max_memory_bytes == PLATFORM.memory_bytes


def test_the_space_offers_choices_and_says_what_they_affect(plan: Plan) -> None:
    assert {"torch", "native"} <= set(plan.space["linear"])
    assert all(len(values) > 1 for values in plan.space.values())
    assert plan.affects.keys() == plan.space.keys()


def test_without_a_compiler_the_native_contracts_are_no_part_of_the_plan(store: Store, checkpoint: Path) -> None:
    bare = PLATFORM.model_copy(update={"compiler": None})
    small = make_plan(target(checkpoint), store, bare, measure)
    assert "native" not in small.space.get("linear", ())
    assert "cpp-vectors" not in small.contract_ids


def test_a_plan_for_a_device_compiles_nothing_for_the_processor(store: Store, checkpoint: Path) -> None:
    """The compiler that is there is the processor's: its products and its compiled step are no option on a device."""
    made = make_plan(target(checkpoint, hardware={"accelerator": "cuda"}), store, H200, measure)
    assert not {"linear", "attention", "step"} & made.space.keys()
    assert made.space["kv_layout"] == ("head_major", "token_major")
    assert not {"cpp-vectors", "weight-format", "decode-vectors"} & set(made.contract_ids)


def test_the_bound_of_a_device_is_its_data_sheets(store: Store, checkpoint: Path) -> None:
    """What this processor reads says nothing of a device's memory."""
    for dtype in ("bfloat16", "float32"):
        asked = target(checkpoint, hardware={"accelerator": "cuda"}, constraints={"dtype": dtype})
        made = make_plan(asked, store, H200, processor.measure)
        assert made.feasibility.read_gb_s == 4800.0
    unknown = H200.model_copy(update={"name": "NVIDIA H20"})
    with pytest.raises(UserError, match=r"what NVIDIA H20 can do at best is not known: .* among its `devices`"):
        make_plan(asked, store, unknown, processor.measure)
    rows = store.rows(Platform)
    found = {name: nominal(H200.model_copy(update={"name": name}), "bfloat16", rows)
             for name in ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H20")}  # fmt: skip
    assert {name: m and m.read_gb_s for name, m in found.items()} == {
        "NVIDIA H100 PCIe": 2000.0, "NVIDIA H100 80GB HBM3": 3350.0, "NVIDIA H20": None
    }  # fmt: skip
    two = nominal(H200.model_copy(update={"count": 2}), "bfloat16", rows)
    assert two is not None
    assert (two.read_gb_s, two.peak_gflop_s) == (9600.0, 1978e3)


def test_a_plan_survives_json_with_its_hash_and_notices_a_change(plan: Plan) -> None:
    again = Plan.model_validate_json(plan.model_dump_json(indent=1))
    assert again == plan
    assert again.sha256 == plan.sha256
    assert plan.model_copy(update={"draw": plan.draw + 1}).sha256 != plan.sha256


def test_seeds_are_the_same_for_the_same_purpose_and_differ_between_runs(
    plan: Plan, store: Store, checkpoint: Path
) -> None:
    assert plan.seed_of("verdict", "s1-c0", "1") == plan.seed_of("verdict", "s1-c0", "1")
    assert plan.seed_of("verdict", "s1-c0", "1") != plan.seed_of("verdict", "s1-c0", "2")
    assert plan.seed_of("a", "bc") != plan.seed_of("ab", "c")
    other = make_plan(target(checkpoint), store, PLATFORM, measure)
    assert other.seed_of("verdict") != plan.seed_of("verdict")


def test_the_checkpoints_hash_changes_with_its_tensors(plan: Plan, store: Store, tmp_path: Path) -> None:
    wider = write_checkpoint(tmp_path / "wider", {**CONFIG, "intermediate_size": 16})
    assert make_plan(target(wider), store, PLATFORM, measure).checkpoint != plan.checkpoint


UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"hardware": {"pool": "farm"}}, "hardware.pool: 'farm' asked for, this version offers 'local' alone"),
    ({"workload": {"kind": "poisson"}}, "workload.kind: 'poisson' asked for"),
    ({"constraints": {"mode": {"serve": "server"}}}, "constraints.mode.serve"),
    ({"constraints": {"tensor_parallel": 2}}, "constraints.tensor_parallel: 2 asked for"),
    ({"libraries": "forbid"}, "libraries: 'forbid' asked for"),
    ({"objective": {"stages": [{"metric": "tpot_ms"}]}}, "objective.stages"),
]


@pytest.mark.parametrize(("sections", "message"), UNSUPPORTED)
def test_what_this_version_cannot_do_is_refused_and_not_passed_over(
    sections: dict[str, Any], message: str, store: Store, checkpoint: Path
) -> None:
    with pytest.raises(UserError, match=message):
        make_plan(target(checkpoint, **sections), store, PLATFORM, measure)


def test_goodput_is_planned_with_its_objective_and_a_bound(store: Store, checkpoint: Path) -> None:
    wanted = target(checkpoint, objective={"metric": "goodput_requests_s", "slo": {"ttft_ms": 5}})
    made = make_plan(wanted, store, PLATFORM, measure)
    assert (made.direction, made.slo) == ("max", {"ttft_ms": 5})
    assert made.bound
    assert "ttft_ms <= 5" in made.definition.definition


def test_a_metric_of_the_users_own_is_planned_without_a_bound(store: Store, checkpoint: Path, tmp_path: Path) -> None:
    script = tmp_path / "bench.py"
    script.write_text("print()\n")
    sections = {"objective": {"metric": "user.speed", "direction": "max"}, "user": {"benchmark": f"python {script}"}}
    made = make_plan(target(checkpoint, **sections), store, PLATFORM, measure)
    assert (made.metric, made.direction, made.bound) == ("user.speed", "max", None)
    assert made.user_files.benchmark == {str(script): sha256_file(script)}


def test_a_gap_names_the_contract_and_costs_no_measurement(checkpoint: Path, tmp_path: Path) -> None:
    holed = ensure_store(tmp_path / "store")
    rope = [f for f in holed.rows(Fragment) if f.contract == "rope"]
    gone = [f.model_copy(update={"status": "deprecated"}) for f in rope]
    holed.overwrite({"fragments": gone}, parent=holed.latest, message="a hole", by="test")

    def never(platform: PlatformFacts) -> Machine:
        raise AssertionError("measured for nothing")

    with pytest.raises(GapError, match="rope") as error:
        make_plan(target(checkpoint), holed, PLATFORM, never)
    assert any(gap.subject == "rope" for gap in error.value.gaps)
    found = coverage_of(target(checkpoint), holed, PLATFORM)
    assert 0 < found.percent < 100


def test_the_users_files_are_hashed_into_the_plan(store: Store, checkpoint: Path, tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text("print()\n")
    made = make_plan(target(checkpoint, user={"checker": f"python {check}"}), store, PLATFORM, measure)
    assert made.user_files.checker == {str(check): sha256_file(check)}
    check.write_text("print(1)\n")
    again = make_plan(target(checkpoint, user={"checker": f"python {check}"}), store, PLATFORM, measure)
    assert again.user_files != made.user_files
