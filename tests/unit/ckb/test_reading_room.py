"""Sources are read with a purpose, below the roots, and each reading is a row before its text is handed over."""

import ast
import hashlib
from importlib.metadata import version
from pathlib import Path

import pytest

from ckb.errors import UserError
from ckb.reading_room import ReadingRoom, readings

PURPOSE = "which norm precedes the rotation"
ROOT = Path(__file__).parents[3]


def room(folder: Path) -> ReadingRoom:
    package = folder / "pydantic"
    (package / "inner").mkdir(parents=True)
    (package / "inner/a.py").write_text("x = 1\n")
    (folder / "secret.py").write_text("y = 2\n")
    (package / "link.py").symlink_to(folder / "secret.py")
    (package / "linked").symlink_to(package / "inner")
    return ReadingRoom({"pydantic": package, "own": package / "inner"}, folder / "log.jsonl", "explorer")


def test_each_reading_is_logged_with_package_version_hash_purpose_role_and_time(tmp_path: Path) -> None:
    held = room(tmp_path)
    assert readings(tmp_path / "log.jsonl") == []
    assert held.read("pydantic/inner/a.py", f" {PURPOSE} ") == "x = 1\n"
    assert held.read("own/a.py", "how its cache is laid out") == "x = 1\n"
    first, second = readings(tmp_path / "log.jsonl")
    assert (first.package, first.version, first.path) == ("pydantic", version("pydantic"), "inner/a.py")
    assert (first.purpose, first.role) == (PURPOSE, "explorer")
    assert first.sha256 == second.sha256 == hashlib.sha256(b"x = 1\n").hexdigest()
    assert (second.package, second.version, second.path) == ("own", "", "a.py")
    assert first.at <= second.at


@pytest.mark.parametrize(
    ("path", "purpose", "message"),
    [
        ("pydantic/inner/a.py", "", "is read for ''"),
        ("pydantic/inner/a.py", "  just look ", "say in 12 characters"),
        ("other/a.py", PURPOSE, "in none of the packages that may be read here: pydantic, own"),
        ("/etc/passwd", PURPOSE, "in none of the packages"),
        ("", PURPOSE, "in none of the packages"),
        ("pydantic", PURPOSE, "to no file of it"),
        ("pydantic/../secret.py", PURPOSE, "leads out of pydantic"),
        ("pydantic/link.py", PURPOSE, "is a link, or no file"),
        ("pydantic/linked/a.py", PURPOSE, "is a link, or no file"),
        ("pydantic/inner", PURPOSE, "is a link, or no file"),
        ("pydantic/absent.py", PURPOSE, "is a link, or no file"),
    ],
)
def test_what_has_no_purpose_or_lies_elsewhere_is_refused_and_not_logged(
    tmp_path: Path, path: str, purpose: str, message: str
) -> None:
    held = room(tmp_path)
    with pytest.raises(UserError, match=message):
        held.read(path, purpose)
    assert readings(tmp_path / "log.jsonl") == []


def test_nothing_that_runs_with_sources_off_opens_a_reading_room() -> None:
    users = []
    for file in (f for p in ("swarm", "roles", "gpu_actors", "benchmarks", "ckb") for f in (ROOT / p).rglob("*.py")):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        users += [file for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "ckb.reading_room"]
    assert users == []
