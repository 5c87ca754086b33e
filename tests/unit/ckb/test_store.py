"""The store in one process: versions, conflicts, lost replies, evolution, time travel."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ckb.errors import UserError
from ckb.manifest import CHECKPOINT_EVERY
from ckb.records import Row
from ckb.schemas import Experience
from ckb.storage import LocalStorage, put_if_absent
from ckb.store import Conflict, Store
from ckb.versions import Versions, manifest_path
from tests.unit.ckb.samples import ROWS, experience


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


def append(store: Store, *ids: str, parent: int | None = None) -> int:
    return store.append({"experience": [experience(id) for id in ids]}, message="m", by="b", parent=parent)


def ids(store: Store, version: int | str | None = None) -> list[str]:
    return sorted(row.id for row in store.rows(Experience, version))


def test_a_file_is_put_whole_or_not_at_all(tmp_path: Path) -> None:
    put_if_absent(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        put_if_absent(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "no temporary file stays"


def test_appends_rebase_on_what_others_committed(store: Store) -> None:
    other = Store(store.storage)
    assert append(store, "a") == 1
    assert append(other, "b") == 2
    assert append(store, "c", "d") == 3
    assert ids(store) == ["a", "b", "c", "d"]
    assert [m.operation for m in store.log()] == ["append", "append", "append", "create"]
    assert [m.changes["experience"].rows for m in store.log()[:-1]] == [2, 1, 1]


def test_one_commit_may_hold_rows_of_several_tables(store: Store) -> None:
    version = store.append({"runs": [ROWS["runs"]], "traces": [ROWS["traces"]]}, message="m", by="b")
    assert (version, store.rows("runs"), store.rows("traces")) == (1, [ROWS["runs"]], [ROWS["traces"]])


def test_every_version_stays_readable_by_number_and_tag(store: Store) -> None:
    for id in "abc":
        append(store, id)
    assert store.tag("second", 2) == 2
    store.overwrite({"experience": [experience("a", text="new")]}, parent=3, message="m", by="b")
    assert [ids(store, v) for v in (0, 1, 2, 3, "second", "1")] == [
        [], ["a"], ["a", "b"], ["a", "b", "c"], ["a", "b"], ["a"],
    ]  # fmt: skip
    assert {row.id: row.text for row in store.rows(Experience)}["a"] == "new"
    assert store.rows(Experience, 3) == [experience(id) for id in "abc"]


def test_an_overwrite_replaces_rows_by_id_and_adds_the_others(store: Store) -> None:
    append(store, "a", "b")
    append(store, "c")
    changed = [experience("b", text="new"), experience("d")]
    assert store.overwrite({"experience": changed}, parent=2, message="m", by="b") == 3
    assert sorted(store.rows(Experience), key=lambda r: r.id) == [
        experience("a"),
        changed[0],
        experience("c"),
        changed[1],
    ]
    change = store.log()[0].changes["experience"]
    assert (change.rows, change.add[0].rows, len(change.remove)) == (2, 3, 1), "only the file that holds b is rewritten"


def test_an_overwrite_of_a_moved_parent_is_a_conflict(store: Store) -> None:
    append(store, "a")
    append(store, "b")
    with pytest.raises(Conflict) as caught:
        store.overwrite({"experience": [experience("a", text="new")]}, parent=1, message="m", by="b")
    assert (caught.value.expected, caught.value.found) == (1, 2)
    with pytest.raises(Conflict):
        append(store, "c", parent=1)
    assert (store.latest, ids(store)) == (2, ["a", "b"])


class Interrupted(LocalStorage):
    """Something happens when a file of one folder is put: the one thing that a test can't bring about from outside."""

    def __init__(self, root: Path, before: str = "", lost: type[OSError] | None = None, folder: str = "versions"):
        super().__init__(root)
        self.before, self.lost, self.folder = before, lost, folder

    def put_if_absent(self, path: str, data: bytes) -> None:
        mine = path.startswith(self.folder)
        if mine and self.before:
            id, self.before = self.before, ""
            append(Store(self.root), id)
        super().put_if_absent(path, data)
        if mine and self.lost:
            error, self.lost = self.lost, None
            raise error("the reply was lost")


