"""The two small languages of the knowledge base: predicates over facts, and integer expressions of shapes."""

import pytest

from ckb.errors import UserError
from ckb.evidence import local_condition
from ckb.expression import evaluate
from ckb.facts import FACT_NAMES
from ckb.predicate import MOST_DEPTH, Predicate, PredicateError
from tests.unit.ckb.samples import FACTS, facts


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
        ("model.features == []", True),
        ("model.features == () and () == model.features", True),
        ("model.features != []", False),
        ("platform.isa == ['avx2'] and platform.isa == ('avx2',)", True),
        ("platform.isa != ['avx2']", False),
        ("True and not False", True),
        ("not model.qk_norm", True),
        ("model.sliding_window > 1 or model.sliding_window <= 1", False),
        ("'x' in model.sliding_window", False),
        ("'x' not in model.sliding_window", True),
        ("model.layers == 2\n  and model.heads\t== 2\n", True),
        ("platform.name == 'test' or platform.name == '#'", True),
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
        ("model.heads == 3,", r"\(model.heads == 3,\) is a value: it must be compared"),
        ("(model.heads == 2, model.heads == 3)", "is a value"),
        ("[model.heads == 3]", "is a value"),
        ("'model.heads == 3'", "is a value"),
        ("model.heads == 2 and 'model.heads == 3'", "is a value"),
        ("not 1", "1 is a value"),
        ("None", "None is a value"),
        ("model.heads == 2 or []", "is a value"),
        ("model.heads == (1 < 2)", "Compare is not part of the language here"),
        ("model.heads in [[2]]", "List is not part of the language here"),
        ("model.heads == not_a and (not 1) == 1", "UnaryOp is not part of the language"),
        ("-model.model_type == 1", "a minus may stand before a number only"),
        ("--1 == 1", "a minus may stand before a number only"),
        ("-True == 1", "a minus may stand before a number only"),
        ("b'a' == 'a'", "Constant is not part of the language"),
        ("... == 1", "Constant is not part"),
        ("1j == 1", "Constant is not part"),
        ("model.heads == 2 # small\n and model.heads == 3", "a comment is not part of the language"),
        ("model.heads == 2 #", "a comment is not part"),
        ("not " * 5000 + "True", "does not parse: .*recursion"),
        ("-" * 3000 + "1 == 1", "does not parse: .*recursion"),
        ("(" * 300 + "1" + ")" * 300, "does not parse"),
        ("not " * MOST_DEPTH + "True", f"more than {MOST_DEPTH} and, or, not in each other"),
        ("'\ud800' == 'a'", "does not parse: 'utf-8' codec"),
        ("'a\0' == 'a'", "does not parse"),
        ("9" * 5000 + " == 1", "does not parse"),
        ("'" + "\\" * 5001, "does not parse"),
        ("'a\nb' == 'c'", "does not parse"),
    ],
)
def test_what_is_not_in_the_language_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(PredicateError, match=fault) as caught:
        Predicate(text).holds(FACTS)
    assert len(str(caught.value)) < 1000


def test_what_is_no_predicate_is_refused_before_anybody_asks_it() -> None:
    for text in ("model.heads is 2", "'x'.upper == 1", "-model.heads == 1", "model.heads == 3,"):
        with pytest.raises(PredicateError):
            Predicate(text)


@pytest.mark.parametrize("quote", ["'", '"', "'''"])
def test_a_text_in_quotes_keeps_its_blanks_and_its_number_signs(quote: str) -> None:
    name = "Intel(R) Core(TM) i7 CPU         920  @ 2.67GHz # \t x"
    condition = f"platform.name   ==\n {quote}{name}{quote}   and  model.heads == 3"
    assert Predicate(condition).failing(facts(name=name))[0].text == "model.heads == 3"
    assert len(Predicate(condition).failing(facts(name=" ".join(name.split())))) == 2
    assert Predicate(local_condition(facts(name=name))).holds(facts(name=name))
    assert not Predicate(local_condition(facts(name=name))).holds(facts(name=" ".join(name.split())))
    assert Predicate(condition).text == f"platform.name == {quote}{name}{quote} and model.heads == 3"
    escaped = Predicate(r"platform.name == 'it\'s  a # \\'  or  model.heads == 2 ")
    assert escaped.text == r"platform.name == 'it\'s  a # \\' or model.heads == 2"
    assert escaped.failing(facts(name="it's  a # \\", heads=1)) == []


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
