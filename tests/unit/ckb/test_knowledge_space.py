"""The design space: what goes together, what must be chosen along, and what is missing."""

import pytest

from ckb.errors import KnowledgeGap
from ckb.predicate import Predicate
from ckb.records import Contract, Fragment
from ckb.space import Unsatisfiable, affects, complete, default_assignment, open_space, select
from tests.unit.roles.example_briefs import FACTS


def contract(
    id: str, decisions: dict[str, tuple[str, ...]], requires: dict[str, str], applies_to: str = ""
) -> Contract:
    return Contract(
        id=id, layer="contract", title=id, stage="execution", module="kernels.py", order=0, interface=(), test=id,
        text=id, decisions=decisions, decision_requires=requires, applies_to=applies_to,
    )  # fmt: skip


def fragment(id: str, owner: str, applies_to: str = "", rank: int = 0, **parameters: tuple[int, ...]) -> Fragment:
    return Fragment(
        id=id, layer="framework", contract=owner, title=id, applies_to=applies_to, rank=rank, parameters=parameters,
        parameter_requires={"WIDE=2": "'avx512f' in platform.isa"} if "WIDE" in parameters else {},
        affects=("linear",), code="",
    )  # fmt: skip


CONTRACTS = (
    contract("step", {"step": ("eager", "graph")}, {"step=graph": "choice.math == 'own' and choice.cache == 'paged'"}),
    contract("math", {"math": ("library", "own")}, {"math=own": "platform.compiler != None"}),
    contract("cache", {"cache": ("flat", "paged", "none")}, {"cache=none": "model.layers > 99"}),
    contract("extra", {}, {}, applies_to="choice.math == 'own'"),
)
FRAGMENTS = (
    fragment("step-any", "step"),
    fragment("math-library", "math", "choice.math == 'library'"),
    fragment("math-own", "math", "choice.math == 'own'", ROWS=(1, 2), WIDE=(1, 2)),
    fragment("cache-any", "cache", SIZE=(16,)),
    fragment("cache-better", "cache", "choice.cache == 'paged'", rank=1),
    fragment("extra-own", "extra"),
)


def test_defaults_are_first_options_and_first_values() -> None:
    assert default_assignment(CONTRACTS, FRAGMENTS, FACTS) == {
        "step": "eager", "math": "library", "cache": "flat", "cache-any.SIZE": 16
    }  # fmt: skip


def test_what_a_choice_requires_is_chosen_along_and_the_rest_stays() -> None:
    found = complete({"step": "graph"}, CONTRACTS, FRAGMENTS, FACTS, prefer={"math": "library", "math-own.ROWS": 2})
    assert found == {"step": "graph", "math": "own", "cache": "paged", "math-own.ROWS": 2, "math-own.WIDE": 1}
    tuned = complete({"math-own.ROWS": 2}, CONTRACTS, FRAGMENTS, FACTS)
    assert (tuned["math"], tuned["step"], tuned["math-own.ROWS"]) == ("own", "eager", 2)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"step": "graph", "math": "library"}, "can't be made together"),
        ({"cache": "none"}, "can't be made together"),
        ({"math-own.ROWS": 2, "math": "library"}, "can't be made together"),
        ({"math-own.WIDE": 2}, r"math-own.WIDE is one of \[1\]"),
        ({"colour": "red"}, "no decision or parameter colour"),
    ],
)
def test_contradictions_are_named(fixed: dict[str, str | int], message: str) -> None:
    with pytest.raises(Unsatisfiable, match=message):
        complete(fixed, CONTRACTS, FRAGMENTS, FACTS)


def test_the_open_space_holds_what_some_assignment_can_take() -> None:
    assert open_space(CONTRACTS, FRAGMENTS, FACTS) == {
        "step": ("eager", "graph"),
        "math": ("library", "own"),
        "cache": ("flat", "paged"),
        "math-own.ROWS": (1, 2),
    }
    without = [f for f in FRAGMENTS if f.id != "extra-own"]
    assert open_space(CONTRACTS, without, FACTS) == {"cache": ("flat", "paged")}


def test_the_highest_rank_serves_and_a_gap_names_its_contract() -> None:
    cache = CONTRACTS[2]
    assert select(cache, FRAGMENTS, FACTS, {"cache": "paged"}).id == "cache-better"
    assert select(cache, FRAGMENTS, FACTS, {"cache": "flat"}).id == "cache-any"
    with pytest.raises(KnowledgeGap, match="'extra'") as gap:
        complete({"math": "own"}, CONTRACTS, FRAGMENTS[:-1], FACTS)
    assert gap.value.contract == "extra"


def test_what_is_left_open_avoids_a_gap_and_what_is_asked_for_names_it() -> None:
    without = [f for f in FRAGMENTS if f.id != "extra-own"]
    assert complete({}, CONTRACTS, without, FACTS, prefer={"math": "own"})["math"] == "library"
    with pytest.raises(KnowledgeGap):
        complete({"math": "own"}, CONTRACTS, without, FACTS)


def test_effects_of_a_decision_are_those_of_its_fragments() -> None:
    found = affects(CONTRACTS, FRAGMENTS)
    assert found["math"] == found["math-own.ROWS"] == ("linear",)
    assert found["step"] == (), "no fragment depends on it"
    assert Predicate(CONTRACTS[0].decision_requires["step=graph"]).choices() == {"math", "cache"}


def test_decisions_that_nothing_links_are_searched_apart() -> None:
    """All combinations of 40 decisions that have nothing to do with each other would take for ever."""
    others = tuple(contract(f"c{n}", {f"d{n}": ("a", "b")}, {}) for n in range(40))
    served = tuple(fragment(f"f{n}", f"c{n}", f"choice.d{n} == 'b'") for n in range(40))
    found = complete({"step": "graph"}, (*others, *CONTRACTS), (*served, *FRAGMENTS), FACTS)
    assert {found[f"d{n}"] for n in range(40)} == {"b"}, "the first option of each has no fragment"
    assert (found["step"], found["math"], found["cache"]) == ("graph", "own", "paged")
    with pytest.raises(KnowledgeGap, match="c7"):
        complete({}, (*others, *CONTRACTS), (*served[:7], *served[8:], *FRAGMENTS), FACTS)


def test_a_parameter_without_an_open_value_is_named() -> None:
    closed = fragment("cache-closed", "cache", rank=2, WIDE=(2,))
    with pytest.raises(Unsatisfiable, match=r"none of the values \[2\] of cache-closed.WIDE is open here"):
        complete({}, CONTRACTS, (*FRAGMENTS, closed), FACTS)
