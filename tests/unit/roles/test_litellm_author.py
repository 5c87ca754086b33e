"""The LLM author against a real HTTP server, through the real litellm. litellm is imported once, by the first test."""

import json
import pickle
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckb.errors import UserError
from roles import briefs as b
from roles.author import AnyBrief, AuthorError
from roles.authors.by_hand import check_author, complete_target
from roles.authors.calls import LONGEST_RETRY_AFTER_S, PROVIDER_OVERHEAD_TOKENS
from roles.authors.conversation import LONGEST_USELESS
from roles.authors.gateway import LitellmGateway, highest, retry_after
from roles.authors.litellm_author import MOST_FAULTS, LitellmAuthor
from roles.budget import Unlimited
from roles.completion import CompletionError, CompletionRequest, Message
from roles.settings import LitellmSettings
from roles.transcript import ExchangeRecord, Transcript, read_transcript
from tests.unit.roles.example_briefs import BRIEFS, FILES, IMPLEMENTER, REVIEWER
from tests.unit.roles.stub_provider import Cuts, Drips, Fails, Says, Step, StubProvider, stub_provider

pytestmark = pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # litellm's, on its first call
PRICE = {"usd_per_million_prompt": 1.0, "usd_per_million_completion": 2.0}
GOOD = Says(calls=(("answer", '{"findings": []}'),))
NO_FINDINGS = b.ReviewerAnswer()
TREE = {"kernels.py": "def linear(x, w):\n    return x @ w\n"}


@pytest.fixture(scope="module")
def gateway() -> LitellmGateway:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of litellm's own modules as they are imported
        return LitellmGateway()


@pytest.fixture(scope="module")
def provider() -> Iterator[StubProvider]:
    with stub_provider() as stub:
        yield stub


class Ledger:
    """A budget that remembers, and refuses what would pass its limit."""

    def __init__(self, usd: float = 1e9):
        self.limit = usd
        self.reserved: list[tuple[float, int]] = []
        self.settled: list[tuple[float, int]] = []

    def reserve(self, usd: float, tokens: int) -> str:
        if sum(u for u, _ in self.settled) + usd > self.limit:
            raise UserError(f"budget.usd: {usd} is more than is left of {self.limit}")
        self.reserved.append((usd, tokens))
        return str(len(self.reserved) - 1)

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        assert int(reservation) == len(self.settled), "each reservation is settled once, in order"
        self.settled.append((usd, tokens))


class Desk:
    """An author on the stub, with what it spent and how long it would have slept."""

    def __init__(self, gateway: LitellmGateway, provider: StubProvider, transcript: Transcript | None = None):
        self.gateway, self.provider, self.transcript = gateway, provider, transcript
        self.ledger = Ledger()
        self.slept: list[float] = []

    def settings(self, **more: Any) -> LitellmSettings:
        fields = {"model": "openai/stub", "api_base": self.provider.api_base, "timeout_s": 60, "retries": 2, **PRICE}
        return LitellmSettings.model_validate(fields | more)

    def ask(self, brief: AnyBrief, *steps: Step, **more: Any) -> tuple[Any, Any]:
        self.provider.play(*steps)
        settings = self.settings(**more)
        author = LitellmAuthor(settings, self.gateway, self.ledger, self.transcript, self.slept.append)
        return author.answer(brief)

    def refuses(self, brief: AnyBrief, *steps: Step, **more: Any) -> str:
        with pytest.raises(AuthorError) as caught:
            self.ask(brief, *steps, **more)
        return str(caught.value)


@pytest.fixture
def desk(gateway: LitellmGateway, provider: StubProvider) -> Desk:
    return Desk(gateway, provider)


def test_a_good_answer_is_typed_and_costs_what_the_settings_say(desk: Desk) -> None:
    answer, usage = desk.ask(REVIEWER, GOOD)
    assert answer == NO_FINDINGS
    assert (usage.author, usage.model, usage.calls) == ("litellm", "openai/stub", 1)
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 20)
    assert usage.usd == pytest.approx((100 * 1.0 + 20 * 2.0) / 1e6)
    assert 0 < usage.seconds < 60
    [request] = desk.provider.requests
    assert [m["role"] for m in request["messages"]] == ["system", "user"]
    assert request["tools"][-1]["function"]["name"] == "answer"
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("stub", 16_384, 0.7)


