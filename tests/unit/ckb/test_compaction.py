"""Merging small files: the same rows, blame and versions from fewer files, beside writers that go on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

from ckb import compaction
from ckb.compaction import compact, mergeable, tidy
from ckb.consolidate import Consolidator, Lessons
from ckb.history import blame, diff
from ckb.maintenance import vacuum, verify
from ckb.manifest import DataFile
from ckb.parquet import ROW_GROUP
from ckb.schemas import Experience, Run
from ckb.storage import LocalStorage
from ckb.store import Conflict, Store
from tests.unit.ckb.samples import ROWS, experience


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "store")
    for id in "dacb":
        append(store, id)
    return store


def append(store: Store, *ids: str) -> int:
    return store.append({"experience": [experience(id) for id in ids]}, message="m", by=ids[0])


def file(rows: int) -> DataFile:
    return DataFile(path=f"data/{rows}", rows=rows, bytes=1, sha256="")


def test_runs_of_small_files_are_merged_and_large_ones_left_alone() -> None:
    for sizes, merged in (
        ([], []),
        ([3], []),
        ([3, 4], [[3, 4]]),
        ([3, 50, 4], [[3, 4]]),
        ([49, 49, 2, 1], [[49, 49, 2]]),
        ([49, 49, 3, 1, 60], [[49, 49], [3, 1]]),
        ([100, 120], []),
    ):
        assert [[f.rows for f in group] for group in mergeable([file(n) for n in sizes], 100)] == merged, sizes


def test_a_compaction_changes_no_row_and_no_blame(store: Store) -> None:
    before = store.rows(Experience)
    assert compact(store, by="me") == [5]
    assert len(store.table_state("experience").files) == 1
    assert store.rows(Experience) == sorted(before, key=lambda row: row.id)
    assert diff(store, 4, 5) == []
    assert [blame(store, "experience", id).version for id in "abcd"] == [2, 4, 3, 1]
    assert store.rows(Experience, 4) == before, "an older version keeps its files"
    change = store.log()[0].changes["experience"]
    assert (store.log()[0].operation, change.rows, len(change.remove)) == ("compact", 0, 4)
    assert compact(store, by="me") == [], "nothing is left to do"
    assert verify(store) == []
    assert len(vacuum(store, timedelta(0), by="me", now=datetime.now(UTC) + timedelta(hours=2))) == 4
    assert [row.id for row in store.rows(Experience)] == list("abcd")


class Interrupting(LocalStorage):
    """Another writer commits just before the first manifest."""

    def __init__(self, root: Path, other: str):
        super().__init__(root)
        self.other = other

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.startswith("versions/") and self.other:
            what, self.other = self.other, ""
            other = Store(self.root)
            if what == "append":
                append(other, "e")
            else:
                other.overwrite({"experience": [experience("a", text="new")]}, parent=4, message="m", by="b")
        super().put_if_absent(path, data)


def test_an_append_in_between_is_no_obstacle(store: Store, tmp_path: Path) -> None:
    assert compact(Store(Interrupting(tmp_path / "store", "append")), by="me") == [6]
    assert sorted(row.id for row in store.rows(Experience)) == list("abcde")
    assert len(store.table_state("experience").files) == 2
    assert verify(store) == []


def test_files_that_were_replaced_in_between_are_left_to_whoever_did_it(store: Store, tmp_path: Path) -> None:
    assert compact(Store(Interrupting(tmp_path / "store", "overwrite")), by="me") == []
    assert {row.id: row.text for row in store.rows(Experience)}["a"] == "new"
    assert store.latest == 5
    assert len(list((tmp_path / "store/data").iterdir())) == 5, "the merged file that came too late is gone"


def test_an_overwrite_of_a_parent_that_was_compacted_is_a_conflict(store: Store) -> None:
    compact(store, by="me")
    with pytest.raises(Conflict):
        store.overwrite({"experience": [experience("a", text="new")]}, parent=4, message="m", by="b")


def test_the_consolidator_merges_when_there_are_many_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tidy(store, by="me") == []
    monkeypatch.setattr(compaction, "MANY", 4)
    run = ROWS["runs"]
    assert isinstance(run, Run)
    done = Consolidator(Path(str(store.storage))).consolidate(Lessons(run=run))
    assert (done.version, store.latest) == (5, 6)
    assert len(store.table_state("experience").files) == 1


def test_a_condition_finds_its_rows_in_every_part_of_a_large_file(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store")
    rows = [experience(f"{n:05}", effect=float(n % 7)) for n in range(2 * ROW_GROUP + 100)]
    store.append({"experience": rows}, message="m", by="b")
    ends = ["00000", f"{ROW_GROUP - 1:05}", f"{ROW_GROUP:05}", f"{len(rows) - 1:05}"]
    assert [row.id for row in store.rows(Experience, where=pc.field("id").isin([*ends, "none"]))] == ends
    assert store.rows(Experience, where=pc.field("effect") == 3) == rows[3::7]
    assert store.rows(Experience, where=pc.field("id") == "99999") == []
    nothing = store.read("experience", columns=["effect", "id"], where=pc.field("effect") > 99)
    assert (nothing.column_names, nothing.num_rows) == (["effect", "id"], 0)
