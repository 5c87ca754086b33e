"""Coverage: what a Target needs, and typed gaps for what is missing. A small knowledge base, and the real one."""

from typing import Any

import pytest

from ckb.build import read_seed
from ckb.choices import default_choices
from ckb.coverage import Coverage, coverage
from ckb.facts import Facts
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import Contract, Fragment
from ckb.schemas import Parallelism, Platform, TestContract
from tests.unit.ckb.samples import ROWS, facts, families


def contract(id: str, module: str = "kernels.py", **fields: Any) -> Contract:
    defaults = {"layer": "contract", "title": id, "stage": "execution", "order": 0, "interface": (), "test": "t"}
    return Contract.model_validate({**defaults, "id": id, "module": module, "text": "x", **fields})


def fragment(id: str, contract: str, applies_to: str = "") -> Fragment:
    return Fragment(id=id, layer="contract", title=id, contract=contract, applies_to=applies_to, code="x = 1\n")


CONTRACTS = (
    contract("linear", decisions={"linear": ("native", "torch")},
             decision_requires={"linear=native": "platform.compiler != None"}),
    contract("rope", requires=("linear",), order=1),
    contract("packing", applies_to="choice.linear == 'native'", order=2),
    contract("norms", "model.py", stage="model", applies_to="model.qk_norm"),
    contract("decoder", "model.py", stage="model", requires=("rope", "packing")),
    contract("weights", "weights.py", stage="model"),
    contract("whole", "", stage="acceptance"),
)  # fmt: skip
FRAGMENTS = (
    fragment("linear-native", "linear", "choice.linear == 'native'"),
    fragment("linear-torch", "linear", "choice.linear == 'torch'"),
    fragment("rope-default", "rope", "model.rope_type == 'default'"),
    fragment("packing-avx2", "packing", "'avx2' in platform.isa and platform.cores > 0"),
    fragment("norms", "norms"),
    fragment("decoder-1", "decoder", "platform.count == 1"),
    fragment("weights-bf16", "weights", "model.weights == 'bf16' and not model.attention_bias"),
)
ROPE_2 = contract("rope-2", status="draft", applies_to="model.rope_type == 'b'")
TEST = TestContract(id="t", contract="linear", stage="execution", level="L1", gate="g", text="x")
PLATFORM = Platform(id="cpu", title="t", accelerator="cpu", dtypes=(), applies_to="platform.accelerator == 'cpu'")


def cover(target: Facts, without: str = "", **changes: Any) -> Coverage:
    knowledge = Knowledge(
        {c.id: c for c in CONTRACTS if c.id != without}, {f.id: f for f in FRAGMENTS if f.id != without}
    )
    given: dict[str, Any] = {"models": families(), "platforms": [PLATFORM], "tests": [TEST]}
    return coverage(target, knowledge, **(given | changes))


def gaps(found: Coverage) -> list[tuple[str, str]]:
    return [(gap.kind, gap.subject) for gap in found.gaps]


def test_a_covered_target_lists_its_contracts_in_the_order_of_construction() -> None:
    found = cover(facts())
    assert (found.percent, found.gaps) == (100.0, ())
    assert found.contracts == ("linear", "rope", "packing", "decoder", "weights", "whole")
    assert {n.subject: n.covered_by for n in found.needs}["linear"] == ("linear-native",)


def test_decisions_take_the_first_option_that_is_open() -> None:
    assert default_choices(facts(), CONTRACTS) == {"linear": "native"}
    assert default_choices(facts(compiler=None), CONTRACTS) == {"linear": "torch"}
    assert cover(facts(compiler=None)).contracts == ("linear", "rope", "decoder", "weights", "whole"), "packing isn't"


def test_a_decision_may_depend_on_another_one_in_any_order() -> None:
    first = contract(
        "first", decisions={"a": (1, 2)}, decision_requires={"a=1": "choice.b == 9", "a=2": "choice.b == 5"}
    )
    last = contract("last", decisions={"b": (5,)})
    assert default_choices(facts(), (first, last)) == {"a": 2, "b": 5}