@pytest.mark.parametrize(
    "content", ['{"findings": []}', 'Here it is:\n```json\n{"findings": []}\n```\nDone {sort of}.']
)
def test_plain_json_answers_where_a_model_has_no_tools(desk: Desk, content: str) -> None:
    assert desk.ask(REVIEWER, Says(content))[0] == NO_FINDINGS


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (Says("All fine."), "neither a tool call nor a JSON object"),
        (Says(None), "neither a tool call nor a JSON object"),
        (Says('{"findings": 3}'), "findings: Input should be a valid array"),
        (Says('{"findings": [], "passed": true}'), "passed: Extra inputs are not permitted"),
        (Says(calls=(("answer", '{"findings": ['),)), "the JSON: Invalid JSON"),
        (Says(calls=(("approve", "{}"),)), "there is no such tool; there are list_files, read_file, answer"),
        (Says('{"findings": [', finish="length", completion_tokens=16_384), "cut off after 16384 tokens"),
        (
            Says('{"findings": [{"contract": "x", "file": "kernels.py", "line": 1, "expected": "", "found": ""}]}'),
            "there is no contract 'x'; there are 'linear'",
        ),
    ],
)
def test_a_format_error_is_told_and_mended(desk: Desk, bad: Says, told: str) -> None:
    answer, usage = desk.ask(REVIEWER, bad, GOOD)
    assert answer == NO_FINDINGS
    assert usage.calls == 2
    assert told in desk.provider.requests[1]["messages"][-1]["content"]
    if bad.calls:  # a provider refuses a conversation in which a tool call has no answer
        assert desk.provider.requests[1]["messages"][-1]["tool_call_id"] == "call_0"


def test_a_reply_of_200_000_tokens_is_paid_once_and_not_sent_back_whole(desk: Desk) -> None:
    endless = Says("x" * 800_000, finish="length", completion_tokens=200_000)
    answer, usage = desk.ask(REVIEWER, endless, GOOD)
    assert answer == NO_FINDINGS
    assert usage.completion_tokens == 200_020, "what the provider says it made is what is paid"
    first, second = (len(json.dumps(request)) for request in desk.provider.requests)
    assert second < first + LONGEST_USELESS + 2_000
    said = desk.provider.requests[1]["messages"][2]["content"]
    assert "[792,000 characters left out]" in said
    assert "cut off after 200000 tokens" in desk.provider.requests[1]["messages"][3]["content"]
    arguments = '{"path": "cache.py", "text": "' + "y" * 800_000
    good = Says(calls=(write("cache.py", "CAPACITY = 1\n"), SUBMIT))
    tree, _ = desk.ask(IMPLEMENTER, Says(calls=(("write_file", arguments),), finish="length"), good)
    assert tree.files == {"cache.py": "CAPACITY = 1\n"}
    assert len(json.dumps(desk.provider.requests[1])) < len(json.dumps(desk.provider.requests[0])) + 20_000


def test_arguments_that_are_no_json_object_go_back_as_one_that_every_provider_takes(desk: Desk) -> None:
    for arguments in ('{"findings": [', "[1]", "", "{" * 100_000):
        answer, _ = desk.ask(REVIEWER, Says(calls=(("answer", arguments),)), GOOD)
        assert answer == NO_FINDINGS
        [call] = desk.provider.requests[1]["messages"][2]["tool_calls"]
        sent = json.loads(call["function"]["arguments"])
        assert sent["not_json"].startswith(arguments[:100])


def test_without_a_key_nothing_is_sent_and_the_remedy_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_KEY", "LITELLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    told = desk.refuses(REVIEWER, model="openai/gpt-4o-mini", api_base=None)
    assert "auth: the environment variable OPENAI_API_KEY is not set" in told
    assert "Set the provider's key in the environment (or api_key_env)." in told
    assert (desk.provider.requests, desk.slept) == ([], [])
    assert desk.ledger.settled == [(0.0, 0)]


