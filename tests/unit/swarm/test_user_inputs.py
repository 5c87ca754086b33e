"""The files behind the `user:` block."""

import sys
from pathlib import Path

import pytest

from ckb.errors import UserError
from ckb.hashing import sha256_file
from swarm.target import User
from swarm.user_inputs import check_unchanged, user_files


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    (tmp_path / "check.py").write_text("print('ok')\n")
    (tmp_path / "data.json").write_text("{}")
    return tmp_path


def test_a_commands_own_files_are_hashed_and_its_options_are_not(home: Path) -> None:
    user = User(checker="python check.py --data data.json --level 3", reference="check.py")
    assert user_files(user) == {str(home / n): sha256_file(home / n) for n in ("check.py", "data.json")}
    assert user_files(User()) == {}
    assert user_files(User(benchmark=f"{sys.executable} check.py")) == {
        str(home / "check.py"): sha256_file(home / "check.py"),
        sys.executable: sha256_file(Path(sys.executable)),
    }


def test_a_script_may_be_the_program_itself_if_it_is_executable(home: Path) -> None:
    with pytest.raises(UserError, match=r"user.checker: .*check.py is not executable"):
        user_files(User(checker="check.py"))
    (home / "check.py").chmod(0o755)
    assert list(user_files(User(checker="check.py"))) == [str(home / "check.py")]


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (User(checker="python missing.py"), r"user.checker: .*missing.py is not there"),
        (
            User(benchmark="no-such-program data.json"),
            r"user.benchmark: no-such-program is neither a file .* nor a command",
        ),
        (User(checker="python 'check.py"), r"user.checker: .* is no command line"),
        (User(reference="absent.py"), r"user.reference: .*absent.py is not there"),
        (User(reference="."), r"user.reference: .* is no file"),
    ],
)
def test_what_is_missing_is_named_with_its_field(user: User, message: str) -> None:
    with pytest.raises(UserError, match=message):
        user_files(user)


def test_a_file_that_changes_after_the_plan_was_frozen_is_noticed(home: Path) -> None:
    hashes = user_files(User(reference="check.py"))
    check_unchanged(hashes)
    (home / "check.py").write_text("print('other')\n")
    with pytest.raises(UserError, match="was changed during the run"):
        check_unchanged(hashes)
    (home / "check.py").unlink()
    with pytest.raises(UserError, match="nothing now"):
        check_unchanged(hashes)
