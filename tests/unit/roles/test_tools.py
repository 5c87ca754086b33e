"""The tools of a conversation: what each does, what it refuses, and who is offered which."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckb.records import Choice
from roles import briefs as b
from roles.author import Answer, AnyBrief, NoAnswer, Usage
from roles.authors.conversation import LONGEST_USELESS
from roles.authors.litellm_author import MOST_FAULTS, LitellmAuthor
from roles.budget import Unlimited
from roles.completion import CompletionReply, Message
from roles.desk import Desk, Means
from roles.settings import LitellmSettings
from roles.table import ROLES
from roles.tools.public_tests import Tried
from roles.transcript import ExchangeRecord, Transcript, read_transcript
from tests.unit.roles.example_briefs import BRIEFS, FAILED, FILES, IMPLEMENTER, REVIEWER
from tests.unit.roles.scripted_gateway import ANSWER, Calls, Script

WRITE: Calls = (("write_file", {"path": "cache.py", "text": "CAPACITY = 1\n"}),)
SUBMIT: Calls = (("submit", {"summary": "s"}),)
WORKING = IMPLEMENTER.model_copy(update={"files": FILES})


class Stage:
    """Public tests (roles.tools.public_tests.PublicTests) that find what a test wrote down, and remember the asking."""

    def __init__(self, *found: Tried):
        self.found = list(found)
        self.asked: list[tuple[dict[str, str], dict[str, Choice], int]] = []

    def run(
        self, brief: b.ImplementerBrief, files: Mapping[str, str], choices: Mapping[str, Choice], number: int
    ) -> Tried:
        self.asked.append((dict(files), dict(choices), number))
        return self.found.pop(0)


def ask(
    brief: AnyBrief, *turns: Calls, means: Means | None = None, transcript: Transcript | None = None
) -> tuple[Answer, Usage, Script]:
    script = Script(*turns)
    author = LitellmAuthor(LitellmSettings(model="m"), script, Unlimited(), transcript, means=means)
    return *author.answer(brief), script


def one(name: str, **arguments: object) -> Calls:
    return ((name, arguments),)


@pytest.mark.parametrize("role", BRIEFS)
def test_a_role_is_offered_what_the_table_says_and_only_where_there_are_means(role: str) -> None:
    brief = BRIEFS[role]
    bare = [tool.name for tool in Desk(brief, Means()).tools]
    assert set(bare) <= set(ROLES[brief.role].tools)
    assert ("write_file" in bare) == bool(ROLES[brief.role].writes) == (role == "implementer")
    assert ("read_file" in bare) == (role in ("implementer", "reviewer", "judge")), "the evaluator's brief has no files"
    assert ("read_profile" in bare) == (role == "evaluator")
    tested = [tool.name for tool in Desk(brief, Means(tests=Stage(), test_runs=1)).tools]
    assert set(tested) - set(bare) == ({"run_tests"} if role == "implementer" else set())
    assert "run_tests" not in [tool.name for tool in Desk(brief, Means(tests=Stage())).tools], (
        "off unless it is asked for"
    )


def test_files_are_listed_and_read_as_they_are_now(tmp_path: Path) -> None:
    read = (*one("list_files"), *one("read_file", path="kernels.py", first=4, numbers=True))
    edit = (*WRITE, *one("edit_file", path="kernels.py", old="x @ w.T", new="w @ x"), *read)
    answer, usage, script = ask(WORKING, edit, SUBMIT)
    listed, shown = script.told[2:]
    assert listed == "cache.py: 1 lines\nkernels.py: 5 lines"
    assert shown == "   4  def linear(x, w):\n   5      return w @ x"
    assert isinstance(answer, b.ImplementerAnswer)
    assert usage.tools == {"write_file": 1, "edit_file": 1, "list_files": 1, "read_file": 1, "submit": 1}


def test_who_judges_reads_and_writes_nothing() -> None:
    _, usage, script = ask(REVIEWER, one("write_file", path="kernels.py", text="x = 1\n"), ANSWER)
    assert "there is no such tool; there are list_files, read_file, answer" in script.told[0]
    assert usage.tools == {"unknown": 1, "answer": 1}
    _, _, script = ask(REVIEWER, one("read_file", path="kernels.py"), ANSWER)
    assert script.told == [FILES["kernels.py"].rstrip("\n")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "../plan.json"}, "the tree has no '../plan.json'; it has kernels.py"),
        ({"path": "kernels.py", "first": 9}, "kernels.py has 5 lines: there is none from 9 to its end"),
        ({"path": "kernels.py", "first": 3, "last": 2}, "there is none from 3 to 2"),
        ({"path": "kernels.py", "first": 0}, "first: Input should be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_read_is_told(arguments: dict[str, object], told: str) -> None:
    assert told in ask(REVIEWER, one("read_file", **arguments), ANSWER)[2].told[0]


def test_paths_outside_of_the_write_scope_are_refused_and_recorded(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    out = (
        *one("write_file", path="../main.py", text="x = 1\n"),
        *one("edit_file", path="/etc/passwd", old="x", new=""),
    )
    answer, usage, script = ask(WORKING, out, (*WRITE, *SUBMIT), transcript=transcript)
    transcript.close()
    assert isinstance(answer, b.ImplementerAnswer)
    assert set(answer.files) == {"kernels.py", "cache.py"}
    assert usage.outside == ("../main.py", "/etc/passwd")
    first, second = (r for r in read_transcript(tmp_path / "t.jsonl") if isinstance(r, ExchangeRecord))
    assert (first.outside, second.outside) == (("../main.py", "/etc/passwd"), ())
    assert [call.name for call in second.reply.tool_calls] == ["write_file", "submit"], "every call is on record"
    assert [message.content for message in second.sent] == script.told, "and so is every reply to one"


def test_a_file_that_a_plain_answer_may_not_write_does_not_stay_in_the_tree() -> None:
    desk = Desk(WORKING, Means())

    def plain(content: str) -> CompletionReply:
        said = Message(role="assistant", content=content)
        numbers = {"prompt_tokens": 1, "completion_tokens": 1, "usd": 0.0, "seconds": 0.1}
        return CompletionReply(message=said, finish_reason="stop", **numbers)

    refused = desk.take(plain('{"files": {"../x.py": "", "cache.py": "x = 1\\n"}, "summary": "s"}'))
    assert "'../x.py' is none of the engine's files" in refused.fault
    assert desk.outside == ["../x.py"]
    mended = desk.take(plain('{"files": {"model.py": "x = 1\\n"}, "summary": "s"}'))
    assert isinstance(mended.answer, b.ImplementerAnswer)
    assert set(mended.answer.files) == {"kernels.py", "model.py"}


def test_public_tests_run_on_the_tree_as_it_is_and_their_time_is_told() -> None:
    failed = Tried(passed=("rope",), failures=(FAILED,), blocked=("linear: too little memory",), device_seconds=2.5)
    stage = Stage(failed, Tried(passed=("rope", "linear"), failures=(), device_seconds=1.0))
    means = Means(tests=stage, test_runs=2)
    run: Calls = one("run_tests", choices={"BLOCK": 16})
    _, usage, script = ask(WORKING, (*WRITE, *run), run, run, SUBMIT, means=means)
    replies = [m.content for m in script.requests[-1].messages if m.role == "tool"]
    assert replies[1].splitlines() == [
        "1 test(s) passed: rope",
        "L1 linear of contract linear failed: expected shape [3, 8], found [8, 3]",
        "not decided: linear: too little memory",
    ]
    assert replies[2] == "2 test(s) passed: rope, linear"
    assert "the tests ran 2 times already" in replies[3]
    assert [(choices["BLOCK"], number) for _, choices, number in stage.asked] == [(16, 0), (16, 1)]
    assert stage.asked[0][0] == FILES | {"cache.py": "CAPACITY = 1\n"}
    assert usage.device_seconds == 3.5


def test_what_cannot_be_handed_in_is_not_worth_a_device() -> None:
    stage = Stage()
    broken: Calls = (("write_file", {"path": "cache.py", "text": "def f(:\n"}), ("run_tests", {}))
    with pytest.raises(NoAnswer, match=r"cache\.py doesn't parse"):
        ask(WORKING, *[broken] * MOST_FAULTS, means=Means(tests=stage, test_runs=5))
    assert stage.asked == []


def test_the_profile_is_read_where_the_brief_has_it() -> None:
    brief = WORKING.model_copy(update={"shares": {"head": 0.2, "linear": 0.8}, "step_ms": 21.5})
    _, _, script = ask(brief, (*WRITE, *one("read_profile")), SUBMIT)
    assert script.told[1].splitlines() == [
        "Shares of a decode step by the part of the engine that takes them; a step takes 21.500 ms by our clock:",
        "- linear: 80.0%",
        "- head: 20.0%",
    ]


def test_malformed_calls_get_the_field_errors_and_count_towards_the_cap() -> None:
    bad: Calls = (("write_file", {"path": "cache.py", "body": "x"}),)
    with pytest.raises(NoAnswer, match="broke the format 3 times in a row") as caught:
        ask(WORKING, *[bad] * MOST_FAULTS, SUBMIT)
    assert "- text: Field required" in str(caught.value)
    assert "- body: Extra inputs are not permitted" in str(caught.value)
    assert caught.value.usage
    assert caught.value.usage.tools == {"write_file": 3}
    _, usage, _ = ask(WORKING, bad, bad, WRITE, bad, bad, SUBMIT)
    assert usage.calls == 6, "a good turn in between starts the count anew"


def test_a_record_of_a_thousand_wrong_fields_is_told_in_a_few_lines() -> None:
    wrong = {f"field_{n}" + "x" * 1000: n for n in range(1000)}
    _, _, script = ask(REVIEWER, (("answer", {"findings": [], **wrong}),), ANSWER)
    assert len(script.told[0]) < LONGEST_USELESS
    assert "- and 980 more" in script.told[0]
