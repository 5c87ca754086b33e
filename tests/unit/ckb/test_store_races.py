"""Vacuums, tags and late commits at once: whatever the order, what somebody was promised is there."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ckb.errors import Damaged, UserError
from ckb.maintenance import LONGEST_COMMIT, vacuum, verify
from ckb.manifest import CHECKPOINT_EVERY, encode_page
from ckb.schemas import Experience
from ckb.storage import LocalStorage
from ckb.store import Conflict, Store
from ckb.versions import manifest_path, page_path
from tests.unit.ckb.samples import experience

LATER = datetime.now(UTC) + timedelta(days=30)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions 1 to 3 each replace the text of a."""
    store = Store.create(tmp_path / "store")
    store.append({"experience": [experience("a", text="1")]}, message="m", by="b")
    for n in (2, 3):
        store.overwrite({"experience": [experience("a", text=f"{n}")]}, parent=n - 1, message="m", by="b")
    return tmp_path / "store"


def text(store: Store, version: int | str | None = None) -> str:
    (row,) = store.rows(Experience, version)
    return row.text


class Killed(Exception):
    """Stands for kill -9: whoever was at work does nothing more."""


class Meddled(LocalStorage):
    """Somebody else acts just before or after the n-th call of one kind on one folder: what can't be brought about from
    outside."""

    def __init__(
        self, root: Path, call: str, folder: str, number: int, deed: Callable[[], object], after: bool = False
    ):
        super().__init__(root)
        self.call, self.folder, self.left, self.deed, self.after = call, folder, number, deed, after

    def _meddle(self, call: str, path: str, after: bool) -> None:
        if (call, after) == (self.call, self.after) and path.startswith(self.folder):
            self.left -= 1
            if self.left == 0:
                self.deed()

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._meddle("put", path, False)
        super().put_if_absent(path, data)
        self._meddle("put", path, True)

    def list(self, folder: str) -> list:  # type: ignore[type-arg]
        self._meddle("list", folder, False)
        found = super().list(folder)
        self._meddle("list", folder, True)
        return found

    def delete(self, path: str) -> None:
        self._meddle("delete", path, False)
        super().delete(path)


def moments() -> list[tuple[str, str, int, bool]]:
    """Every call with which a vacuum of `root` touches the storage, before and after it."""
    calls = [("list", "versions", 1), ("delete", "data", 1), ("delete", "data", 2)]
    calls += [("list", "tags", n) for n in (1, 2)] + [("put", "versions", n) for n in (1, 2)]
    calls += [("list", "data", 1)]
    return [(*call, after) for call in calls for after in ((False,) if call[0] == "delete" else (False, True))]


MOMENTS = pytest.mark.parametrize(("call", "folder", "number", "after"), moments())


@MOMENTS
@pytest.mark.parametrize("killed", [False, True])
def test_a_tag_that_was_given_keeps_its_version_whenever_a_vacuum_is_at_work(
    root: Path, call: str, folder: str, number: int, after: bool, killed: bool
) -> None:
    given: list[str] = []

    def tag() -> None:
        with suppress(UserError):
            Store(root).tag("gold", 1)
            given.append("gold")
        if killed:
            raise Killed

    meddled = Meddled(root, call, folder, number, tag, after)
    with suppress(Killed):
        vacuum(Store(meddled), timedelta(0), by="me", now=LATER)
    assert meddled.left <= 0, "the moment never came"
    for _ in range(2):
        assert list(Store(root).tags()) == given
        assert text(Store(root), "gold" if given else None) == ("1" if given else "3")
        assert text(Store(root)) == "3"
        assert verify(Store(root)) == []
        vacuum(Store(root), timedelta(0), by="me", now=LATER)
    assert Store(root).state().closing is None, "what a killed vacuum began was ended"
    assert bool(given) == (Store(root).state().horizon < 3)


@pytest.mark.parametrize("number", [1, 2])
def test_a_tag_is_refused_while_a_vacuum_is_closing_its_version(root: Path, number: int) -> None:
    def closing() -> None:
        Store(root).close_below(3, message="m", by="me")

    store = Store(Meddled(root, "put", "tags", 1, closing, after=number == 2))
    with pytest.raises(UserError, match="version 1 can't be tagged: a vacuum is closing the versions below 3"):
        store.tag("gold", 1)
    assert store.tags() == {}
    assert store.tag("new", 3) == 3
    assert text(store, 1) == "1", "it is not gone yet"


@MOMENTS
def test_two_vacuums_at_once_are_no_obstacle_to_each_other(
    root: Path, call: str, folder: str, number: int, after: bool
) -> None:
    def other() -> None:
        vacuum(Store(root), timedelta(0), by="you", now=LATER + timedelta(days=9))

    meddled = Meddled(root, call, folder, number, other, after)
    vacuum(Store(meddled), timedelta(0), by="me", now=LATER)
    store = Store(root)
    assert (text(store), store.state().closing) == ("3", None)
    assert store.state().horizon >= 3
    assert verify(store) == []
    assert len(list((root / "data").iterdir())) == 1


def test_only_the_vacuum_that_spoke_last_raises_the_horizon_and_deletes(root: Path) -> None:
    store = Store(root)
    first = store.close_below(3, message="m", by="me")
    store.close_below(2, message="m", by="you")
    with pytest.raises(Conflict):
        store.raise_horizon(3, 0.0, message="m", by="me", parent=first)
    (root / "data/orphan.parquet").write_bytes(b"of a commit that stands still")
    other = Meddled(root, "list", "tags", 2, lambda: Store(root).close_below(2, message="m", by="you"), after=True)
    assert vacuum(Store(other), timedelta(0), by="me", now=LATER) == []
    assert [text(store, version) for version in (1, 2, 3)] == ["1", "2", "3"]