def test_a_model_name_that_names_no_provider_is_refused_at_once(desk: Desk) -> None:
    told = desk.refuses(REVIEWER, model="nonsense/model", api_base=None)
    assert "the model 'nonsense/model' can't be used: bad_request: " in told
    assert desk.slept == []


def test_three_format_errors_in_a_row_end_the_work_and_are_paid(desk: Desk) -> None:
    with pytest.raises(AuthorError, match="broke the format 3 times in a row as reviewer") as caught:
        desk.ask(REVIEWER, *[Says("no")] * MOST_FAULTS, GOOD)
    assert len(desk.provider.requests) == MOST_FAULTS
    assert caught.value.usage is not None
    assert caught.value.usage.prompt_tokens == 300
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.usage) == (str(caught.value), caught.value.usage)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Fails(401, "Incorrect API key provided: sk-abcdefgh12345678"), "auth: .*Set the provider's key"),
        (Fails(403), "auth: "),
        (Fails(402), "payment: .*no credit left"),
        (Fails(404, "The model `stub` does not exist"), "not_found: .*Check `model` and `api_base`"),
        (Fails(400, "no such parameter"), "bad_request: .*no such parameter"),
        (Fails(400, "too long", code="context_length_exceeded"), "context_window: "),
        (Fails(429, "You exceeded your quota", code="insufficient_quota"), "payment: "),
    ],
)
def test_errors_that_no_repetition_mends_end_the_work_at_once_and_cost_nothing(
    desk: Desk, step: Step, told: str
) -> None:
    with pytest.raises(AuthorError, match=told) as caught:
        desk.ask(REVIEWER, step, GOOD)
    assert len(desk.provider.requests) == 1
    assert "sk-abc" not in str(caught.value)
    assert desk.slept == []
    assert desk.ledger.settled == [(0.0, 0)]


@pytest.mark.parametrize("step", [Fails(500), Fails(503), Cuts(), Cuts(after=30), Fails(429)])
def test_errors_that_may_pass_are_tried_again_after_a_growing_pause(desk: Desk, step: Step) -> None:
    assert desk.ask(REVIEWER, step, step, GOOD)[0] == NO_FINDINGS
    assert len(desk.provider.requests) == 3
    assert 0.5 <= desk.slept[0] <= 1
    assert 1 <= desk.slept[1] <= 2


def test_the_providers_retry_after_is_honoured_up_to_a_limit(desk: Desk) -> None:
    limited = Fails(429, "slow down", (("Retry-After", "7"),))
    assert desk.ask(REVIEWER, limited, GOOD)[0] == NO_FINDINGS
    assert desk.slept == [7.0]
    too_long = Fails(429, "slow down", (("Retry-After", str(int(LONGEST_RETRY_AFTER_S) + 1)),))
    assert "asks to wait 601 s" in desk.refuses(REVIEWER, too_long, GOOD)


def test_retries_come_to_an_end(desk: Desk) -> None:
    told = desk.refuses(REVIEWER, *[Fails(500, "out of order")] * 5, retries=2)
    assert "no answer in 3 attempts (retries: 2)" in told
    assert "out of order" in told
    assert len(desk.provider.requests) == 3


def test_the_timeout_holds_even_against_a_server_that_drips_and_the_call_is_billed(desk: Desk) -> None:
    started = time.monotonic()
    assert "timeout: no whole answer within timeout_s = 0.5 s" in desk.refuses(
        REVIEWER, Drips(), retries=0, timeout_s=0.5
    )
    assert 0.4 < time.monotonic() - started < 20
    assert desk.ledger.settled == desk.ledger.reserved


def test_nobody_listening_is_said_and_costs_nothing(desk: Desk) -> None:
    assert "unreachable: " in desk.refuses(REVIEWER, api_base="http://127.0.0.1:9", retries=0)
    assert desk.ledger.settled == [(0.0, 0)]


def test_every_call_reserves_its_worst_case_first(desk: Desk) -> None:
    desk.ask(REVIEWER, GOOD, max_tokens=1000)
    prompt = sum(len(m["content"].encode()) for m in desk.provider.requests[0]["messages"])
    [(usd, tokens)] = desk.ledger.reserved
    assert prompt + 1000 < tokens < 2 * prompt + 1000 + PROVIDER_OVERHEAD_TOKENS
    assert usd == pytest.approx(((tokens - 1000) * 1.0 + 1000 * 2.0) / 1e6)
    assert desk.ledger.settled == [(pytest.approx(140 / 1e6), 120)]


