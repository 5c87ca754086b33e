"""The store under several processes at once, and under processes that are killed in the middle of a commit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckb.maintenance import verify
from ckb.schemas import Experience
from ckb.store import Store
from tests.unit.ckb.samples import experience

ROOT = Path(__file__).parents[3]
STEPS = 12
"""Calls in a commit of two tables: of each of its three files fsync, link, unlink of the temporary name, and fsync of
the folder."""


def writers(*arguments: object) -> list[int]:
    """Exit codes of the processes that store_writers.py forks."""
    command = [sys.executable, "-m", "tests.unit.ckb.store_writers", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ), check=True)
    return [int(code) for code in done.stdout.split()]


def test_four_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    Store.create(tmp_path)
    assert writers("append", tmp_path, 4, 25) == [0, 0, 0, 0]
    store = Store(tmp_path)
    assert store.latest == 100
    assert sorted(row.id for row in store.rows(Experience)) == sorted(f"{w}-{n}" for w in range(4) for n in range(25))
    assert [len(store.read("experience", version)) for version in (1, 50, 99)] == [1, 50, 99]
    assert len({manifest.by for manifest in store.log()[:50]}) > 1, "they really took turns"
    assert verify(store) == []


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One store for each step at which its writer was killed, all of them at version 1 before; the last lived."""
    roots = [tmp_path_factory.mktemp("killed") for _ in range(STEPS + 1)]
    for root in roots:
        Store.create(root).append({"experience": [experience("old")]}, message="m", by="b")
    assert writers("kill", *roots) == [-signal.SIGKILL] * STEPS + [0]
    return roots


@pytest.mark.parametrize("step", range(1, STEPS + 2))
def test_a_writer_killed_at_any_step_leaves_whole_versions(killed: list[Path], step: int) -> None:
    store = Store(killed[step - 1])
    published = step > STEPS - 2  # the tenth step links the manifest
    assert store.latest == (2 if published else 1)
    assert sorted(row.id for row in store.rows(Experience)) == (["new", "old"] if published else ["old"])
    assert len(store.rows("runs")) == (1 if published else 0), "both tables, or none"
    assert [row.id for row in store.rows(Experience, 1)] == ["old"]
    assert verify(store) == []
    assert store.append({"experience": [experience("next")]}, message="m", by="b") == store.latest
