"""Command lines as authors: the folder, what is read of it, and every way in which a command can be of no use."""

import ast
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ckb.errors import UserError
from roles import briefs as b
from roles.author import Answer, AnyBrief, AuthorError, NoAnswer, Usage
from roles.authors.by_hand import check_author
from roles.authors.cli import CliAuthor
from roles.authors.cli.files import as_files
from roles.authors.cli.presets import PRESETS, argv_of
from roles.authors.cli.told import Told, read_output
from roles.authors.factory import make_author
from roles.budget import Unlimited
from roles.settings import CliSettings
from roles.transcript import ExchangeRecord, Transcript, read_transcript
from swarm.shell import ConfinedShell
from tests.unit.roles.agents import program
from tests.unit.roles.example_briefs import BRIEFS, FILES, IMPLEMENTER, REVIEWER

WORKING = IMPLEMENTER.model_copy(update={"files": FILES})
SHELL = ConfinedShell("none")
"""What the folder becomes does not depend on the walls; tests/unit/swarm/test_shell.py is about those."""


class Ledger:
    """A budget that remembers."""

    def __init__(self) -> None:
        self.reserved: list[tuple[float, int]] = []
        self.settled: list[tuple[float, int]] = []

    def reserve(self, usd: float, tokens: int) -> str:
        self.reserved.append((usd, tokens))
        return ""

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        self.settled.append((usd, tokens))


def settings(folder: Path, name: str, **more: object) -> CliSettings:
    command = f"{sys.executable} {program(folder, name)} {{prompt_file}} {folder}"
    return CliSettings.model_validate({"command": command, "most_usd": 0.5, "most_tokens": 1000, **more})


def ask(
    folder: Path,
    name: str,
    brief: AnyBrief = WORKING,
    ledger: Ledger | None = None,
    transcript: Transcript | None = None,
    **more: object,
) -> tuple[Answer, Usage]:
    return CliAuthor(settings(folder, name, **more), SHELL, ledger or Ledger(), transcript).answer(brief)


def refuses(folder: Path, name: str, brief: AnyBrief = WORKING, **more: object) -> NoAnswer:
    with pytest.raises(NoAnswer) as caught:
        ask(folder, name, brief, **more)
    return caught.value


def test_a_command_that_works_leaves_a_tree_with_what_it_says_of_it(tmp_path: Path) -> None:
    ledger = Ledger()
    answer, usage = ask(tmp_path, "works", ledger=ledger)
    assert isinstance(answer, b.ImplementerAnswer)
    assert answer.files == FILES | {"cache.py": "CAPACITY = 1\n"}
    assert (answer.summary, answer.choices) == ("a cache", {"linear.layout": "rows", "BLOCK": 16})
    assert (usage.author, usage.calls, usage.outside) == ("cli", 1, ())
    assert (usage.prompt_tokens, usage.completion_tokens, usage.usd) == (100, 7, 0.25)
    assert usage.isolation.startswith("sandbox: none")
    assert (ledger.reserved, ledger.settled) == ([(0.5, 1000)], [(0.25, 107)])


def test_a_command_that_tells_nothing_of_its_cost_is_unknown_and_billed_at_its_most(tmp_path: Path) -> None:
    ledger = Ledger()
    _, usage = ask(tmp_path, "silent", ledger=ledger)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.usd) == (None, None, None)
    assert ledger.settled == [(0.5, 1000)]


def test_success_without_a_change_is_no_answer(tmp_path: Path) -> None:
    failed = refuses(tmp_path, "claims")
    assert "left no answer as implementer in 2 run(s) (attempts: 2), last: no file differs" in str(failed)
    assert failed.usage
    assert (failed.usage.calls, failed.usage.usd) == (2, 0.5), "both runs are paid"


def test_a_further_run_is_told_what_was_wrong_and_finds_its_work_as_it_left_it(tmp_path: Path) -> None:
    answer, usage = ask(tmp_path, "learns")
    assert isinstance(answer, b.ImplementerAnswer)
    assert usage.calls == 2
    assert answer.summary == "its author gave no summary"


