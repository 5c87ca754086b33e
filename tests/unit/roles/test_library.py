"""What a language model may look up while it works: a real store, a real conversation, a gateway that has a script."""

from pathlib import Path

import pytest

from ckb.errors import UserError
from ckb.records import Row
from ckb.schemas import Experience
from ckb.search import Search
from ckb.store import Store
from roles import briefs as b
from roles.author import Answer, AnyBrief, NoAnswer
from roles.authors.litellm_author import MOST_FAULTS, LitellmAuthor
from roles.budget import Unlimited
from roles.desk import Means
from roles.library import ROWS
from roles.settings import LitellmSettings
from tests.unit.roles.example_briefs import BRIEFS, FRAGMENT, IMPLEMENTER, LINEAR, REVIEWER
from tests.unit.roles.scripted_gateway import ANSWER, Calls, Script, query


def lesson(id: str, **more: object) -> Experience:
    fields = {"title": f"{id} of threads", "kind": "debugging", "signal": "confirmed", "text": "Threads spin.", **more}
    return Experience.model_validate({"id": id, **fields})


@pytest.fixture
def library(tmp_path: Path) -> Search:
    store = Store.create(tmp_path / "store")
    rows: dict[str, list[Row]] = {
        "contracts": [LINEAR],
        "fragments": [FRAGMENT],
        "experience": [
            lesson("barriers"),
            lesson("hunch", signal="tentative"),
            lesson("elsewhere", applies_to="platform.accelerator == 'cuda'"),
            lesson("tiles", applies_to="choice.BLOCK == 8"),
        ],
    }
    store.append(rows, message="m", by="t")
    return Search(store)


def ask(library: Search | None, brief: AnyBrief, *turns: Calls) -> tuple[Answer, Script]:
    script = Script(*turns)
    author = LitellmAuthor(LitellmSettings(model="m"), script, Unlimited(), means=Means(library=library))
    return author.answer(brief)[0], script


@pytest.mark.parametrize("role", BRIEFS)
def test_every_role_is_offered_the_tool_where_there_is_a_library(library: Search, role: str) -> None:
    for given, offered in ((library, True), (None, False)):
        script = Script(*[(("no_such_tool", {}),)] * MOST_FAULTS)
        author = LitellmAuthor(LitellmSettings(model="m"), script, Unlimited(), means=Means(library=given))
        with pytest.raises(NoAnswer):
            author.answer(BRIEFS[role])
        names = [tool.name for tool in script.requests[0].tools]
        assert ("query_knowledge" in names) == offered
        assert len(names) == len(set(names)) > offered


def test_what_is_found_is_told_with_its_version_and_the_answer_comes_after(library: Search) -> None:
    answer, script = ask(library, REVIEWER, query(words="threads"), ANSWER)
    assert answer == b.ReviewerAnswer()
    [told] = script.told
    assert told.startswith("Knowledge base version 1, 2 row(s).")
    assert "`barriers` of experience: barriers of threads" in told
    assert '"text": "Threads spin."' in told
    assert "hunch" not in told, "a tentative row"
    assert "elsewhere" not in told, "its condition does not hold for the brief's facts"


def test_a_condition_is_asked_of_the_brief_and_can_be_lifted(library: Search) -> None:
    assert "tiles" in ask(library, REVIEWER, query(words="threads"), ANSWER)[1].told[0]
    other = REVIEWER.model_copy(update={"choices": {"BLOCK": 16}})
    assert "tiles" not in ask(library, other, query(words="threads"), ANSWER)[1].told[0]
    lifted = ask(library, other, query(words="threads", elsewhere=True), ANSWER)[1].told[0]
    assert "tiles" in lifted
    assert "`elsewhere` of experience" in lifted
    assert "hunch" not in lifted


def test_the_change_of_an_issue_counts_as_chosen(library: Search) -> None:
    brief = IMPLEMENTER.model_copy(update={"change": {"BLOCK": 16}})
    submit: Calls = (("write_file", {"path": "cache.py", "text": "x = 1\n"}), ("submit", {"summary": "s"}))
    assert "tiles" not in ask(library, brief, query(words="threads"), submit)[1].told[0]


def test_contracts_and_fragments_read_as_in_a_brief(library: Search) -> None:
    [told] = ask(library, REVIEWER, query(contract="linear"), ANSWER)[1].told
    assert "### Contract `linear`: Matrix times weight" in told
    assert "| `linear` | `x` [M, K] compute (device)" in told
    assert "### Fragment `linear-torch` of contract `linear`" in told
    assert "return x @ w.T" in told


def test_a_query_beside_other_calls_leaves_them_their_effect(library: Search) -> None:
    turn: Calls = (*query(words="threads"), ("write_file", {"path": "cache.py", "text": "x = 1\n"}))
    answer, script = ask(library, IMPLEMENTER, turn, (("submit", {"summary": "s"}),))
    assert isinstance(answer, b.ImplementerAnswer)
    assert answer.files == {"cache.py": "x = 1\n"}
    replies = [m for m in script.requests[-1].messages if m.role == "tool"]
    assert [m.tool_call_id for m in replies] == ["c0", "c1"], "a call without a reply is refused by providers"
    assert replies[1].content == "wrote cache.py, 1 lines"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"words": "()"}, "holds no word to look for"),
        ({"table": "runs"}, "table: Input should be 'contracts'"),
        ({"at": 3}, "at: Extra inputs are not permitted"),
    ],
)
def test_a_bad_query_is_told_and_mended(library: Search, arguments: dict[str, object], told: str) -> None:
    script = ask(library, REVIEWER, query(**arguments), ANSWER)[1]
    assert "query_knowledge was refused" in script.told[0]
    assert told in script.told[0]
    with pytest.raises(NoAnswer, match="broke the format 3 times"):
        ask(library, REVIEWER, *[query(**arguments)] * MOST_FAULTS)


def test_nothing_found_says_what_to_ask_instead(library: Search) -> None:
    assert "Nothing verified answers this" in ask(library, REVIEWER, query(words="quantum"), ANSWER)[1].told[0]


def test_an_answer_holds_few_rows(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store")
    store.append({"experience": [lesson(f"e{n}") for n in range(ROWS + 3)]}, message="m", by="t")
    told = ask(Search(store), REVIEWER, query(words="threads"), ANSWER)[1].told[0]
    assert told.startswith(f"Knowledge base version 1, {ROWS} row(s).")


def test_a_damaged_store_is_no_fault_of_the_model(library: Search, tmp_path: Path) -> None:
    next((tmp_path / "store" / "data").glob("contracts-*")).unlink()
    with pytest.raises(UserError, match="is damaged") as caught:
        ask(library, REVIEWER, query(words="threads"), ANSWER)
    assert not isinstance(caught.value, NoAnswer)
