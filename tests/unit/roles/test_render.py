"""Every role's prompt renders, carries its whole brief, and refuses a variable that nobody gives."""

import json
import typing
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from ckb.knowledge_files import read_knowledge
from roles.briefs import RoleName
from roles.render import PROMPTS, fence, render, render_prompt
from roles.table import ROLES
from tests.unit.roles.example_briefs import BRIEFS, FRAGMENT, IMPLEMENTER


def leaves(value: object) -> list[object]:
    """Every text and number somewhere in a brief."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def test_there_is_a_brief_an_answer_and_a_prompt_for_every_role() -> None:
    roles = set(typing.get_args(RoleName))
    assert set(BRIEFS) == set(ROLES) == roles
    assert {p.stem for p in PROMPTS.glob("[a-z]*.md")} == roles | {"check", "target"}


@pytest.mark.parametrize("role", BRIEFS)
def test_a_prompt_tells_everything_that_its_brief_holds(role: str) -> None:
    system, user = render(BRIEFS[role])
    told = BRIEFS[role].model_dump(mode="json", exclude={"run", "role", "facts"})
    for hidden in (
        "provenance",
        "layer",
        "status",
        "created",
        "order",
        "test",
        "rank",
        "placement",
    ):  # about rows, not about work
        told = {k: drop(v, hidden) for k, v in told.items()}
    both = system.content + user.content
    for leaf in leaves(told):
        if isinstance(leaf, str):
            for line in leaf.splitlines():
                assert line.strip() in both, line
    assert "vocabulary 512" in user.content
    assert (system.role, user.role) == ("system", "user")


def drop(value: object, key: str) -> object:
    if isinstance(value, dict):
        return {k: drop(v, key) for k, v in value.items() if k != key}
    return [drop(v, key) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("role", BRIEFS)
def test_the_system_message_holds_the_schema_of_the_answer_and_is_the_same_for_every_brief(role: str) -> None:
    system, _ = render(BRIEFS[role])
    assert json.dumps(ROLES[role].answer.model_json_schema(), ensure_ascii=False) in system.content
    assert render(BRIEFS[role].model_copy(update={"choices": {"other": 1}}))[0] == system


def test_the_roles_are_told_what_they_may_not_do() -> None:
    systems = {role: render(brief)[0].content for role, brief in BRIEFS.items()}
    assert "you never say that something works" in systems["implementer"]
    assert "replace no test" in systems["reviewer"]
    assert "you can never pass it" in systems["judge"]


def test_a_variable_that_nobody_gives_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "_parts.md").write_text("")
    (tmp_path / "bad.md").write_text(
        "{% block system %}{{ brief.nothing }}{% endblock %}{% block user %}{% endblock %}"
    )
    with pytest.raises(UndefinedError, match="nothing"):
        render_prompt("bad", {"brief": IMPLEMENTER}, tmp_path)
    with pytest.raises(UndefinedError, match="brief"):
        render_prompt("bad", {}, tmp_path)


def test_code_cannot_end_its_own_block() -> None:
    _, user = render(IMPLEMENTER)
    assert f"````python\nimport torch\n\n{FRAGMENT.code.rstrip()}\n````" in user.content
    assert fence("plain") == "```\nplain\n```"


def test_the_seed_knowledge_renders() -> None:
    knowledge = read_knowledge()
    brief = IMPLEMENTER.model_copy(
        update={"contracts": tuple(knowledge.contracts.values()), "fragments": tuple(knowledge.fragments.values())}
    )
    _, user = render(brief)
    for row in (*knowledge.contracts.values(), *knowledge.fragments.values()):
        assert f"`{row.id}`" in user.content
    for fragment in knowledge.fragments.values():
        assert fragment.code.strip() in user.content


@pytest.mark.parametrize("role", ["implementer", "reviewer", "analyst"])
def test_the_typed_columns_of_a_contract_are_told_in_words(role: str) -> None:
    _, user = render(BRIEFS[role])
    for line in (
        "| `linear` | `x` [M, K] compute (device), `w` Packed | `y` [M, N] compute (device) | "
        "x times the transposed weight. |",
        "| `dots` | `w` [K] const float* (host) | nothing | One row. |",
        "- a packed weight is never changed",
        "- the pool: from asleep to awake, by the first product",
        "- `linear` refuses an x of another K with ValueError, whose message holds both K, N",
        "- seen: plausible but wrong text; cause: a transposed weight",
    ):
        assert f"\n{line}\n" in user.content