def test_what_was_done_outside_of_the_write_scope_is_put_back_and_recorded(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    answer, usage = ask(tmp_path, "outside", transcript=transcript)
    transcript.close()
    assert isinstance(answer, b.ImplementerAnswer)
    assert set(answer.files) == {"kernels.py", "cache.py"}
    outside = ("BRIEF.md", "contracts/linear.md", "engine/main.py", "notes", "notes/n.txt")
    assert usage.outside == outside
    [record] = (r for r in read_transcript(tmp_path / "t.jsonl") if isinstance(r, ExchangeRecord))
    assert record.outside == outside
    assert record.sent[0].content == as_files(WORKING)["BRIEF.md"]


def test_a_reviewers_command_may_write_its_answer_and_nothing_else(tmp_path: Path) -> None:
    assert ask(tmp_path, "reviews", REVIEWER)[0] == b.ReviewerAnswer()
    failed = refuses(tmp_path, "outside", REVIEWER, attempts=1)
    assert failed.usage
    assert "engine/cache.py" in failed.usage.outside


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    answer, usage = ask(tmp_path, "link")
    assert isinstance(answer, b.ImplementerAnswer)
    assert set(answer.files) == {"kernels.py", "cache.py"}
    assert usage.outside == ("engine/model.py",)


def test_rights_that_were_taken_away_are_taken_back(tmp_path: Path) -> None:
    assert ask(tmp_path, "locks")[1].outside == ()


def test_a_folder_that_cannot_be_looked_through_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    failed = refuses(tmp_path, "litters")
    assert "the folder holds more than 10,000 files" in str(failed)
    assert failed.usage
    assert failed.usage.calls == 1
    assert (tmp_path / "victim").read_text() == "mine", "nothing is written through a link that it left there"


def test_a_gap_is_reported_with_the_tree_as_it_was(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, "gap")
    assert isinstance(answer, b.ImplementerAnswer)
    assert (answer.missing_contract, answer.summary, answer.files) == ("linear", "no layout", FILES)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fails", "failed with exit status 3; its last words: no credit left"),
        ("terminal", "EOFError"),
        ("tty", "No such device or address: '/dev/tty'"),
        ("admits", "says that it failed: context too long"),
        ("floods", "was ended: it wrote more than 16 MiB to stdout"),
    ],
)
def test_a_command_that_fails_or_wants_a_terminal_is_not_run_again(tmp_path: Path, name: str, told: str) -> None:
    failed = refuses(tmp_path, name)
    assert told in str(failed)
    assert failed.usage
    assert failed.usage.calls == 1


def test_a_command_that_never_ends_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    started = time.monotonic()
    failed = refuses(tmp_path, "endless", timeout_s=4)
    assert "was ended: it ran longer than its deadline of 4 s; its last words: thinking" in str(failed)
    assert time.monotonic() - started < 30
    assert running(tmp_path) == [], "also what left its session"


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, "orphans")
    assert isinstance(answer, b.ImplementerAnswer)
    assert running(tmp_path) == [], "also what has lost its parent"


