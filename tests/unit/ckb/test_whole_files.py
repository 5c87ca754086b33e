"""Files that are replaced whole."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckb.whole_files import replace_text, replacing


def test_threads_that_replace_one_file_at_once_all_succeed_and_leave_one_of_theirs(tmp_path: Path) -> None:
    path, texts = tmp_path / "now.txt", [f"{number}\n" * 1000 for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: replace_text(path, text), texts))
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_one_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    replace_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as draft:  # noqa: PT012 - the draft is half written
        draft.write_text("ne")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
