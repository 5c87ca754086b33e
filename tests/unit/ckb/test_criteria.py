"""What a machine can decide of an issue: which criteria can be stated, and whom they let through."""

import pytest
from pydantic import ValidationError

from ckb.criteria import Criterion


def criterion(**fields: object) -> Criterion:
    stated = {"part": "acceptance", "command": "benchmark", "metric": "effect", "comparison": ">=", "value": 0.05}
    return Criterion.model_validate(stated | fields)


@pytest.mark.parametrize(
    ("comparison", "lets_through"),
    [("<", [0.0]), ("<=", [0.0, 0.05]), ("==", [0.05]), ("!=", [0.0, 0.1]), (">=", [0.05, 0.1]), (">", [0.1])],
)
def test_a_criterion_compares_what_was_found_with_its_number(comparison: str, lets_through: list[float]) -> None:
    stated = criterion(comparison=comparison)
    assert [found for found in (0.0, 0.05, 0.1) if stated.speaks_for(found)] == lets_through


def test_what_would_falsify_an_issue_must_not_hold() -> None:
    stated = criterion(part="falsification", comparison="<", value=0)
    assert stated.holds(-0.1)
    assert not stated.speaks_for(-0.1)
    assert stated.speaks_for(0.1)


def test_a_number_that_is_none_lets_nobody_through() -> None:
    for comparison in ("<", "<=", "==", ">=", ">"):
        assert not criterion(comparison=comparison).speaks_for(float("nan"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"metric": "speed"}, "benchmark tells effect, effect_low, effect_high, objective; it does not tell 'speed'"),
        ({"command": "profile", "metric": "ms"}, "profile tells step_ms"),
        (
            {"command": "profile", "metric": "share.attention"},
            "profile tells step_ms; it does not tell 'share.attention'",
        ),
        ({"value": float("inf")}, "finite number"),
        ({"command": ""}, "at least 1 character"),
        ({"comparison": "=>"}, "Input should be"),
    ],
)
def test_what_nobody_could_decide_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        criterion(**fields)


def test_metrics_of_a_command_line_go_by_any_name() -> None:
    assert criterion(command="python probe.py", metric="launches").command == "python probe.py"