def running(mark: Path) -> list[bytes]:
    """The command lines of all processes that name a folder; other runs of the tests have other folders."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            found += [(place / "cmdline").read_bytes()] if place.name.isdigit() else []
    return [line for line in found if str(mark).encode() in line]


def test_an_answer_too_large_for_an_engine_is_refused(tmp_path: Path) -> None:
    assert "engine/cache.py has 2,000,000 bytes, at most 1,000,000 are taken" in str(refuses(tmp_path, "huge"))


def test_the_environment_holds_what_is_named_and_nothing_else_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key-of-somebody")
    monkeypatch.setenv("AGENT_LOGIN", "login-1234")
    answer, _ = ask(tmp_path, "environment", environment=["AGENT_LOGIN"])
    assert isinstance(answer, b.ImplementerAnswer)
    names = set(ast.literal_eval(answer.files["cache.py"]))
    assert names - {"LC_CTYPE"} == {"PATH", "LANG", "TERM", "CI", "HOME", "TMPDIR", "AGENT_LOGIN"}
    monkeypatch.delenv("AGENT_LOGIN")
    with pytest.raises(AuthorError, match=r"the environment variable AGENT_LOGIN .* is not set"):
        ask(tmp_path, "environment", environment=["AGENT_LOGIN"])


def test_a_secret_that_the_command_was_given_reaches_no_tree_no_transcript_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_LOGIN", "hunter2-hunter2")
    transcript = Transcript(tmp_path / "t.jsonl")
    failed = refuses(tmp_path, "leaks", transcript=transcript, environment=["AGENT_LOGIN"])
    transcript.close()
    assert "cache.py holds the value of the environment variable AGENT_LOGIN" in str(failed)
    text = (tmp_path / "t.jsonl").read_text()
    assert "I was given [AGENT_LOGIN]" in text
    assert "hunter2" not in text + str(failed)


def test_a_command_that_is_not_there_ends_the_work_and_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    author = CliAuthor(CliSettings(command="no-such-agent {prompt_file}", most_usd=1), SHELL, ledger)
    with pytest.raises(UserError, match="'no-such-agent' is not there") as caught:
        author.answer(WORKING)
    assert not isinstance(caught.value, NoAnswer)
    assert ledger.settled == [(0.0, 0)]


def test_a_check_runs_the_command_once(tmp_path: Path) -> None:
    good = check_author(settings(tmp_path, "checks"), shell=SHELL)
    assert (good.author, good.usd) == ("cli", None)
    assert good.answer.startswith("by file; sandbox: none")
    idle = check_author(settings(tmp_path, "claims"), shell=SHELL)
    assert idle.answer.startswith("no ANSWER.json: it can't answer for a role")
    assert idle.usd == 0.25
    with pytest.raises(AuthorError, match="exit status 3"):
        check_author(settings(tmp_path, "fails"), shell=SHELL)
    with pytest.raises(AuthorError, match="needs a shell"):
        make_author(settings(tmp_path, "checks"), gateway=None, budget=Unlimited())


@pytest.mark.parametrize("role", BRIEFS)
def test_every_role_can_be_asked_in_a_folder(role: str) -> None:
    files = as_files(BRIEFS[role])
    assert "ANSWER.json" in files["BRIEF.md"]
    assert "Call the tool" not in files["BRIEF.md"]
    assert "Tools:" not in files["BRIEF.md"]
    contracts = getattr(BRIEFS[role], "contracts", ())
    assert {f"contracts/{c.id}.md" for c in contracts} <= set(files)
    assert {f"engine/{name}" for name in getattr(BRIEFS[role], "files", ())} <= set(files)


def test_the_files_of_an_implementer_hold_its_knowledge_and_its_profile() -> None:
    files = as_files(WORKING.model_copy(update={"shares": {"linear": 1.0}, "step_ms": 2.0}))
    assert files["contracts/linear.md"].startswith("### Contract `linear`: Matrix times weight")
    assert "return x @ w.T" in files["fragments/linear-torch.md"]
    assert '"step_ms": 2.0' in files["profile.json"]
    assert "profile.json" in files["BRIEF.md"]
    assert "profile.json" not in as_files(WORKING)["BRIEF.md"]


def test_a_preset_and_a_template_become_words_and_no_shell_reads_them() -> None:
    place = Path("/tmp/a folder; rm")
    for preset in PRESETS:
        words = argv_of(CliSettings(preset=preset, model="m", most_usd=0), place, place / "BRIEF.md")
        assert words[0] == preset
        assert words[-2:] == ("--model", "m")
        assert any(str(place / "BRIEF.md") in word for word in words)
        assert not any("{" in word for word in words)
        assert "--model" not in argv_of(CliSettings(preset=preset, most_usd=0), place, place / "BRIEF.md")
    free = CliSettings(command="agent --in {folder} 'do {prompt_file}'", most_usd=0)
    assert argv_of(free, place, place / "B") == ("agent", "--in", "/tmp/a folder; rm", "do /tmp/a folder; rm/B")
    with pytest.raises(UserError, match="is no command line"):
        argv_of(CliSettings(command="agent '{prompt_file}", most_usd=0), place, place)


TURN = '{"type": "turn.completed", "usage": {"input_tokens": 5, "cached_input_tokens": 3, "output_tokens": 2}}'
STEP = (
    '{"type": "step_finish", "part": {"cost": 0.01, "tokens": '
    '{"input": 4, "output": 1, "reasoning": 2, "cache": {"read": 6, "write": 0}}}}'
)
GEMINI = (
    '{"response": "ok", "stats": {"models": {"a": {"tokens": {"prompt": 9, "candidates": 1, "thoughts": 2}}, '
    '"b": {"tokens": {"prompt": 1, "candidates": 1}}}}}'
)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (f"working\n{TURN}\n{TURN}\nbye", Told(10, 4, None)),
        (f"{STEP}\n{STEP}", Told(20, 6, 0.02)),
        (GEMINI, Told(10, 4, None)),
        ("", Told()),
        ("Done!", Told()),
        ('{"type": "result", "usage": {"input_tokens": -1, "output_tokens": true}, "total_cost_usd": "free"}', Told()),
        ('{"type": "result", "usage": [1], "total_cost_usd": 1e400}', Told()),
        ('{"type": "turn.failed", "error": {"message": "401"}}', Told(failure="401")),
        ('{"stats": {}, "error": {"message": "quota"}}', Told(failure="quota")),
        ('{"stats": {"models": {"a": 3}}}', Told()),
        ("{" * 100_000, Told()),
    ],
)
def test_usage_is_what_the_output_tells_and_unknown_otherwise(output: str, told: Told) -> None:
    assert read_output(output) == told
