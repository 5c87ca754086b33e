"""The issue tracker's rules: what becomes an issue, what counts as a gain, what may be merged together."""

import re

import pytest

from roles.briefs import Hypothesis
from swarm.gains import Measured, gains, independent, told_of_no_gain, why_no_gain
from swarm.policies.issue_tracker import round_issues


def hypothesis(title: str) -> Hypothesis:
    return Hypothesis(title=title, change={title: 1}, expected_effect=0.1, acceptance="a", falsification="f")


def test_issues_follow_the_orchestrators_order_and_an_index_that_does_not_exist_or_comes_twice_is_left_out() -> None:
    issues = round_issues(2, [hypothesis("a"), hypothesis("b"), hypothesis("c")], [2, 0, 2, 7, -1], "base")
    assert [(issue.id, issue.title) for issue in issues] == [("r2-1", "c"), ("r2-2", "a")]
    assert all(issue.base == "base" and issue.round == 2 for issue in issues)


def test_only_effects_clear_of_noise_and_above_the_minimum_are_gains_best_first() -> None:
    measured = [
        Measured("small", 0.005, 0.004, 0.006, 1.0),
        Measured("unsure", 0.05, 0.004, 0.10, 1.0),
        Measured("noise", 0.30, -0.01, 0.6, 1.0),
        Measured("good", 0.10, 0.05, 0.15, 1.0),
        Measured("best", 0.20, 0.18, 0.22, 1.0),
        Measured("slow", -0.10, -0.12, -0.08, 1.0),
    ]
    assert [m.candidate for m in gains(measured)] == ["best", "good"]


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (Measured("c", -0.10, -0.12, -0.08, 1.0), r"slower: -10\.0% \[-12\.0%, -8\.0%\]"),
        (Measured("c", 0.30, -0.01, 0.6, 1.0), r"no effect beyond noise"),
        (Measured("c", 0.005, 0.004, 0.006, 1.0), r".* is below the stated minimum of 1%"),
        (Measured("c", 0.05, 0.004, 0.10, 1.0), r".* may be below the stated minimum of 1%"),
    ],
)
def test_a_candidate_without_a_gain_is_told_why(measured: Measured, words: str) -> None:
    assert not gains([measured])
    assert re.match(words, why_no_gain(measured))
    assert not re.search(r"[+-]\d", told_of_no_gain(measured)), "authors are told no figure of what decides"


def test_changes_of_one_decision_exclude_each_other() -> None:
    assert independent({"kv_layout": "x"}, [{"linear.ROWS": 4}])
    assert not independent({"kv_layout": "x", "b": 1}, [{"linear.ROWS": 4}, {"kv_layout": "y"}])