def test_the_next_vacuum_ends_what_a_killed_one_began_even_if_nothing_is_old(root: Path) -> None:
    store = Store(root)
    store.close_below(3, message="m", by="me")
    assert vacuum(store, timedelta(days=99), by="me") == []
    assert store.state().closing is None
    assert store.tag("gold", 1) == 1


def age(root: Path, hours: float) -> None:
    """Every file is as old as that from now on."""
    then = time.time() - hours * 3600
    for path in root.rglob("*.*"):
        os.utime(path, (then, then))


@MOMENTS
def test_a_commit_that_stood_still_for_hours_is_whole_or_not_there(
    root: Path, call: str, folder: str, number: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote its data before the vacuum, and goes on at some moment of it."""
    monkeypatch.setattr("ckb.storage.PATIENCE_S", 0.01)
    stopped, on, outcome = threading.Event(), threading.Event(), list[int | str]()

    class Stopping(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith("versions/") and not stopped.is_set():
                stopped.set()
                assert on.wait(30)
            super().put_if_absent(path, data)

    def write() -> None:
        try:
            outcome.append(Store(Stopping(root)).append({"experience": [experience("late")]}, message="m", by="b"))
        except UserError as error:
            outcome.append(str(error))

    def go_on() -> None:
        on.set()
        writer.join(30)

    writer = threading.Thread(target=write)
    writer.start()
    assert stopped.wait(30)
    age(root, 3)
    meddled = Meddled(root, call, folder, number, go_on, after)
    vacuum(Store(meddled), timedelta(0), by="me", now=datetime.now(UTC))
    (said,) = outcome
    store = Store(root)
    there = {row.id for row in store.rows(Experience)}
    assert verify(store) == []
    assert len(list((root / "data").iterdir())) == len(there), "and nothing else stays"
    if folder in ("versions", "tags") and (call, number, after) != ("put", 2, True):
        assert isinstance(said, int), "the vacuum had not said yet what it deletes"
        assert there == {"a", "late"}
    else:
        assert "the commit took too long: it wrote data/experience-" in str(said)
        assert "nothing was published: make the commit again" in str(said)
        assert there == {"a"}
    assert store.append({"experience": [experience("again")]}, message="m", by="b") == store.latest


def test_a_commit_that_was_refused_because_it_took_too_long_was_really_in_danger(root: Path) -> None:
    """A vacuum of a long grace deletes only what is older, and refuses no commit of an hour or two."""
    age(root, 3)
    (root / "data/orphan.parquet").write_bytes(b"of a killed writer")
    os.utime(root / "data/orphan.parquet", (1, 1))

    class Slow(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path == manifest_path(4):
                age(root, 2)
                os.utime(root / "data/orphan.parquet", (1, 1))
                assert vacuum(Store(root), timedelta(days=1), by="me") == ["data/orphan.parquet"]
            super().put_if_absent(path, data)

    assert Store(Slow(root)).append({"experience": [experience("late")]}, message="m", by="b") == 5
    assert verify(Store(root)) == []


def test_the_clock_of_one_writer_makes_no_version_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is when the storage got a manifest, and that versions follow each other."""
    age(root, 24 * 40)
    monkeypatch.setattr("ckb.store.now", lambda: "2016-01-01T00:00:00+00:00")
    store = Store(root)
    store.overwrite({"experience": [experience("a", text="4")]}, parent=3, message="m", by="b")
    store.append({"experience": [experience("b")]}, message="m", by="skewed")
    os.utime(root / manifest_path(5), (1.0, 1.0))
    vacuum(Store(root), timedelta(days=30), by="me")
    assert Store(root).state().horizon == 3, "the newest that was there 30 days ago"
    assert [text(Store(root), version) for version in (3, 4)] == ["3", "4"]


def test_a_vacuum_goes_by_the_clock_of_the_storage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Ahead":
            raise AssertionError("this machine's clock may be years ahead")

    monkeypatch.setattr("ckb.maintenance.datetime", Ahead)
    assert vacuum(Store(root), LONGEST_COMMIT, by="me") == []
    age(root, 2)
    assert len(vacuum(Store(root), LONGEST_COMMIT, by="me")) == 2


def test_a_vacuum_believes_no_page_of_the_log(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    for n in range(CHECKPOINT_EVERY + 1):
        store.append({"experience": [experience(f"{n}")]}, message="m", by="b")
    page = tmp_path / page_path(CHECKPOINT_EVERY)
    manifests = [manifest for manifest in store.versions.page(CHECKPOINT_EVERY) or [] if manifest.version % 2 == 0]
    page.write_bytes(encode_page(manifests))
    store.overwrite({"experience": [experience("5", text="new")]}, parent=store.latest, message="m", by="b")
    store.tag("keep", 0)
    assert vacuum(Store(tmp_path), timedelta(0), by="me", now=LATER) == []
    assert len(Store(tmp_path).rows(Experience)) == CHECKPOINT_EVERY + 1
    (tmp_path / manifest_path(7)).unlink()
    with pytest.raises(Damaged, match=r"0000000007\.json is missing"):
        vacuum(Store(tmp_path), timedelta(0), by="me", now=LATER)