def test_a_conflict_is_seen_even_when_the_other_commit_comes_last_of_all(store: Store, tmp_path: Path) -> None:
    append(store, "a")
    raced = Store(Interrupted(tmp_path / "store", before="b"))
    with pytest.raises(Conflict) as caught:
        raced.overwrite({"experience": [experience("a", text="new")]}, parent=1, message="m", by="b")
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert ids(store) == ["a", "b"]
    assert len(list((tmp_path / "store/data").iterdir())) == 2, "the data file of the conflict is gone"


def test_an_append_that_loses_the_race_takes_the_next_version(store: Store, tmp_path: Path) -> None:
    raced = Store(Interrupted(tmp_path / "store", before="a"))
    assert append(raced, "b") == 2
    assert ids(store, 1) == ["a"]


@pytest.mark.parametrize("error", [FileExistsError, TimeoutError])
@pytest.mark.parametrize("folder", ["data", "versions"])
def test_a_commit_whose_reply_was_lost_recognises_itself(
    store: Store, tmp_path: Path, folder: str, error: type[OSError]
) -> None:
    assert append(Store(Interrupted(tmp_path / "store", lost=error, folder=folder)), "a") == 1
    assert (store.latest, ids(store)) == (1, ["a"])


@pytest.mark.parametrize("error", [FileExistsError, TimeoutError])
def test_a_tag_whose_reply_was_lost_recognises_itself(store: Store, tmp_path: Path, error: type[OSError]) -> None:
    assert Store(Interrupted(tmp_path / "store", lost=error, folder="tags")).tag("gold") == 0
    assert store.tags() == {"gold": 0}
    with pytest.raises(UserError, match="'gold' is taken by version 0"):
        store.tag("gold")


