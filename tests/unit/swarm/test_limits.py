"""Limits of a run and of an issue: what counts as spent, what is refused, and what a person may change meanwhile."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckb.errors import UserError
from roles.author import AuthorError, NoAnswer, Usage
from roles.authors.calls import Calls, Tally
from roles.completion import CompletionError, CompletionReply, CompletionRequest, Message, Price
from roles.settings import LitellmSettings
from swarm import events as e
from swarm.budget import BudgetExceeded, Ledger, used_of
from swarm.cli import main
from swarm.journal import Journal
from swarm.limits import Change, Limits, change
from swarm.spending import Purse, Spending
from swarm.spent import read_spent
from swarm.state import RunState
from swarm.target import Budget, IssueLimits
from tests.unit.swarm.rehearsal import prepare

PRICE = Price(prompt=1e-6, completion=4e-6)


class Provider:
    """A gateway whose own count of what it sold is what ours is held against. It answers late, cuts calls off, and has
    no room for a tenth of them."""

    def __init__(self, seed: int):
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self.tokens, self.usd, self.maybe = 0, 0.0, 0
        self.at_once, self.most_at_once = 0, 0

    def complete(self, request: CompletionRequest) -> CompletionReply:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            pause, fate = self._draw.uniform(0, 0.004), self._draw.random()
            prompt, completion = self._draw.randint(10, 200), self._draw.randint(1, request.max_tokens)
        time.sleep(pause)
        with self._lock:
            self.at_once -= 1
            if fate < 0.1:
                raise CompletionError("rate_limit", "too many")
            if fate < 0.2:
                self.maybe += 1
                raise CompletionError("timeout", "no answer in time")
            self.tokens += prompt + completion
            self.usd += prompt * PRICE.prompt + completion * PRICE.completion
        return CompletionReply(message=Message(role="assistant", content="x"), finish_reason="stop",
                               prompt_tokens=prompt, completion_tokens=completion, usd=None, seconds=pause)  # fmt: skip

    def price(self, model: str) -> Price:
        return PRICE


def test_with_eight_calls_in_flight_no_limit_is_passed_and_the_sums_are_the_provider_s_own(tmp_path: Path) -> None:
    ledger, limits = tmp_path / "spending.jsonl", Budget(usd=0.05, tokens=60_000)
    provider = Provider(seed=5)
    purse = Purse(provider, Limits(limits), ledger)
    settings = LitellmSettings(model="m", max_tokens=100, retries=8)
    refused: list[str] = []

    def work(number: int) -> None:
        calls = Calls(settings, purse, purse, sleep=lambda _: None)
        for turn in range(40):
            try:
                calls.call((Message(role="user", content=f"{number} {turn}"),), (), Tally())
            except BudgetExceeded as limit:
                refused.append(str(limit))
                return
            except AuthorError:  # it was cut off too often in a row
                continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert provider.most_at_once > 4
    assert len(refused) == 8, "all of them ran into the limit, and none went on"
    records = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    held: dict[str, tuple[float, float]] = {}
    for record in records:  # at every moment, in the order in which it was written down
        held[record.get("settled") or record["reserved"]] = record["usd"], record["tokens"]
        assert sum(usd for usd, _ in held.values()) <= limits.usd + 1e-12
        assert sum(tokens for _, tokens in held.values()) <= limits.tokens
    spent = read_spent(ledger)
    assert spent.estimated == 0
    worst = {r["reserved"]: r["usd"] for r in records if "reserved" in r}
    cut = [r for r in records if "settled" in r and r["usd"] == worst[r["settled"]] and r["usd"] > 0]
    assert len(cut) == provider.maybe, "one that was cut off may have been billed: it counts at its worst"
    assert spent.total["usd"] == pytest.approx(provider.usd + sum(r["usd"] for r in cut))
    assert spent.total["tokens"] == provider.tokens + sum(r["tokens"] for r in cut)
    for lines in (len(records) // 3, len(records) // 2):  # killed there: what was in flight is billed as estimated
        half = tmp_path / f"half{lines}.jsonl"
        half.write_text("".join(json.dumps(r) + "\n" for r in records[:lines]))
        after = read_spent(half)
        settled = {r["settled"] for r in records[:lines] if "settled" in r}
        assert after.estimated == len({r["reserved"] for r in records[:lines] if "reserved" in r} - settled)
        left = limits.usd - after.total["usd"]
        with pytest.raises(BudgetExceeded, match=r"budget\.usd"):
            Spending(Limits(limits), half).reserve(left + 1e-6, 0)


def test_an_issue_has_limits_of_its_own_and_the_others_go_on() -> None:
    own = IssueLimits(usd=0.5, tokens=100)
    spending = Spending(Limits(Budget(usd=10, tokens=1000, issue=own)))
    first = spending.reserve(0.3, 50, "r1-1")
    with pytest.raises(NoAnswer, match=r"budget\.issue\.usd: a call may need 0\.3, 0\.2 is left of 0\.5"):
        spending.reserve(0.3, 10, "r1-1")
    spending.settle(first, 0.1, 40)
    with pytest.raises(NoAnswer, match=r"budget\.issue\.tokens: a call may need 61, 60 is left of 100"):
        spending.reserve(0.3, 61, "r1-1")
    spending.settle(spending.reserve(0.4, 60, "r1-1"), 0.4, 60)
    spending.reserve(0.5, 100, "r1-2")
    spending.reserve(5.0, 500)


def test_what_an_issue_has_used_is_its_own_calls_verdicts_and_time() -> None:
    issue = e.Issue(id="s1", stage="execution", title="t", base="b")
    tree = e.CandidateSubmitted(candidate="s1-c0", issue="s1", attempt=1, branch="b", commit="c", tree="t", author="a",
                                choices={}, summary="s", lines=1, at=60, epoch=1)  # fmt: skip
    usage = Usage(author="litellm", usd=0.25, prompt_tokens=10, completion_tokens=5)
    state = RunState()
    for event in (
        e.RunStarted(run="r", target="t", host="h", version="0", at=0, epoch=1),
        e.IssueOpened(issue=issue, at=60, epoch=1),
        tree,
        e.RoleCalled(role="implementer", usage=usage, issue="s1", at=70, epoch=1),
        e.RoleCalled(role="evaluator", usage=usage, at=80, epoch=1),
        e.DeviceUsed(what="verify", seconds=7, candidate="s1-c0", at=120, epoch=1),
        e.DeviceUsed(what="benchmark", seconds=30, at=120, epoch=1),
        e.RoleCalled(role="reviewer", usage=usage, issue="s1", at=1000, epoch=2),
    ):
        state.apply(event)
    found = state.used_by("s1", now=1030)
    assert found == {"usd": 0.5, "tokens": 30.0, "minutes": (60 + 30) / 60, "device_seconds": 7.0}, "no driver between"
    limits = Limits(Budget(issue=IssueLimits(device_seconds=7)))
    assert Ledger(limits, state, lambda: 1030.0).issue_reached("s1") == "budget.issue.device_seconds: 7 of 7 used by s1"
    assert Ledger(Limits(Budget()), state, lambda: 1030.0).issue_reached("s1") is None


def test_what_nobody_told_the_price_of_counts_as_it_was_set_aside(tmp_path: Path) -> None:
    """The journal's null is not nothing: a command that doesn't tell its cost is held to be its most."""
    ledger = tmp_path / "spending.jsonl"
    spending = Spending(Limits(Budget(usd=1)), ledger)
    spending.settle(spending.reserve(0.75, 0), 0.75, 0)
    spending.reserve(0.2, 0)  # in flight
    state = RunState(roles=[e.RoleCalled(role="reviewer", usage=Usage(author="cli", usd=None))])
    assert used_of(state, ledger)["usd"] == pytest.approx(0.95)
    ledger_of_run = Ledger(Limits(Budget(usd=0.9)), state, lambda: 0.0, ledger)
    with pytest.raises(BudgetExceeded, match=r"budget\.usd: 0\.95 of 0\.9 used"):
        ledger_of_run.check()


def test_a_changed_limit_holds_at_once_is_told_once_and_never_lies_below_what_is_used(tmp_path: Path) -> None:
    file, told = tmp_path / "budget.json", []
    limits, state = Limits(Budget(usd=1, minutes=10), file), RunState()
    ledger = Ledger(limits, state, lambda: 0.0, None, told.append)
    ledger.check()
    assert told == []
    spending = Spending(limits)
    with pytest.raises(BudgetExceeded, match=r"a call may need 2, and 1 is left"):
        spending.reserve(2.0, 0)
    change(file, Change(usd=3), {"usd": 0.5})
    spending.reserve(2.0, 0)
    change(file, Change(minutes=90), {"minutes": 4.0})
    ledger.check()
    ledger.check()
    assert told == [{"usd": 3.0, "tokens": 0.0, "minutes": 90.0, "device_seconds": 1800.0}]
    with pytest.raises(UserError, match=r"budget\.usd can't be 0\.4: 0\.5 is used already"):
        change(file, Change(usd=0.4, minutes=5), {"usd": 0.5, "minutes": 4.0})
    assert (limits.now.usd, limits.now.minutes) == (3.0, 90.0), "nothing of it was taken"
    again = Ledger(Limits(Budget(usd=1, minutes=10), file), RunState(budget=e.BudgetChanged(**told[0])), lambda: 0.0)
    assert again.limits.usd == 3.0, "the next driver knows it"
    file.write_text('{"usd": "all of it"}')
    with pytest.raises(UserError, match=r"budget\.json holds no limits: usd: "):
        Ledger(Limits(Budget(), file), RunState(), lambda: 0.0).check()


def test_the_command_shows_what_is_used_and_refuses_what_it_can_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    files = prepare(tmp_path, usd=1.0)
    Journal(files.root, clock=lambda: 0.0).append(e.DeviceUsed(what="verify", seconds=500.0))
    run = str(files.root)
    assert main(["budget", run, "--usd", "4", "--device-seconds", "900"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["usd"] == ["0", "4", "3.2"]
    assert lines["device_seconds"] == ["500", "900", "720"]
    assert files.limits_now().usd == 4.0
    for arguments, said in (
        (("--device-seconds", "499"), "budget.device_seconds can't be 499: 500 is used already"),
        (("--usd", "-1"), "--usd -1.0: Input should be greater than or equal to 0"),
        (("--minutes", "inf"), "--minutes inf: Input should be a finite number"),
    ):
        assert main(["budget", run, *arguments]) == 2
        assert said in capsys.readouterr().err
    assert files.limits_now().device_seconds == 900.0
