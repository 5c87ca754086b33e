"""From a package on this machine to the fragment that is chosen: what is installed and broken is not used."""

import time
from pathlib import Path

import pytest

from ckb.build import ensure_store
from ckb.coverage import coverage
from ckb.errors import UserError
from ckb.gaps import GapError
from ckb.knowledge_files import Knowledge
from ckb.operators import CPP, settled
from ckb.schemas import Run
from ckb.schemas.platforms import TriedOperator
from ckb.space import select
from ckb.store import Store
from gpu_actors.operators import Rules, try_operators
from swarm import run
from swarm.context import RunFiles
from swarm.plan import Plan, coverage_of, make_plan
from swarm.report.page import facts as facts_of_the_report
from swarm.state import RunState
from swarm.tables import plan_text
from tests.unit.ckb.samples import facts as some_facts
from tests.unit.ckb.samples import families
from tests.unit.ckb.test_coverage import TEST, contract, fragment
from tests.unit.ckb.test_operators import operator
from tests.unit.gpu_actors.broken_packages import install_mlx
from tests.unit.swarm import rehearsal

RULES = Rules(deadline_s=10.0, memory_bytes=2 << 30)
PRODUCT = contract("product")
FAST = fragment("fast", "product", "'mlx' in platform.operators").model_copy(update={"rank": 1})
PLAIN = fragment("plain", "product")


@pytest.mark.parametrize(
    ("behaviour", "chosen"),
    [("works", "fast"), ("raises", "plain"), ("hangs", "plain"), ("answers zeros", "plain"), ("crashes", "plain")],
)
def test_a_fragment_is_chosen_only_if_the_kernel_of_its_operator_ran(
    behaviour: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mlx(tmp_path / "site", behaviour, monkeypatch)
    here = some_facts().platform
    tried = try_operators(["mlx"], here, tmp_path / "cache", rules=RULES)
    target = some_facts(operators=settled(here, tried).operators)
    assert select(PRODUCT, [FAST, PLAIN], target, {}).id == chosen
    knowledge = Knowledge({"product": PRODUCT}, {"fast": FAST, "plain": PLAIN})
    found = coverage(target, knowledge, families(), [], [TEST])
    (need,) = (need for need in found.needs if need.subject == "product")
    assert need.covered_by == (("fast", "plain") if chosen == "fast" else ("plain",))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return ensure_store(tmp_path_factory.mktemp("store"))


def plan_with(store: Store, home: Path, *tried: TriedOperator) -> Plan:
    return make_plan(rehearsal.target(home), store, rehearsal.PLATFORM, rehearsal.measure, lambda platform: tried)


def test_a_plan_names_what_is_not_usable_with_its_fallback_and_cost(store: Store, tmp_path: Path) -> None:
    plan = plan_with(store, tmp_path, operator("torch"), operator(CPP), operator("triton", "installed"))
    assert plan.facts.platform.operators == ("torch", CPP)
    assert "native" in plan.space["linear"]
    shown = plan_text(plan)
    assert "  torch: usable: 20 GB/s (w)" in shown
    assert "  triton: installed, not usable: its kernel failed. Instead: cpp: nothing is lost but the time" in shown
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    rows = dict(facts_of_the_report(RunState(), plan))
    assert "triton installed, not usable: its kernel failed" in rows["Operators"]


def test_a_compiler_that_fails_leaves_the_operators_of_torch_and_says_at_what_cost(
    store: Store, tmp_path: Path
) -> None:
    plan = plan_with(store, tmp_path, operator("torch"), operator(CPP, "installed"))
    assert plan.facts.platform.compiler is None
    assert "native" not in plan.space.get("linear", ())
    assert "72 ms with them and 22 ms with C++" in plan_text(plan)


def test_without_torch_there_is_no_plan(store: Store, tmp_path: Path) -> None:
    with pytest.raises(GapError, match="operator: torch: installed, not usable: its kernel failed"):
        plan_with(store, tmp_path, operator("torch", "installed"))


def test_nothing_is_tried_for_a_target_that_is_refused_anyway(store: Store, tmp_path: Path) -> None:
    def never(platform: object) -> tuple[TriedOperator, ...]:
        raise AssertionError("tried for nothing")

    asked = rehearsal.target(tmp_path)
    small = asked.model_copy(update={"constraints": asked.constraints.model_copy(update={"max_memory_gib": 0.001})})
    with pytest.raises(UserError, match="the model cannot fit"):
        make_plan(small, store, rehearsal.PLATFORM, rehearsal.measure, never)
    (tmp_path / "models" / "tiny" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="model_type"):
        coverage_of(asked, store, rehearsal.PLATFORM, never)


def test_a_run_keeps_what_was_found_in_its_row(tmp_path: Path) -> None:
    tried = (operator("torch"), operator(CPP), operator("triton", "installed"))
    files = RunFiles(tmp_path / "runs" / "rehearsal")
    store = ensure_store(tmp_path / "store")
    asked = rehearsal.target(tmp_path)
    plan = make_plan(asked, store, rehearsal.PLATFORM, rehearsal.measure, lambda platform: tried)
    files.write("tiny", asked, plan)
    rehearsal.rehearse(tmp_path, files)
    (row,) = Store(tmp_path / "store").rows(Run)
    assert row.operators == tried


def test_a_run_is_not_resumed_where_an_operator_of_its_plan_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package works when the run is planned, and is replaced by a broken one before it is resumed."""
    install_mlx(tmp_path / "site", "works", monkeypatch)
    files = rehearsal.prepare(tmp_path)
    plan = files.read_plan()
    here = run.detect("cpu")
    facts = plan.facts.model_copy(update={"platform": here.model_copy(update={"operators": ("mlx",)})})
    plan = plan.model_copy(update={"facts": facts})
    files.plan.write_text(plan.model_dump_json())
    identity = files.read_identity().model_copy(update={"plan": plan.sha256})
    files.identity.write_text(identity.model_dump_json())
    run.check_unchanged(files)
    time.sleep(0.01)
    install_mlx(tmp_path / "site", "raises", monkeypatch)
    with pytest.raises(UserError, match="mlx is installed, not usable: RuntimeError: no kernel image is available"):
        run.check_unchanged(files)
