"""What a role worker hands to its author, without Ray: the plain class."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from ray.exceptions import RayActorError

from ckb.build import ensure_store
from ckb.records import Choice
from ckb.schemas import Experience
from roles.author import NoAnswer
from roles.briefs import ImplementerBrief, ReviewerAnswer
from roles.settings import CliSettings, ComposerSettings, LitellmSettings
from roles.tools.public_tests import Tried
from roles.transcript import ExchangeRecord, read_transcript
from swarm.budget import BudgetExceeded
from swarm.crew import RoleWorker, once_more
from swarm.limits import Limits
from swarm.spending import Purse
from swarm.spent import read_spent
from swarm.target import Budget
from tests.unit.roles.agents import program
from tests.unit.roles.example_briefs import IMPLEMENTER, REVIEWER
from tests.unit.roles.scripted_gateway import ANSWER, Script, query

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # transcripts end with their process


def test_a_model_looks_up_the_version_that_the_run_is_pinned_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    store = ensure_store(tmp_path / "store")
    row = Experience(id="zebra", title="A zebra", kind="debugging", signal="confirmed", text="Zebra.")
    store.append({"experience": [row]}, message="learned meanwhile", by="another run")
    for version, found in ((1, "Nothing verified"), (2, "`zebra` of experience")):
        script = Script(query(words="zebra"), ANSWER)
        folder = tmp_path / f"transcripts{version}"
        settings = LitellmSettings(model="m", max_tokens=100)
        worker = RoleWorker(settings, str(folder), Purse(script, Limits(Budget(tokens=10**9))), version)
        worker.answer(REVIEWER)
        assert script.told[0].startswith(f"Knowledge base version {version}, ")
        assert found in script.told[0]
        exchanges = [r for r in read_transcript(folder) if isinstance(r, ExchangeRecord)]
        assert exchanges[1].sent[0].content == script.told[0], "what was looked up is on record"


class Found:
    """Public tests (roles.tools.public_tests.PublicTests) that all pass."""

    def run(
        self, brief: ImplementerBrief, files: Mapping[str, str], choices: Mapping[str, Choice], number: int
    ) -> Tried:
        return Tried(passed=("rope",), failures=(), device_seconds=1.5)


def test_a_model_runs_its_stages_tests_only_where_its_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    ensure_store(tmp_path / "store")
    work = (("write_file", {"path": "cache.py", "text": "x = 1\n"}), ("run_tests", {}))
    for allowed in (0, 1):
        script = Script(work, (("submit", {"summary": "s"}),))
        settings = LitellmSettings(model="m", max_tokens=100, test_runs=allowed)
        worker = RoleWorker(
            settings, str(tmp_path / f"t{allowed}"), Purse(script, Limits(Budget(tokens=10**9))), 1, Found()
        )
        _, usage = worker.answer(IMPLEMENTER)
        assert usage.device_seconds == (1.5 if allowed else 0.0)
        assert ("1 test(s) passed: rope" in script.told) == bool(allowed)


def test_a_command_answers_within_the_runs_budget_where_no_model_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    command = f"{sys.executable} {program(tmp_path, 'reviews')} {{prompt_file}}"
    settings = CliSettings(command=command, most_usd=0.75)
    ledger = tmp_path / "spending.jsonl"
    worker = RoleWorker(settings, str(tmp_path / "t"), Purse(None, Limits(Budget(usd=1)), ledger), 1, sandbox="none")
    answer, usage = worker.answer(REVIEWER)
    assert (answer, usage.usd) == (ReviewerAnswer(), None)
    assert read_spent(ledger).total == {"usd": 0.75, "tokens": 0.0}, "what it doesn't tell is held to be its most"
    with pytest.raises(BudgetExceeded, match=r"budget\.usd: a call may need 0\.75, and 0\.25 is left"):
        worker.answer(REVIEWER)


def test_the_composer_needs_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    RoleWorker(ComposerSettings(), str(tmp_path / "t"), None, 1).answer(REVIEWER)
    assert not (tmp_path / "store").exists()


def killed() -> str:
    raise RayActorError


def test_an_authors_process_that_ends_is_replaced_once_and_then_costs_its_attempt_alone() -> None:
    assert once_more(lambda: "first", killed) == "first"
    assert once_more(killed, lambda: "second") == "second"
    with pytest.raises(NoAnswer, match=r"ended twice \(.*Actor.*Error: killed"):
        once_more(killed, killed)