def test_a_better_option_waits_for_the_decision_that_it_asks_about() -> None:
    step = contract(
        "a-step", decisions={"step": ("compiled", "eager")}, decision_requires={"step=compiled": "choice.linear == 'x'"}
    )
    linear = contract("linear", decisions={"linear": ("x", "y")}, decision_requires={"linear=x": "model.qk_norm"})
    for contracts in ((step, linear), (linear, step)):
        assert default_choices(facts(qk_norm=True), contracts) == {"step": "compiled", "linear": "x"}
        assert default_choices(facts(qk_norm=False), contracts) == {"step": "eager", "linear": "y"}
    ring = {"linear=x": "choice.step == 'compiled'"}
    waits = linear.model_copy(update={"decision_requires": ring})
    assert default_choices(facts(), (step, waits)) == {"step": "eager", "linear": "y"}, "they wait for each other"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_type": "llama3"}, [("model structure", "rope")]),
        ({"isa": ("sse2",)}, [("platform backend", "packing")]),
        ({"attention_bias": True}, [("weight mapping", "weights")]),
        ({"weights": "fp32"}, [("weight format", "fp32"), ("weight format", "weights")]),
        ({"weights": "fp8"}, [("weight format", "fp8"), ("weight format", "weights")]),
        ({"count": 2}, [("parallel partition", "2 devices"), ("parallel partition", "decoder")]),
        ({"model_type": "gemma3"}, [("model structure", "LlamaForCausalLM")]),
        ({"accelerator": "cuda", "name": "H200"}, [("platform backend", "H200")]),
    ],
)
def test_what_the_facts_ask_for_in_vain_is_a_typed_gap(
    changes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert gaps(cover(facts(**changes))) == expected


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        ("linear-native", [("operator", "linear")]),
        ("decoder-1", [("model structure", "decoder")]),
        ("rope", [("operator", "rope")]),
        ("packing", [("operator", "packing")]),
        ("weights-bf16", [("weight format", "bf16"), ("weight mapping", "weights")]),
    ],
)
def test_a_row_that_is_taken_out_is_missed_by_name(without: str, expected: list[tuple[str, str]]) -> None:
    assert gaps(cover(facts(), without)) == expected


def test_a_gap_says_what_the_nearest_fragment_is_for() -> None:
    (gap,) = cover(facts(rope_type="llama3")).gaps
    assert gap.detail == (
        "the nearest of 1 fragments, rope-default, is for model.rope_type == 'default'; model.rope_type is 'llama3'"
    )


def test_a_default_that_hangs_on_a_decision_of_a_later_contract_is_waited_for() -> None:
    first = contract("a", module="", decisions={"step": ("compiled", "eager")},
                     decision_requires={"step=compiled": "choice.linear == 'native'"})  # fmt: skip
    assert default_choices(facts(), [first, CONTRACTS[0]]) == {"step": "compiled", "linear": "native"}
    assert default_choices(facts(compiler=None), [first, CONTRACTS[0]]) == {"step": "eager", "linear": "torch"}
    assert default_choices(facts(), [first]) == {"step": "eager"}, "nobody makes the other decision"


def test_missing_tests_tensors_and_options_are_gaps() -> None:
    assert set(gaps(cover(facts(), tests=[]))) == {("test", c) for c in cover(facts()).contracts}
    assert gaps(cover(facts(), unmapped=("model.extra",))) == [("weight mapping", "model.extra")]
    closed = contract("closed", decisions={"x": (1,)}, decision_requires={"x=1": "model.qk_norm"}, module="")
    reader = contract("reader", module="", applies_to="model.weights == 'bf16'")
    found = coverage(facts(), Knowledge({"closed": closed, "reader": reader}, {}), families(), [PLATFORM], [TEST])
    assert gaps(found) == [("operator", "closed")]
    needs_qk = contract("attention", module="", requires=("norms",))
    rows = {"attention": needs_qk, "norms": CONTRACTS[3], "reader": reader}
    found = coverage(facts(), Knowledge(rows, {}), families(), [PLATFORM], [TEST])
    assert gaps(found) == [("model structure", "norms")]
    assert "applies only if model.qk_norm" in found.gaps[0].detail