@pytest.mark.parametrize("step", [Cuts(after=30), Says('{"findings": []}', usage=False)])
def test_a_call_whose_cost_is_unknown_is_billed_at_its_reservation(desk: Desk, step: Step) -> None:
    desk.ask(REVIEWER, step, GOOD)
    assert desk.ledger.settled[0] == desk.ledger.reserved[0]


def test_nothing_is_sent_beyond_the_budget(desk: Desk) -> None:
    desk.ledger.limit = 0.01
    with pytest.raises(UserError, match=r"budget\.usd"):
        desk.ask(REVIEWER, GOOD)
    assert desk.provider.requests == []


def test_a_model_of_unknown_price_is_refused_unless_the_settings_have_one(desk: Desk) -> None:
    unpriced = {"usd_per_million_prompt": None, "usd_per_million_completion": None}
    assert "no price is known for the model 'openai/stub'" in desk.refuses(REVIEWER, GOOD, **unpriced)
    assert desk.provider.requests == []
    assert desk.ask(REVIEWER, GOOD, **PRICE | dict.fromkeys(PRICE, 0.0))[1].usd == 0
    known = desk.ask(REVIEWER, GOOD, model="openai/gpt-4o-mini", **unpriced)[1]
    assert known.usd == pytest.approx(100 * 0.15e-6 + 20 * 0.6e-6)


def test_an_implementer_writes_edits_and_submits(desk: Desk) -> None:
    answer, usage = desk.ask(
        IMPLEMENTER,
        Says(calls=(write("kernels.py", TREE["kernels.py"]), write("cache.py", "CAPACITY = 1\n"))),
        Says(calls=(call("edit_file", path="kernels.py", old="x @ w", new="x @ w.T"),)),
        Says("Done:", calls=(call("submit", summary="plain", choices={"linear.layout": "tiles"}),)),
    )
    assert answer.files == {"kernels.py": "def linear(x, w):\n    return x @ w.T\n", "cache.py": "CAPACITY = 1\n"}
    assert answer.choices == {"linear.layout": "tiles", "BLOCK": 8}
    assert (answer.summary, usage.calls) == ("plain", 3)
    assistant, tool = desk.provider.requests[2]["messages"][-2:]
    assert assistant["tool_calls"][0]["function"]["name"] == "edit_file"
    assert (tool["role"], tool["tool_call_id"], tool["content"]) == ("tool", "call_0", "edited kernels.py")


def test_an_implementer_without_tools_answers_in_json_over_the_tree_it_was_given(desk: Desk) -> None:
    brief = IMPLEMENTER.model_copy(update={"files": FILES})
    plain = Says(json.dumps({"files": {"cache.py": "CAPACITY = 1\n"}, "summary": "a cache"}))
    assert desk.ask(brief, plain)[0].files == FILES | {"cache.py": "CAPACITY = 1\n"}


def test_a_gap_is_reported_with_the_tree_as_it_was(desk: Desk) -> None:
    gap = Says(calls=(write("kernels.py", "x = 1\n"), call("report_gap", contract="linear", why="no layout given")))
    answer, _ = desk.ask(IMPLEMENTER, gap)
    assert (answer.missing_contract, answer.summary, answer.files) == ("linear", "no layout given", {})


SUBMIT = ("submit", '{"summary": "done"}')


def call(name: str, **arguments: object) -> tuple[str, str]:
    return name, json.dumps(arguments)


