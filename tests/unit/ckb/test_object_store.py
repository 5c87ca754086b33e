"""The store in an S3-compatible server: the one primitive is a conditional put, and all else follows from it."""

import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ckb.build import build
from ckb.compaction import compact
from ckb.errors import UserError
from ckb.history import blame, diff
from ckb.maintenance import vacuum, verify
from ckb.manifest import CHECKPOINT_EVERY
from ckb.schemas import Experience
from ckb.storage import Storage, storage_at
from ckb.store import Conflict, Store
from ckb.versions import NoStore
from swarm.cli import main
from tests.unit.ckb.samples import experience
from tests.unit.ckb.store_writers import run

ROOT = Path(__file__).parents[3]
MISSING = "the extra object-store and its test server are missing: make install, or pip install -e '.[dev]'"


def test_without_the_package_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ckb.object_storage", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UserError, match=r"pip install .*enginesmith\[object-store\]"):
        Store("s3://bucket/prefix")


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[int], str]]:
    """Starts a server that loses the reply to every n-th put (0: none), with a bucket, and returns its URL."""
    pytest.importorskip("obstore", reason=MISSING)
    pytest.importorskip("moto", reason=MISSING)
    with ExitStack() as stack:

        def start(lose: int) -> str:
            command = [sys.executable, "-m", "tests.unit.ckb.s3_server", str(lose)]
            server = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            stack.callback(server.kill)
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            with urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=20) as reply:
                assert reply.status == 200
            return url

        yield start


@pytest.fixture(scope="module")
def plain(serve: Callable[[int], str]) -> str:
    return serve(0)


@pytest.fixture
def place(plain: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of a bucket that this test has to itself."""
    use(plain, monkeypatch)
    return f"s3://bucket/{request.node.name}"


def use(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)


def append(store: Store, *ids: str) -> int:
    return store.append({"experience": [experience(id) for id in ids]}, message="m", by="b")


def ids(store: Store, version: int | str | None = None) -> list[str]:
    return sorted(row.id for row in store.rows(Experience, version))


def test_an_object_is_put_once(place: str) -> None:
    storage: Storage = storage_at(place)
    storage.put_if_absent("a/b", b"first")
    with pytest.raises(FileExistsError, match=f"{place}/a/b"):
        storage.put_if_absent("a/b", b"second")
    assert storage.read("a/b").to_pybytes() == b"first"
    storage.put_if_absent("a/a", b"")
    assert [stored.path for stored in storage.list("a")] == ["a/a", "a/b"]
    assert abs(storage.list("a")[0].modified - datetime.now(UTC).timestamp()) < 60
    assert storage.list("nothing") == []
    with pytest.raises(FileNotFoundError):
        storage.read("a/c")
    storage.delete("a/b")
    storage.delete("a/b")
    assert [stored.path for stored in storage.list("a")] == ["a/a"]


def test_the_whole_life_of_a_store(place: str) -> None:
    with pytest.raises(NoStore, match="no knowledge base at s3://bucket/"):
        Store(place)
    store = Store.create(place)
    with pytest.raises(UserError, match="already"):
        Store.create(place)
    other = Store(place)
    assert [append(store, "a"), append(other, "b"), append(store, "c")] == [1, 2, 3]
    assert store.tag("three") == 3
    changed = {"experience": [experience("a", text="new")]}
    with pytest.raises(Conflict) as caught:
        other.overwrite(changed, parent=2, message="m", by="b")
    assert (caught.value.expected, caught.value.found) == (2, 3)
    assert store.overwrite(changed, parent=3, message="m", by="eve") == 4
    assert [ids(other, version) for version in (1, "three", None)] == [["a"], ["a", "b", "c"], ["a", "b", "c"]]
    assert [(change.id, change.kind) for change in diff(other, 3, 4)] == [("a", "changed")]
    assert blame(other, "experience", "a").by == "eve"
    assert compact(store, by="me") == [5]
    assert verify(other) == []
    store.storage.put_if_absent("data/orphan.parquet", b"of a killed writer")
    assert vacuum(store, timedelta(hours=1), by="me") == []
    later = datetime.now(UTC) + timedelta(hours=2)
    assert vacuum(store, timedelta(hours=1), by="me", now=later) == ["data/orphan.parquet"], "the tag keeps the rest"
    assert ids(other, "three") == ["a", "b", "c"]
    assert verify(other) == []


def test_three_processes_at_once_lose_nothing(place: str) -> None:
    Store.create(place)
    assert run("append", place, 3, 6) == [0, 0, 0]
    store = Store(place)
    assert store.latest == 18
    assert ids(store) == sorted(f"{w}-{n}" for w in range(3) for n in range(6))
    assert verify(store) == []


def test_a_commit_whose_reply_the_network_lost_is_one_commit(
    serve: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(serve(3), monkeypatch)  # its client tries again, and meets what it wrote itself
    store = Store.create("s3://bucket/lost")
    for n in range(9):
        assert append(store, f"{n}") == n + 1
    store.tag("nine")
    assert ids(store, "nine") == [f"{n}" for n in range(9)]
    assert verify(store) == []


def test_versions_beyond_a_checkpoint_and_its_page(place: str) -> None:
    store = Store.create(place)
    for n in range(CHECKPOINT_EVERY + 1):
        append(store, f"{n:03}")
    assert [stored.path for stored in store.storage.list("log")] == [f"log/{CHECKPOINT_EVERY:010}.json"]
    opened = Store(place)
    assert len(opened.log()) == CHECKPOINT_EVERY + 2
    assert len(ids(opened, CHECKPOINT_EVERY)) == CHECKPOINT_EVERY


def test_what_can_not_be_used_is_said(place: str) -> None:
    for url, message in (
        ("nonsense://bucket/x", "nonsense://bucket/x can't be used as the place of a knowledge base"),
        ("s3://no-such-bucket/x", "s3://no-such-bucket/x can't be listed: .*AWS_ENDPOINT_URL"),
    ):
        with pytest.raises(UserError, match=message):
            build(url)


def test_the_commands_take_the_place_from_the_environment(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.setenv("ENGINESMITH_STORE", place)
    assert main(["ckb", "log"]) == 2
    assert f"no knowledge base at {place}" in capsys.readouterr().err
    assert main(["ckb", "build"]) == 0
    assert f"version 1 of {place}" in capsys.readouterr().out
    assert main(["ckb", "verify"]) == 0
    assert list(tmp_path.iterdir()) == [], "nothing is written on this machine"