def test_only_verified_rows_count() -> None:
    draft = FRAGMENTS[2].model_copy(update={"status": "draft"})
    knowledge = Knowledge({c.id: c for c in CONTRACTS}, {f.id: f for f in (*FRAGMENTS, draft)})
    assert gaps(coverage(facts(), knowledge, families(), [PLATFORM], [TEST])) == [("operator", "rope")]
    retired = PLATFORM.model_copy(update={"status": "deprecated"})
    assert gaps(cover(facts(), platforms=[retired])) == [("platform backend", "test")]


def test_several_devices_need_a_row_of_the_parallelism_table() -> None:
    way = ROWS["parallelism"].model_copy(update={"status": "verified", "applies_to": "platform.count == 2"})
    assert isinstance(way, Parallelism)
    assert gaps(cover(facts(count=2), parallelism=[way])) == [("parallel partition", "decoder")]


def test_a_way_to_spread_a_model_serves_only_numbers_of_devices_that_divide_it() -> None:
    way = ROWS["parallelism"].model_copy(update={"status": "verified", "applies_to": "", "degree": ""})
    assert isinstance(way, Parallelism)
    spread = ("divides", "heads"), ("divides_or_copies", "kv_heads")
    assert all(name in getattr(way, field) for field, name in spread)
    for heads, kv_heads, count, fits in (
        (8, 2, 2, True), (8, 2, 4, True), (8, 2, 8, True), (8, 3, 2, False), (9, 3, 3, True), (9, 3, 2, False),
    ):  # fmt: skip
        target = facts(heads=heads, kv_heads=kv_heads, count=count)
        found = [gap.subject for gap in cover(target, parallelism=[way]).gaps]
        assert (f"{count} devices" not in found) == fits, (heads, kv_heads, count)
    (gap, *_) = cover(facts(heads=9, kv_heads=3, count=2), parallelism=[way]).gaps
    assert "2 devices don't divide heads, which is 9" in gap.detail
    other = way.model_copy(update={"id": "b", "degree": "platform.count == 4"})
    assert "2 devices" in [gap.subject for gap in cover(facts(heads=8, count=2), parallelism=[other]).gaps]


def test_a_draft_that_no_gap_names_is_a_gap_itself() -> None:
    draft = contract("paging", "cache.py", status="draft", applies_to="workload.batch > 1")
    knowledge = Knowledge(
        {c.id: c for c in CONTRACTS}, {f.id: f for f in FRAGMENTS}, drafts={"paging": draft, "rope-2": ROPE_2}
    )
    served = coverage(facts(), knowledge, families(), [PLATFORM], [TEST])
    assert (served.gaps, served.percent) == ((), 100.0)
    (gap,) = coverage(facts(batch=2), knowledge, families(), [PLATFORM], [TEST]).gaps
    assert (gap.kind, gap.subject) == ("model structure", "paging")
    assert gap.detail == "contract paging describes it and is a draft: no gate has run it"
    (gap,) = coverage(facts(rope_type="b"), knowledge, families(), [PLATFORM], [TEST]).gaps
    assert gap.subject == "rope", "what a gap names is none of its own"
    assert gap.detail.endswith(
        "model.rope_type is 'b'; contract rope-2 describes it and is a draft: no gate has run it"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("compiler", ["g++", None])
@pytest.mark.parametrize("changes", [{}, {"model_type": "qwen3", "architecture": "Qwen3ForCausalLM", "qk_norm": True}])
def test_the_seed_covers_llama_and_qwen3_on_a_cpu(dtype: str, compiler: str | None, changes: dict[str, Any]) -> None:
    tests = [row for row in read_seed()["test_contracts"] if isinstance(row, TestContract)]
    target = facts(dtype=dtype, compiler=compiler, head_dim=16, **changes)
    found = coverage(target, read_knowledge(), families(), [PLATFORM], tests)
    assert found.gaps == ()
    assert ("decode-program" in found.contracts) == (compiler is not None), "the default step is asked for"
    assert {"linear", "rope", "attention", "kv-cache", "weights", "engine", "server"} <= set(found.contracts)