def write(path: str, text: str) -> tuple[str, str]:
    return call("write_file", path=path, text=text)


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([write("../main.py", "x = 1\n")], "'../main.py' is none of the engine's files"),
        ([write("/etc/passwd", "x")], "is none of the engine's files"),
        ([write("kernels/../kernels.py", "x")], "is none of the engine's files"),
        ([("write_file", '{"path": "kernels.py", "text": "x')], "the JSON: Invalid JSON"),
        ([("write_file", '{"path": "kernels.py"}')], "text: Field required"),
        ([("run_tests", "{}")], "there are list_files, read_file, write_file, edit_file, submit, report_gap"),
        ([call("edit_file", path="cache.py", old="a", new="b")], "the tree has no 'cache.py'; it has kernels.py"),
        ([call("edit_file", path="kernels.py", old="x", new="y")], "`old` occurs 2 times"),
        ([SUBMIT], "no file differs from the tree that you were given"),
        ([write("cache.py", "def f(:\n"), SUBMIT], "cache.py doesn't parse: invalid syntax (cache.py, line 1)"),
        ([write("cache.py", "x = 1\0\n"), SUBMIT], "cache.py doesn't parse: source code"),
        ([write("no.py", "x"), write("cache.py", "x = 1\n"), SUBMIT], "an earlier call of the same reply was refused"),
        ([write("cache.py", "x = 1\n"), SUBMIT, write("no.py", "x")], "'no.py' is none of the engine's files"),
        (
            [write("cache.py", "x = 1\n"), call("submit", summary="s", choices={"linear.layout": "columns"})],
            "decision linear.layout is one of ['rows', 'tiles', 'panels'], not 'columns'",
        ),
        (
            [write("cache.py", "x = 1\n"), call("submit", summary="s", choices={"linear.layout": "panels"})],
            "decision linear.layout = 'panels' is open only if platform.cores >= 8",
        ),
        ([call("report_gap", contract="rope", why="")], "there is no contract 'rope'; there are 'linear'"),
    ],
)
def test_what_an_implementer_may_not_do_is_refused_and_told(
    desk: Desk, calls: list[tuple[str, str]], told: str
) -> None:
    brief = IMPLEMENTER.model_copy(update={"files": FILES})
    good = Says(calls=(write("cache.py", "CAPACITY = 1\n"), SUBMIT))
    answer, _ = desk.ask(brief, Says(calls=tuple(calls)), good)
    replies = [m["content"] for m in desk.provider.requests[1]["messages"] if m["role"] == "tool"]
    assert len(replies) == len(calls)
    assert any(told in reply for reply in replies), replies
    assert answer.files == FILES | {"cache.py": "CAPACITY = 1\n"}


def test_the_change_of_an_issue_is_not_negotiable(desk: Desk) -> None:
    brief = IMPLEMENTER.model_copy(update={"change": {"BLOCK": 16}})
    other = Says(calls=(write("cache.py", "x = 1\n"), call("submit", summary="s", choices={"BLOCK": 8})))
    good = Says(calls=(SUBMIT,))
    answer, _ = desk.ask(brief, other, good)
    assert "the issue asks for BLOCK = 16, not 8" in desk.provider.requests[1]["messages"][-1]["content"]
    assert answer.choices["BLOCK"] == 16


def test_work_that_never_ends_is_ended(desk: Desk) -> None:
    step = Says(calls=(write("cache.py", "x = 1\n"),))
    assert "no answer as implementer in 4 turns (max_turns)" in desk.refuses(IMPLEMENTER, *[step] * 9, max_turns=4)
    assert len(desk.provider.requests) == 4


EFFECT = {"change": {"linear.layout": "tiles"}, "effect": 0.123, "interval": [0.1, 0.15]}
"""What the consolidator's brief says was measured."""


