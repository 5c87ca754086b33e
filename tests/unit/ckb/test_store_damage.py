"""A store whose files are not as they were written, and a place that refuses: what is believed, and what is said."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckb.compaction import compact
from ckb.errors import Damaged, PlaceError, UserError
from ckb.history import blame
from ckb.maintenance import verify
from ckb.manifest import CHECKPOINT_EVERY, decode_manifest, encode_manifest, encode_page
from ckb.schemas import Experience
from ckb.store import Store
from ckb.versions import manifest_path, page_path
from swarm.cli import main
from tests.unit.ckb.samples import experience


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions 1 to 3 add a, b and c."""
    store = Store.create(tmp_path / "store")
    for id in "abc":
        append(store, id)
    return tmp_path / "store"


def append(store: Store, *ids: str) -> int:
    return store.append({"experience": [experience(id) for id in ids]}, message="m", by="ann")


def ids(store: Store, version: int | str | None = None) -> list[str]:
    return sorted(row.id for row in store.rows(Experience, version))


def test_rows_of_a_damaged_file_are_neither_read_nor_written_again(root: Path) -> None:
    for path in (root / "data").iterdir():
        path.write_bytes(path.read_bytes().replace(b"about b", b"LIES! b"))
    store = Store(root)
    for deed in (
        lambda: store.rows(Experience),
        lambda: compact(store, by="me"),
        lambda: store.overwrite({"experience": [experience("b", text="new")]}, parent=3, message="m", by="me"),
    ):
        with pytest.raises(Damaged, match=r"data/experience-.*\.parquet: the checksum does not fit the content"):
            deed()
    assert (store.latest, len(list((root / "data").iterdir()))) == (3, 3)
    assert ids(store, 1) == ["a"], "what is whole can be read"
    assert len(verify(store)) == 1


def test_a_forged_manifest_is_not_believed(root: Path) -> None:
    path = root / manifest_path(2)
    path.write_text(path.read_text().replace('"ann"', '"eve"').replace('"rows": 1', '"rows": 7'))
    store = Store(root)
    for deed in (store.log, lambda: store.rows(Experience), lambda: append(store, "d")):
        with pytest.raises(Damaged, match=r"versions/0000000002\.json is damaged: the checksum does not fit"):
            deed()
    assert len(list((root / "data").iterdir())) == 3, "nothing is written into a store that can't be read"
    assert verify(store) == [f"{manifest_path(2)}: the checksum does not fit the content"]


def test_a_manifest_in_the_place_of_another_is_not_believed(root: Path) -> None:
    (root / manifest_path(3)).write_bytes((root / manifest_path(1)).read_bytes())
    with pytest.raises(Damaged, match=r"0000000003\.json is damaged: it says that it is version 1"):
        Store(root).log()


def test_a_version_that_is_gone_is_missed(root: Path) -> None:
    store = Store(root)
    (root / manifest_path(1)).unlink()
    with pytest.raises(Damaged, match=r"versions/0000000001\.json is missing"):
        store.log()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def without_a_schema(path: Path) -> None:
    """Under a checksum that fits: a defect of whoever wrote it."""
    manifest = decode_manifest(path.read_bytes())
    change = manifest.changes["experience"].model_copy(update={"arrow": "AAAA"})
    path.write_bytes(encode_manifest(manifest.model_copy(update={"changes": {"experience": change}})))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("harm", [truncated, without_a_schema, a_folder, a_loop])
