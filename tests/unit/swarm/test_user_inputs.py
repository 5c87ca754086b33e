"""What the user brings along: its files, and the trial of its commands on the reference."""

from pathlib import Path

import pytest

from ckb.errors import UserError
from ckb.hashing import sha256_file
from swarm import user_inputs
from swarm.target import Target, User, parse_target
from swarm.user_inputs import UserFiles, absolute_command, check_printed, try_commands, user_files
from tests.unit.gpu_actors import tiny


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    (tmp_path / "check.py").write_text("print('ok')\n")
    (tmp_path / "data.json").write_text("{}")
    return tmp_path


def test_a_commands_own_files_are_hashed_and_its_options_are_not(home: Path) -> None:
    found = user_files(User(checker="python check.py --data data.json --level 3", reference="check.py"))
    assert found.checker == {str(home / n): sha256_file(home / n) for n in ("check.py", "data.json")}
    assert found.reference == {str(home / "check.py"): sha256_file(home / "check.py")}
    assert found.benchmark == {}
    assert user_files(User()) == UserFiles()


def test_a_script_may_be_the_program_itself_if_it_is_executable(home: Path) -> None:
    with pytest.raises(UserError, match=r"user.checker: .*check.py is not executable"):
        user_files(User(checker="check.py"))
    (home / "check.py").chmod(0o755)
    assert list(user_files(User(checker="check.py")).checker) == [str(home / "check.py")]


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (User(checker="python missing.py"), r"user.checker: .*missing.py is not there"),
        (
            User(benchmark="no-such-program data.json"),
            r"user.benchmark: no-such-program is neither a file .* nor a command",
        ),
        (User(checker="python 'check.py"), r"user.checker: .* is no command line"),
        (User(reference="absent.py", checker="python check.py"), r"user.reference: .*absent.py is not there"),
        (User(reference=".", checker="python check.py"), r"user.reference: .* is no file"),
        (User(reference="check.py"), r"user.reference: it is what user.checker and user.benchmark are tried on"),
    ],
)
def test_what_is_missing_is_named_with_its_field(user: User, message: str) -> None:
    with pytest.raises(UserError, match=message):
        user_files(user)


def target(**sections: object) -> Target:
    return parse_target({"model": {"path": "tiny"}, **sections}, "t.yaml")


def tried(home: Path, **sections: object) -> dict[str, float]:
    return try_commands(target(**sections), tiny.facts(), home / "cache", lambda line: None)


def script(home: Path, text: str) -> str:
    (home / "script.py").write_text(text)
    return "python script.py"


def test_a_commands_files_become_absolute_and_its_other_words_stay(home: Path) -> None:
    found = absolute_command("python check.py --level 3 data.json")
    assert found == f"python {home / 'check.py'} --level 3 {home / 'data.json'}"


PRINTS = """
print("talk")
print('{"metric": "speed", "value": 3}')
"""


def test_a_benchmark_that_prints_the_objective_passes_the_trial(home: Path) -> None:
    objective = {"metric": "user.speed", "direction": "max"}
    user = {"benchmark": script(home, PRINTS)}
    assert tried(home, user=user, objective=objective) == {"speed": 3.0}
    assert not list((home / "cache").glob("reference-*")), "the reference's folder stays behind"


FAILING = [
    ("checker", "raise ValueError('no such tensor')", r"user.checker can't be used: .* FAIL: .*no such tensor"),
    ("benchmark", "print('all is well')", r"user.benchmark can't be used: .* no line of the form"),
    ("benchmark", "import time; time.sleep(60)", r"user.benchmark can't be used: .* TIMEOUT: .* did not end within"),
]


@pytest.mark.parametrize(("command", "text", "message"), FAILING)
def test_a_command_that_can_judge_nothing_ends_the_run_before_it_began(
    command: str, text: str, message: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in text:
        monkeypatch.setattr(user_inputs, "TRIAL_S", 0.5)
    with pytest.raises(UserError, match=message):
        tried(home, user={command: script(home, text)})


def test_an_objective_that_the_benchmark_does_not_print_is_named() -> None:
    check_printed("user.speed", {"speed": 3.0})
    check_printed("tpot_ms", {})
    with pytest.raises(UserError, match=r"user.power is not among .* prints: user.speed, user.size"):
        check_printed("user.power", {"speed": 3.0, "size": 1.0})


TOKENS_AND_ARRAYS = """
import importlib, json, sys
from pathlib import Path

folder, checkpoint = Path(sys.argv[-2]), sys.argv[-1]
sys.path.insert(0, str(folder.parent))
engine = importlib.import_module(f"{folder.name}.engine").Engine.load(checkpoint)
prompt = engine.tokenizer.encode("hello there")
tokens = engine.generate([prompt], 4, ignore_eos=True)[0]
assert len(tokens) == 4, tokens
logits = engine.logits(prompt)
assert logits.shape[0] == len(prompt)
assert int(logits[-1].argmax()) == tokens[0]
print(json.dumps({"metric": "vocabulary", "value": logits.shape[1]}))
"""


def test_a_token_checker_and_an_array_checker_can_judge_the_reference(home: Path) -> None:
    tiny.write_checkpoint(home / "tiny", "llama")
    found = tried(home, user={"benchmark": script(home, TOKENS_AND_ARRAYS)})
    assert found == {"vocabulary": float(tiny.model_facts("llama").vocab)}