@pytest.mark.parametrize(
    ("role", "answer", "told"),
    [
        ("orchestrator", {"dispatch": [1], "memory": ""}, "numbered 0 to 0"),
        ("orchestrator", {"dispatch": [0, 0], "memory": ""}, "twice"),
        ("orchestrator", {"dispatch": [], "memory": ""}, "say stop"),
        ("evaluator", {"hypotheses": [{"change": {"linear.layout": "columns"}}]}, "linear.layout is one of"),
        ("evaluator", {"hypotheses": [{"change": {"FAST": True}}]}, "there is no decision or parameter 'FAST'"),
        ("evaluator", {"hypotheses": [{"change": {"BLOCK": 16}}]}, "was tried already"),
        ("evaluator", {"hypotheses": [{"change": {}}] * 3}, "at most 2 are wanted"),
        ("analyst", {"cause": "implementation", "contract": "rope"}, "there is no contract 'rope'"),
        (
            "consolidator",
            {"experience": [{"effect": 0.5}]},
            "the effect 0.5 (interval None) of {} on speed, which nobody",
        ),
        (
            "consolidator",
            {"experience": [EFFECT | {"change": {"BLOCK": 16}}]},
            "of {'BLOCK': 16} on speed, which nobody",
        ),
        ("consolidator", {"experience": [EFFECT | {"metric": "ttft_ms"}]}, "on ttft_ms, which nobody"),
        (
            "consolidator",
            {"experience": [EFFECT | {"interval": [-0.1, 0.3], "signal": "confirmed"}]},
            "is confirmed, and its interval holds zero",
        ),
        ("consolidator", {"experience": [{"applies_to": "small models"}]}, "'small models' does not parse"),
        ("consolidator", {"experience": [{"applies_to": "model.colour == 'red'"}]}, "asks for model.colour"),
        ("consolidator", {"experience": [{"applies_to": "model.heads > 'x'"}]}, "can't be compared"),
        (
            "consolidator",
            {"experience": [{"applies_to": "-model.model_type == 1"}]},
            "a minus may stand before a number",
        ),
        (
            "consolidator",
            {"experience": [{"applies_to": "model.layers > 900"}]},
            "leaves this target out: model.layers",
        ),
        ("consolidator", {"experience": [{"applies_to": " "}]}, "names the class of targets"),
        ("consolidator", {"experience": [{"signal": "probable"}]}, "neither a measured effect nor a gate"),
        ("consolidator", {"experience": [{"fixed": "s1/rope"}]}, "there is no mended gate 's1/rope'"),
        ("consolidator", {"experience": [EFFECT]}, "there is no measured row 'i'"),
    ],
)
def test_no_role_speaks_of_what_its_brief_does_not_hold(
    desk: Desk, role: str, answer: dict[str, Any], told: str
) -> None:
    blank = {"title": "t", "expected_effect": 0.1, "acceptance": "a", "falsification": "f"}
    row = {"id": "i", "title": "t", "kind": "debugging", "applies_to": "", "signal": "tentative", "text": "t"}
    full = answer | {
        "hypotheses": [blank | h for h in answer.get("hypotheses", ())],
        "experience": [row | e for e in answer.get("experience", ())],
        "explanation": "e",
        "next_step": "n",
    }
    fields = {k: v for k, v in full.items() if k in BRIEF_ANSWER_FIELDS[role]}
    told_back = desk.refuses(BRIEFS[role], *[Says(json.dumps(fields))] * MOST_FAULTS)
    assert told in told_back


BRIEF_ANSWER_FIELDS = {
    "orchestrator": {"dispatch", "memory"},
    "evaluator": {"hypotheses"},
    "analyst": {"cause", "contract", "explanation", "next_step"},
    "consolidator": {"experience"},
}


