"""Where the knowledge base is."""

from pathlib import Path

import pytest

from swarm.doctor import knowledge_base
from swarm.paths import store_dir


def test_the_store_is_below_home_unless_the_environment_names_a_folder_or_a_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    for value, place in (
        (None, tmp_path / "store"),
        ("", tmp_path / "store"),
        ("shared/knowledge", tmp_path / "shared/knowledge"),
        ("/mnt/knowledge", Path("/mnt/knowledge")),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
    ):
        if value is None:
            monkeypatch.delenv("ENGINESMITH_STORE", raising=False)
        else:
            monkeypatch.setenv("ENGINESMITH_STORE", value)
        assert store_dir() == place


def test_doctor_says_what_is_wrong_with_the_store(tmp_path: Path) -> None:
    (first,) = knowledge_base(tmp_path)
    assert (first.state, first.found) == ("fine", "the seed; the first run builds the store from it")
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/0000000000.json").write_text('{"format": 9, "version": 0}')
    (newer,) = knowledge_base(tmp_path)
    assert newer.state == "missing"
    assert "written in format 9" in newer.consequence
    (nowhere,) = knowledge_base("nonsense://bucket/prefix")
    assert (nowhere.state, "ENGINESMITH_STORE" in nowhere.consequence) == ("missing", True)
