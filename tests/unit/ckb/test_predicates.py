"""The two small languages of the knowledge base: predicates over facts, and integer expressions of shapes."""

import pytest

from ckb.errors import UserError
from ckb.expression import evaluate
from ckb.facts import FACT_NAMES
from ckb.predicate import Predicate, PredicateError
from tests.unit.ckb.samples import FACTS


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("model.model_type == 'llama' and 'avx2' in platform.isa", True),
        ("'avx512f' in platform.isa or not model.qk_norm", True),
        ("platform.cores in [1, 2, 4] and 1 < model.layers <= 2", True),
        ("platform.compiler != None and model.sliding_window == None", True),
        ("workload.max_context <= 24", True),
        ("workload.max_context > 24", False),
        ("choice.kv_layout == 'head_major'", True),
        ("choice.kv_layout not in ['head_major']", False),
        ("model.bos_token > -1", True),
    ],
)
def test_predicates_hold_or_not(text: str, holds: bool) -> None:
    assert Predicate(text).holds(FACTS, {"kv_layout": "head_major"}) is holds


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model.heads ==", "does not parse"),
        ("len(model.heads) > 1", "Call is not part of the language"),
        ("model.heads + 1 > 2", "BinOp is not part of the language"),
        ("[x for x in platform.isa]", "ListComp is not part"),
        ("'x'.upper == 1", "only dotted names"),
        ("model.head == 1", "unknown fact 'model.head'"),
        ("model.kv_bytes == 1", "unknown fact"),
        ("choice.fusion == 1", "the decision 'fusion', which nobody has made"),
        ("model.heads < 'a'", "can't be compared"),
        ("model.heads is 2", "Is is not part of the language"),
    ],
)
def test_what_is_not_in_the_language_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(PredicateError, match=fault):
        Predicate(text).holds(FACTS)


def test_the_failing_parts_say_why() -> None:
    predicate = Predicate("model.heads == 2 and platform.cores > 8 and choice.x == 1 and workload.dtype == 'bfloat16'")
    failing = predicate.failing(FACTS)
    assert [part.text for part in failing] == ["platform.cores > 8", "choice.x == 1", "workload.dtype == 'bfloat16'"]
    assert len(predicate.failing(FACTS, {"x": 1})) == 2
    assert Predicate("model.heads == 2 or platform.cores > 8").failing(FACTS) == []


def test_names_that_nothing_declares_are_found() -> None:
    predicate = Predicate("model.heads == modell.heads and choice.x == 1 and choice.y == workload.batch")
    assert predicate.unknown({"x"}) == {"modell.heads", "choice.y"}
    assert {"model.heads", "workload.max_context", "platform.isa"} < FACT_NAMES
    assert "model.kv_bytes" not in FACT_NAMES, "it takes arguments"
    assert all(FACTS.lookup(name) is not ... for name in FACT_NAMES)


@pytest.mark.parametrize(("text", "value"), [("heads * head_dim", 8), ("(hidden - 2) // 3 + 1", 3), ("7", 7)])
def test_expressions_are_integers(text: str, value: int) -> None:
    assert evaluate(text, {"heads": 2, "head_dim": 4, "hidden": 8}) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("heads / 2", "BinOp"),
        ("f(1)", "Call"),
        ("nothing", "nothing is None"),
        ("heads //", "syntax"),
        ("1 // 0", "zero"),
        ("'a'", "Constant"),
        ("flag * 2", "flag is True, not an integer"),
    ],
)
def test_what_is_no_expression_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        evaluate(text, {"heads": 2, "flag": True})