def test_what_is_below_a_damaged_newest_version_can_be_read_and_verified(
    root: Path, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (next(iter((root / "data").iterdir()))).write_bytes(b"damaged too")
    harm(root / manifest_path(3))
    store = Store(root)
    assert len(store.state(2).tables["experience"].files) == 2
    with pytest.raises(Damaged, match=r"versions/0000000003\.json is damaged"):
        store.state()
    faults = verify(store)
    assert len([fault for fault in faults if fault.startswith(manifest_path(3))]) == 1
    assert all("\n" not in fault for fault in faults)
    assert main(["ckb", "show", "--at", "1", "--store", str(root)]) == 0
    assert main(["ckb", "show", "--store", str(root)]) == 2
    assert "0000000003.json is damaged" in capsys.readouterr().err
    assert main(["ckb", "verify", "--store", str(root)]) == 1
    assert "0000000003.json" in capsys.readouterr().out


def test_verify_goes_on_behind_a_damaged_version(root: Path) -> None:
    store = Store(root)
    for n in range(CHECKPOINT_EVERY):
        append(store, f"{n}")
    store.tag("gold", 1)
    truncated(root / manifest_path(1))
    (root / "tags/gold.json").write_text("{}")
    last = store.table_state("experience").files[-1].path
    (root / last).write_bytes(b"short")
    faults = verify(Store(root))
    assert [name for name in (manifest_path(1), last, "tags/gold.json") if sum(name in f for f in faults) == 1] == [
        manifest_path(1), last, "tags/gold.json",
    ]  # fmt: skip
    assert len(faults) == 3


def test_a_page_that_lost_manifests_is_not_believed(root: Path) -> None:
    store = Store(root)
    for n in range(CHECKPOINT_EVERY):
        append(store, f"{n}")
    log = store.log()
    path = root / page_path(CHECKPOINT_EVERY)
    whole = path.read_bytes()
    manifests = json.loads(whole)["manifests"]
    for content in (
        json.dumps(manifests[::2]),
        json.dumps({"checksum": json.loads(whole)["checksum"], "manifests": manifests[::2]}),
        encode_page([manifest for manifest in log[::-1][1 : CHECKPOINT_EVERY + 1] if manifest.version % 2]).decode(),
        "[]",
        "",
    ):
        path.write_text(content)
        assert Store(root).log() == log
        assert blame(Store(root), "experience", "a").version == 1
        assert verify(store) == [f"{page_path(CHECKPOINT_EVERY)}: it is not what the manifests say"]
    path.write_bytes(whole)
    assert verify(store) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"effect": float("nan")}, "row 'x', effect: Input should be a finite number; nan was given"),
        ({"change": {"n": 2**70}}, r"row 'x', change: .* too large .*1180591620717411303424"),
        ({"text": "caf\udce9"}, r"row 'x', text: .*surrogates not allowed"),
        ({"title": None}, "row 'x', title: Input should be a valid string; None was given"),
        ({"status": "good"}, "row 'x', status: Input should be 'draft', 'verified' or 'deprecated'; 'good' was given"),
    ],
)
def test_a_row_that_could_not_be_read_back_is_refused_before_anything_is_written(
    root: Path, fields: dict[str, Any], message: str
) -> None:
    store = Store(root)
    bad = experience("x").model_copy(update=fields)
    with pytest.raises(UserError, match=message):
        store.append({"experience": [experience("y"), bad]}, message="m", by="b")
    assert (store.latest, len(list((root / "data").iterdir()))) == (3, 3)


def test_a_message_that_no_file_can_hold_is_refused_before_anything_is_written(root: Path) -> None:
    store = Store(root)
    for words in ({"message": "caf\udce9", "by": "b"}, {"message": "m", "by": "caf\udce9"}):
        with pytest.raises(UserError, match=r"of a commit must be text that UTF-8 can hold; 'caf\\udce9' was given"):
            store.append({"experience": [experience("x")]}, **words)
    assert len(list((root / "data").iterdir())) == 3


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_something_else_in_the_place_of_the_turn_is_said(root: Path, make: Callable[[Path], None]) -> None:
    (root / ".turn").unlink()
    make(root / ".turn")
    with pytest.raises(PlaceError, match=r"\.turn.*(Is a directory|is no plain file)"):
        append(Store(root), "d")
    assert len(list((root / "data").iterdir())) == 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EFBIG])
def test_a_place_that_refuses_is_named_and_ends_with_status_2(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    assert main(["ckb", "tag", "gold", "--store", str(root)]) == 2
    said = capsys.readouterr().err
    assert f"can't write {root}/tags/gold.json: {os.strerror(number)}" in said
    assert ("GiB are left at" in said) == (number == errno.ENOSPC)
    with pytest.raises(PlaceError):
        append(Store(root), "d")
    assert len(list((root / "data").iterdir())) == 3, "no file that is left"


def test_a_tag_that_is_too_long_for_a_name_of_a_file_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ckb", "tag", "t" * 300, "--store", str(root)]) == 2
    assert "at most 100 letters" in capsys.readouterr().err
    assert Store(root).tag("t" * 100) == 3


def test_a_link_that_leads_nowhere_beside_the_versions_is_no_obstacle(root: Path) -> None:
    (root / "versions/loop").symlink_to("loop")
    assert ids(Store(root)) == ["a", "b", "c"]
    file = root / "file"
    file.write_text("x")
    with pytest.raises(PlaceError, match="Not a directory"):
        Store(file)
