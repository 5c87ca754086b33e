"""The store under several processes at once, and under processes that are killed in the middle of what they do."""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckb.maintenance import verify
from ckb.manifest import CHECKPOINT_EVERY
from ckb.schemas import Experience
from ckb.storage import PATIENCE_S
from ckb.store import Store
from tests.unit.ckb.samples import experience
from tests.unit.ckb.store_writers import run

FILE, FOLDER = 6, 2
"""Steps of creating a file (create, half of it, fsync, link, unlink of the temporary name, fsync of the folder), and of
creating a folder (mkdir, fsync)."""


def test_four_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    Store.create(tmp_path)
    assert run("append", tmp_path, 4, 25) == [0, 0, 0, 0]
    store = Store(tmp_path)
    assert store.latest == 100
    assert sorted(row.id for row in store.rows(Experience)) == sorted(f"{w}-{n}" for w in range(4) for n in range(25))
    assert [len(store.read("experience", version)) for version in (1, 50, 99)] == [1, 50, 99]
    assert len({manifest.by for manifest in store.log()[:50]}) > 1, "they really took turns"
    assert verify(store) == []


def test_a_writer_that_stopped_in_its_turn_holds_the_others_up_for_a_moment_only(tmp_path: Path) -> None:
    stopped, store = Store.create(tmp_path), Store(tmp_path)
    with stopped.storage.turn():
        start = time.monotonic()
        assert append(store, "a") == 1
        assert time.monotonic() - start >= PATIENCE_S, "there was nothing to wait for"
        assert append(stopped, "b") == 2, "whoever comes back finds that others went on"
    start = time.monotonic()
    assert append(store, "c") == 3
    assert time.monotonic() - start < PATIENCE_S, "the turn was given back"


def append(store: Store, *ids: str) -> int:
    return store.append({"experience": [experience(id) for id in ids]}, message="m", by="b")


def empty(store: Store) -> None:
    pass


def two_files(store: Store) -> None:
    append(store, "a", "b")
    append(store, "c")


def before_a_checkpoint(store: Store) -> None:
    append(store, "a")
    for n in range(CHECKPOINT_EVERY - 2):
        store.overwrite({"experience": [experience("a", text=f"{n}")]}, parent=n + 1, message="m", by="b")


def leftovers(store: Store) -> None:
    """A file that version 2 replaced, one of a killed writer, and a temporary one."""
    append(store, "a")
    store.overwrite({"experience": [experience("a", text="new")]}, parent=1, message="m", by="b")
    root = Path(str(store.storage))
    (root / "data/orphan.parquet").write_bytes(b"of a killed writer")
    (root / "versions/.x.tmp").write_bytes(b"of another")


CASES: list[tuple[str, Callable[[Store], None], int]] = [
    ("append", empty, FOLDER + 3 * FILE),
    ("append", two_files, 3 * FILE),
    ("append", before_a_checkpoint, 3 * FILE + FOLDER + FILE),
    ("overwrite", two_files, 2 * FILE),
    ("compact", two_files, 2 * FILE),
    ("tag", two_files, FOLDER + FILE),
    ("vacuum", leftovers, 2 * FILE + 3),
]
"""What a writer does, to which store, and in how many steps; at each of them it is killed once."""


def seen(store: Store) -> dict[str, Any]:
    """All that a reader can see of a store: versions, tags, and the rows of the first and the last versions."""
    latest, horizon = store.latest, store.state().horizon
    readable = [version for version in (0, 1, latest - 1, latest) if horizon <= version <= latest]
    rows = {v: sorted((row.id, row.text) for row in store.rows(Experience, v)) for v in readable}
    runs = {v: len(store.rows("runs", v)) for v in readable}
    log = [(manifest.version, manifest.operation) for manifest in store.log()]
    return {"log": log, "tags": store.tags(), "horizon": horizon, "rows": rows, "runs": runs}


def announcements(deed: str, template: Path, folder: Path) -> list[dict[str, Any]]:
    """What is visible on the way: a vacuum says what it is about to do in a version of its own."""
    if deed != "vacuum":
        return []
    store = Store(shutil.copytree(template, folder / "announced"))
    store.close_below(2, message="m", by="b")
    return [seen(store)]


@pytest.mark.parametrize(("deed", "prepare", "steps"), CASES)
def test_a_writer_killed_at_any_step_leaves_the_store_as_before_or_as_after(
    deed: str, prepare: Callable[[Store], None], steps: int, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    prepare(Store.create(template))
    assert run("kill", deed, template, tmp_path) == [-signal.SIGKILL] * steps + [0]
    before, after = seen(Store(template)), seen(Store(tmp_path / str(steps + 1)))
    assert before != after
    found = [seen(Store(tmp_path / str(step))) for step in range(1, steps + 1)]
    stages = [before, *announcements(deed, template, tmp_path), after]
    reached = [stages.index(state) for state in found]
    assert reached == sorted(reached), "half of it was visible"
    assert set(reached) == set(range(len(stages)))
    for step in range(1, steps + 2):
        store = Store(tmp_path / str(step))
        assert verify(store) == [], step
        assert append(store, "next") == store.latest