def test_a_commit_that_no_one_answered_and_no_one_stored_is_an_error(store: Store, tmp_path: Path) -> None:
    class Unreachable(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith("versions/"):
                raise TimeoutError("no reply")
            super().put_if_absent(path, data)

    with pytest.raises(TimeoutError):
        append(Store(Unreachable(tmp_path / "store")), "a")
    assert store.latest == 0


def test_a_write_that_failed_is_an_error_and_no_version(store: Store, tmp_path: Path) -> None:
    class Full(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        append(Store(Full(tmp_path / "store")), "a")
    assert store.latest == 0


class Note(Row):
    text: str


class LongerNote(Note):
    rank: int = 3
    marks: tuple[str, ...] = ()


class OtherNote(Row):
    text: int


def note(id: str, kind: type[Note] = Note, **fields: object) -> Note:
    return kind.model_validate({"id": id, "layer": "test", "text": id, **fields})


def test_a_new_column_reads_as_its_default_in_old_rows(tmp_path: Path) -> None:
    old = Store.create(tmp_path, {"notes": Note})
    old.append({"notes": [note("a")]}, message="m", by="b")
    new = Store(tmp_path, {"notes": LongerNote})
    new.append({"notes": [note("b", LongerNote, rank=5, marks=("x",))]}, message="m", by="b")
    assert new.rows("notes") == [note("a", LongerNote), note("b", LongerNote, rank=5, marks=("x",))]
    assert "rank" not in new.read("notes", 1).column_names, "an old version keeps its schema"
    new.overwrite({"notes": [note("c", LongerNote)]}, parent=2, message="m", by="b")
    new.append({"notes": [note("d", LongerNote)]}, message="m", by="b")
    assert [row.id for row in new.rows("notes", 4)] == ["a", "b", "c", "d"]
    assert new.log()[0].changes["notes"].arrow is None, "the schema is written when it changes only"
    with pytest.raises(UserError, match="columns rank, marks, which this release does not know"):
        old.rows("notes")
    assert old.rows("notes", 1) == [note("a")]


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    Store.create(tmp_path, {"notes": Note}).append({"notes": [note("a")]}, message="m", by="b")
    other = Store(tmp_path, {"notes": OtherNote})
    with pytest.raises(UserError, match="don't fit table 'notes'"):
        other.append({"notes": [OtherNote(id="b", layer="test", text=1)]}, message="m", by="b")
    assert other.latest == 1
    assert len(list((tmp_path / "data").iterdir())) == 1, "what can't be committed leaves no file"


def test_reading_takes_columns_and_conditions(store: Store) -> None:
    append(store, "a", "b")
    append(store, "c")
    found = store.read("experience", columns=["text"], where=pc.field("id").isin(["b", "c"]))
    assert found.to_pydict() == {"text": ["about b", "about c"]}
    assert [row.id for row in store.rows(Experience, where=pc.field("id") == "c")] == ["c"]
    assert "_commit" not in store.read("experience").column_names


def test_opening_and_reading_follow_the_nearest_checkpoint(store: Store, tmp_path: Path) -> None:
    class Counting(LocalStorage):
        reads = 0

        def read(self, path: str) -> pa.Buffer:
            self.reads += path.startswith("versions/")
            return super().read(path)

    count = 2 * CHECKPOINT_EVERY + 3
    for n in range(count):
        append(store, f"{n:04}")
    counting = Counting(tmp_path / "store")
    opened = Store(counting)
    assert counting.reads == 4, "the checkpoint at 128 and three more"
    assert opened.table_state("experience") == store.table_state("experience")
    counting.reads = 0
    assert len(opened.table_state("experience", CHECKPOINT_EVERY + 1).files) == CHECKPOINT_EVERY + 1
    assert counting.reads <= 2 + 2, "two looks ahead, the checkpoint and one more"
    stale = Store(tmp_path / "store")
    stale.versions._state = stale.versions.load(1)
    assert stale.table_state("experience") == opened.table_state("experience"), "catching up over checkpoints"
    assert len(ids(store)) == count


def test_what_is_not_there_is_said_with_the_numbers(store: Store, tmp_path: Path) -> None:
    append(store, "a")
    for call, message in (
        (lambda: Store(tmp_path / "nothing"), "no knowledge base at .*nothing.*enginesmith ckb build"),
        (lambda: Store.create(tmp_path / "store"), "already"),
        (lambda: store.read("experience", 7), "has the versions 0 to 1; version 7 was asked for"),
        (lambda: store.read("experience", -1), "version -1 was asked for"),
        (lambda: store.read("experience", "gold"), "no tag 'gold'; there are none"),
        (lambda: store.read("expereince"), "no table 'expereince'; there are contracts, "),
        (lambda: store.tag("1"), "'1' was given"),
        (lambda: store.tag("a/b"), "'a/b' was given"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    store.tag("gold")
    append(store, "b")
    with pytest.raises(UserError, match="'gold' is taken by version 1"):
        store.tag("gold")


def test_rows_that_can_only_be_a_bug_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="2 rows for experience have only 1 different ids"):
        append(store, "a", "a")
    with pytest.raises(TypeError, match="table experience holds Experience, not Run"):
        store.append({"experience": [ROWS["runs"]]}, message="m", by="b")
    with pytest.raises(ValueError, match="at least one row"):
        store.append({"experience": []}, message="m", by="b")
    assert store.latest == 0


def test_an_unknown_format_is_refused(store: Store, tmp_path: Path) -> None:
    append(store, "a")
    path = tmp_path / "store" / manifest_path(1)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(UserError, match=r"version 1 .* written in format 2; this release reads format 1"):
        Versions(store.storage)
    path.write_text(path.read_text()[:-20])
    damaged = Store(tmp_path / "store")
    with pytest.raises(UserError, match=r"0000000001\.json is damaged"):
        damaged.rows(Experience)
    assert ids(damaged, 0) == [], "what is below it can be read"
