"""Which member of an ensemble answers: by weight, by what was kept for the money, and the same for the same record."""

import random
from collections import Counter

import pytest
from pydantic import ValidationError

from roles.ensemble import CHEAPEST, Outcome, choose, prices
from roles.settings import ComposerSettings, EnsembleSettings, LitellmSettings, singles

EVEN = {"a": 1.0, "b": 1.0}


def shares(weights: dict[str, float], history: tuple[Outcome, ...], *, learn: bool, works: int = 2000) -> Counter[str]:
    return Counter(choose(weights, history, 7, f"work {n}", learn=learn) for n in range(works))


def record(member: str, kept: int, lost: int, usd: float | None = 1.0) -> tuple[Outcome, ...]:
    return tuple(Outcome(member=member, kept=n < kept, usd=usd) for n in range(kept + lost))


def test_weights_alone_are_shares_and_a_weight_of_zero_is_never_chosen() -> None:
    found = shares({"a": 3.0, "b": 1.0, "never": 0.0}, record("b", 50, 0), learn=False)
    assert found["never"] == 0
    assert 0.7 < found["a"] / found.total() < 0.8


def test_the_choice_is_a_function_of_record_seed_and_work() -> None:
    history = (*record("a", 2, 3), *record("b", 1, 1))
    works = [f"work {n}" for n in range(40)]
    first = [choose(EVEN, history, 3, work, learn=True) for work in works]
    assert first == [choose(EVEN, history, 3, work, learn=True) for work in works]
    assert first != [choose(EVEN, history, 4, work, learn=True) for work in works]
    assert len(set(first)) == 2, "work that is dispatched at once is spread"


def test_nothing_known_leaves_it_to_the_weights() -> None:
    assert 0.45 < shares(EVEN, (), learn=True)["a"] / 2000 < 0.55
    assert shares({"a": 4.0, "b": 1.0}, (), learn=True)["a"] > 1400


def test_the_member_with_more_kept_answers_is_preferred_and_the_other_still_tried() -> None:
    found = shares(EVEN, (*record("a", 8, 2), *record("b", 2, 8)), learn=True)
    assert 0.9 < found["a"] / 2000 < 1.0


def test_of_two_members_that_are_as_often_kept_the_cheaper_is_preferred() -> None:
    found = shares(EVEN, (*record("a", 5, 5, usd=0.1), *record("b", 5, 5, usd=1.0)), learn=True)
    assert found["a"] > 1700
    twice_as_good = (*record("a", 9, 1, usd=1.0), *record("b", 3, 7, usd=0.2))
    assert shares(EVEN, twice_as_good, learn=True)["b"] > 1500, "a third of the kept ones, for a fifth of the price"


def test_a_member_that_costs_nothing_must_still_show_something() -> None:
    history = (*record("a", 0, 60, usd=0.0), *record("b", 6, 4, usd=1.0))
    assert prices(["a", "b"], history)["a"] == CHEAPEST
    assert shares(EVEN, history, learn=True)["b"] > 1500


def test_an_unknown_cost_counts_as_average_and_never_as_zero() -> None:
    history = (*record("a", 1, 1, usd=None), *record("b", 1, 1, usd=2.0))
    assert prices(["a", "b"], history) == {"a": 1.0, "b": 1.0}
    assert prices(["a", "b"], record("a", 1, 1, usd=None)) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("seed", range(5))
def test_over_a_run_most_work_goes_to_who_is_kept_most_per_dollar(seed: int) -> None:
    """Simulated: kept with a chance of 0.5 at 1 USD, 0.4 at 0.2 USD, 0.05 at 0.05 USD: 0.5, 2 and 1 a dollar."""
    members = {"dear": (0.5, 1.0), "good": (0.4, 0.2), "cheap": (0.05, 0.05)}
    world, history = random.Random(seed), []
    for n in range(400):
        name = choose(dict.fromkeys(members, 1.0), history, seed, f"c{n}", learn=True)
        chance, usd = members[name]
        history.append(Outcome(member=name, kept=world.random() < chance, usd=usd))
    late = Counter(outcome.member for outcome in history[200:])
    assert late["good"] > 120, f"seed {seed}: {late}"
    assert min(Counter(outcome.member for outcome in history[:100]).values()) > 0, "everyone was tried"


def test_members_are_told_apart_and_one_of_them_can_be_chosen() -> None:
    twice = LitellmSettings(model="m")
    ensemble = EnsembleSettings(members=(twice, twice.model_copy(update={"temperature": 0.1}), ComposerSettings()))
    assert list(ensemble.arms) == ["m (1)", "m (2)", "composer"]
    assert [type(author).__name__ for author in singles([ensemble, ComposerSettings()])] == [
        "LitellmSettings",
        "LitellmSettings",
        "ComposerSettings",
        "ComposerSettings",
    ]
    with pytest.raises(ValidationError, match="every member's weight is 0"):
        EnsembleSettings(members=(ComposerSettings(weight=0), twice.model_copy(update={"weight": 0.0})))
    with pytest.raises(ValidationError, match="at least 2 items"):
        EnsembleSettings(members=(twice,))
