"""Copies of a verifier that was ended by a signal are removed by the next one, and nobody else's are."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpu_actors import scratch

HOLDS = """
import sys, time
from gpu_actors import scratch
with scratch.folder() as folder:
    (folder / "weights").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_process_that_was_killed_goes_with_the_next_one_and_a_living_one_s_stays(place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place)}
    first, second = (
        subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    )
    try:
        assert first.stdout
        assert second.stdout
        killed, living = Path(first.stdout.readline().strip()), Path(second.stdout.readline().strip())
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert killed.exists()
        with scratch.folder() as own:
            assert own.exists()
            assert not killed.exists()
            assert (living / "weights").exists()
        assert not own.exists()
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_a_folder_of_another_space_of_process_numbers_is_left_alone(place: Path) -> None:
    other = place / f"enginesmith-copies-{scratch.space() + 1}-1-1-abc"
    other.mkdir()
    with scratch.folder():
        pass
    assert other.exists()