def test_keys_come_from_the_environment_and_never_go_to_another_host(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-real-key-of-openai")
    monkeypatch.setenv("MY_SERVER_KEY", "the-key-of-my-server")
    desk.ask(REVIEWER, GOOD)
    assert desk.provider.keys == ["Bearer none"]
    desk.ask(REVIEWER, GOOD, api_key_env="MY_SERVER_KEY")
    assert desk.provider.keys == ["Bearer the-key-of-my-server"]
    assert "NO_SUCH_KEY (api_key_env) is not set" in desk.refuses(REVIEWER, GOOD, api_key_env="NO_SUCH_KEY")


def test_a_secret_of_the_environment_reaches_no_transcript_and_no_message(
    gateway: LitellmGateway, provider: StubProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'hunter2"quoted\\secret'
    monkeypatch.setenv("SOME_SERVICE_PASSWORD", secret)
    transcript = Transcript(tmp_path / "t.jsonl")
    desk = Desk(gateway, provider, transcript)
    brief = REVIEWER.model_copy(update={"files": {"kernels.py": f"# {secret}\n"}})
    desk.ask(brief, Says(f"I saw {secret} and sk-12345678abcdefgh"), GOOD)
    message = desk.refuses(brief, Fails(401, f"wrong key {secret}"))
    transcript.close()
    text = (tmp_path / "t.jsonl").read_text()
    for where in (text, message):
        assert "hunter2" not in where
        assert "[SOME_SERVICE_PASSWORD]" in where
    assert "sk-1234" not in text
    first, second = (r for r in read_transcript(tmp_path / "t.jsonl") if isinstance(r, ExchangeRecord))
    assert (first.turn, second.turn) == (0, 1)
    assert "neither a tool call nor a JSON object" in first.fault
    assert [m.role for m in (*first.sent, *second.sent)] == ["system", "user", "user"]
    assert second.reply.tool_calls[0].name == "answer"


def test_a_check_says_model_cost_latency_and_how_the_model_answers(desk: Desk) -> None:
    desk.provider.play(Says(calls=(("answer", '{"word": "ready", "sum": 42}'),)))
    check = check_author(desk.settings(), desk.gateway)
    assert (check.model, check.answer, check.prompt_tokens) == ("openai/stub", "by tool call", 100)
    assert check.usd == pytest.approx(140 / 1e6)
    assert 0 < check.seconds < 60
    desk.provider.play(Says('{"word": "ready", "sum": 41}'))
    assert check_author(desk.settings(), desk.gateway).answer == "as plain JSON, but says 19 + 23 = 41"
    desk.provider.play(Says("Ready when you are."))
    assert "it can't answer for a role" in check_author(desk.settings(), desk.gateway).answer
    desk.provider.play(Fails(500), Fails(500))
    with pytest.raises(AuthorError, match="no answer in 1 attempts"):
        check_author(desk.settings(), desk.gateway)


def test_the_words_of_init_are_read_into_the_draft(desk: Desk) -> None:
    draft = "model: {path: m}\nsearch: {rounds: 6}\n"
    desk.provider.play(Says("Here:\n```yaml\nmodel: {path: m}\nsearch: {rounds: 2}\n```\n"))
    text = complete_target("two rounds are enough", draft, desk.settings(), desk.gateway)
    assert text == "model: {path: m}\nsearch: {rounds: 2}\n"
    [request] = desk.provider.requests
    assert "two rounds are enough" in request["messages"][1]["content"]
    assert draft in request["messages"][1]["content"]
    desk.provider.play(Says("I would rather not."))
    with pytest.raises(AuthorError, match="without a fenced yaml block"):
        complete_target("two rounds", draft, desk.settings(), desk.gateway)


def test_calls_from_several_threads_each_get_their_own_answer(gateway: LitellmGateway, provider: StubProvider) -> None:
    from concurrent.futures import ThreadPoolExecutor

    provider.play(*[GOOD] * 8)
    settings = LitellmSettings.model_validate({"model": "openai/stub", "api_base": provider.api_base, **PRICE})
    with ThreadPoolExecutor(8) as pool:
        authors = [LitellmAuthor(settings, gateway, Unlimited()) for _ in range(8)]
        answers = list(pool.map(lambda author: author.answer(REVIEWER)[0], authors))
    assert answers == [NO_FINDINGS] * 8
    assert len(provider.requests) == 8


def test_an_error_of_a_call_survives_the_way_between_processes(gateway: LitellmGateway) -> None:
    request = CompletionRequest(
        model="nonsense/model", messages=(Message(role="user"),), temperature=0, max_tokens=1, timeout_s=5
    )
    with pytest.raises(CompletionError, match="bad_request") as caught:
        gateway.complete(request)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.kind, str(copy)) == ("bad_request", str(caught.value))


def test_prices_are_the_highest_tier_and_waits_are_read_from_seconds_and_dates() -> None:
    entry = {
        "input_cost_per_token": 1.0,
        "input_cost_per_token_above_200k_tokens": 2.0,
        "input_cost_per_token_batches": 9,
    }
    assert highest(entry, "input_cost_per_token") == 2.0
    assert highest({"input_cost_per_token_above_200k_tokens": 2.0}, "input_cost_per_token") is None
    assert highest({"input_cost_per_token": None}, "input_cost_per_token") is None
    assert retry_after({"retry-after": "1.5"}, 0) == 1.5
    assert retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60) == 40
    assert retry_after({"Retry-After": "soon"}, 0) is None
    assert retry_after({}, 0) is None
