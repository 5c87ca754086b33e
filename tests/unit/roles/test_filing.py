"""Ideas that a role files during its work: who may, what is refused, and where they end up."""

import json
from typing import Any

import pytest

from roles import briefs as b
from roles.author import AnyBrief
from roles.checks import MOST_FILED, faults, filing_faults
from roles.completion import CompletionReply, Message
from roles.desk import Desk, Means
from roles.render import render
from tests.unit.roles.example_briefs import BRIEFS, EVALUATOR, FILES, HYPOTHESIS, IMPLEMENTER
from tests.unit.roles.test_tools import SUBMIT, WRITE, ask, one

MAY = ("implementer", "judge", "evaluator")
IDEA: dict[str, Any] = HYPOTHESIS.model_dump(mode="json")


def allowed(brief: AnyBrief) -> AnyBrief:
    return brief.model_copy(update={"tools": ("file_issue",)})


@pytest.mark.parametrize("role", BRIEFS)
def test_exactly_the_roles_that_file_are_offered_it_and_only_under_a_policy_that_takes_ideas(role: str) -> None:
    brief = BRIEFS[role]
    assert "file_issue" not in [tool.name for tool in Desk(brief, Means()).tools]
    assert ("file_issue" in [tool.name for tool in Desk(allowed(brief), Means()).tools]) == (role in MAY)
    if role in MAY:
        told = [render(one)[0].content for one in (brief, allowed(brief))]
        assert ["may be filed" in text or "you may file" in text for text in told] == [False, True]


def test_what_is_filed_comes_with_the_answer_and_ends_nothing() -> None:
    working = allowed(IMPLEMENTER.model_copy(update={"files": FILES}))
    answer, usage, script = ask(working, one("file_issue", **IDEA), (*WRITE, *SUBMIT))
    assert script.told[0] == "filed, 1 in all; go on with your own work"
    assert isinstance(answer, b.ImplementerAnswer)
    assert answer.filed == (HYPOTHESIS,)
    assert answer.files.keys() == {"kernels.py", "cache.py"}
    assert usage.tools["file_issue"] == 1
    judged, _, _ = ask(
        allowed(BRIEFS["judge"]), one("file_issue", **(IDEA | {"change": {"BLOCK": 16}})), one("answer", objections=[])
    )
    assert isinstance(judged, b.JudgeAnswer)
    assert [idea.change for idea in judged.filed] == [{"BLOCK": 16}]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"falsification": " "}, "falsification is empty"),
        ({"expected_effect": 0}, "expected_effect is 0: nothing is tried that promises no gain"),
        ({"expected_effect": "much"}, "expected_effect: Input should be a valid number"),
        ({"change": {"magic": 1}}, "there is no decision or parameter 'magic'; there are 'BLOCK', 'linear.layout'"),
        ({"change": {"linear.layout": "rows"}}, "linear.layout is 'rows' already"),
        (
            {"change": {"linear.layout": "spirals"}},
            "linear.layout is one of ['rows', 'tiles', 'panels'], not 'spirals'",
        ),
        ({"title": None}, "title: Input should be a valid string"),
    ],
)
def test_a_malformed_one_returns_its_field_errors_and_the_work_goes_on(wrong: dict[str, object], told: str) -> None:
    working = allowed(IMPLEMENTER.model_copy(update={"files": FILES}))
    answer, _, script = ask(working, one("file_issue", **(IDEA | wrong)), (*WRITE, *SUBMIT))
    assert told in script.told[0]
    assert isinstance(answer, b.ImplementerAnswer)
    assert answer.filed == ()


def test_an_answer_files_no_more_than_it_may_and_none_where_nobody_takes_them() -> None:
    many = tuple(HYPOTHESIS.model_copy(update={"title": f"idea {i}"}) for i in range(MOST_FILED + 1))
    assert faults(allowed(EVALUATOR), b.EvaluatorAnswer(filed=many[:-1])) == []
    assert faults(allowed(EVALUATOR), b.EvaluatorAnswer(filed=many)) == [
        "filed holds 9 ideas, at most 8 are taken of one answer"
    ]
    (refused,) = faults(EVALUATOR, b.EvaluatorAnswer(filed=many[:1]))
    assert refused == "filed holds 1 ideas, and nobody takes them here: leave it out"
    assert filing_faults(EVALUATOR, HYPOTHESIS.model_copy(update={"change": {}})) == [], "free code is an idea too"


def test_a_model_without_tools_files_in_its_answer() -> None:
    plain = json.dumps({"objections": [], "filed": [IDEA | {"change": {"BLOCK": 16}}]})
    reply = CompletionReply(
        message=Message(role="assistant", content=plain),
        finish_reason="stop",
        prompt_tokens=10,
        completion_tokens=2,
        usd=0.0,
        seconds=0.1,
    )
    judged = Desk(allowed(BRIEFS["judge"]), Means()).take(reply).answer
    assert isinstance(judged, b.JudgeAnswer)
    assert len(judged.filed) == 1
