"""Log, diff, blame, vacuum and verify."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ckb.errors import UserError
from ckb.history import RowChange, blame, diff
from ckb.maintenance import vacuum, verify
from ckb.manifest import CHECKPOINT_EVERY
from ckb.schemas import Experience
from ckb.storage import LocalStorage
from ckb.store import Store
from ckb.versions import manifest_path, page_path
from ckb.views import columns, counts, diff_lines, headline, log_lines, shortened, show, show_row
from tests.unit.ckb.samples import ROWS, experience


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Versions: 1 adds a and b, 2 a run, 3 changes b and adds c."""
    store = Store.create(tmp_path / "store")
    store.append({"experience": [experience("a"), experience("b")]}, message="two", by="ann")
    store.append({"runs": [ROWS["runs"]]}, message="a run", by="bob")
    changed = [experience("b", effect=0.5), experience("c")]
    store.overwrite({"experience": changed}, parent=2, message="better", by="cy")
    return store


def test_diff_names_the_rows_and_the_fields_that_differ(store: Store) -> None:
    changes = diff(store, 1, 3)
    assert [(c.table, c.id, c.kind) for c in changes] == [
        ("experience", "b", "changed"), ("experience", "c", "added"), ("runs", "a", "added"),
    ]  # fmt: skip
    assert changes[0] == RowChange(
        "experience", "b", "changed", {"effect": (None, 0.5), "interval": (None, [0.45, 0.55])}
    )
    assert [(c.id, c.kind) for c in diff(store, 3, 1)] == [("b", "changed"), ("c", "removed"), ("a", "removed")]
    assert diff(store, 2, 2) == []


def test_blame_names_the_commit_that_wrote_the_row(store: Store) -> None:
    assert [blame(store, "experience", id).version for id in "abc"] == [1, 3, 3], "a was only rewritten by version 3"
    assert blame(store, "experience", "b", 2).by == "ann"
    with pytest.raises(UserError, match="no row 'c' at version 2"):
        blame(store, "experience", "c", 2)


def test_the_views_show_what_happened_and_what_is_there(store: Store) -> None:
    store.tag("gold", 3)
    lines = log_lines(store)
    assert [(line.version, line.by, line.message, line.rows, line.tags) for line in lines] == [
        (3, "cy", "better", {"experience": 2}, ("gold",)),
        (2, "bob", "a run", {"runs": 1}, ()),
        (1, "ann", "two", {"experience": 2}, ()),
        (0, "store", "empty", {}, ()),
    ]
    assert (counts(store)["experience"], counts(store, 2)["experience"], counts(store)["traces"]) == (3, 2, 0)
    assert [row.id for row in show(store, "experience")] == ["a", "b", "c"]
    assert show_row(store, "experience", "b", 2) == experience("b")
    with pytest.raises(UserError, match="no row 'z' at version 3"):
        show_row(store, "experience", "z")


def hours_from_now(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def test_vacuum_keeps_what_a_version_within_the_grace_period_needs(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store/data/orphan.parquet").write_bytes(b"of a killed writer")
    (tmp_path / "store/versions/.x.tmp").write_bytes(b"of another")
    assert vacuum(store, timedelta(hours=1), by="me") == []
    assert store.latest == 3
    deleted = vacuum(store, timedelta(hours=1), by="me", now=hours_from_now(2))
    assert len(deleted) == 3, "two leftovers, and the file that version 3 replaced"
    assert {"data/orphan.parquet", "versions/.x.tmp"} < set(deleted)
    assert sorted(row.id for row in store.rows(Experience)) == ["a", "b", "c"]
    with pytest.raises(UserError, match="version 1 was vacuumed away; the oldest that can be read is 3"):
        store.rows(Experience, 1)
    assert verify(store) == []
    assert [manifest.operation for manifest in Store(tmp_path / "store").log()][:3] == ["vacuum", "vacuum", "overwrite"]
    assert vacuum(store, timedelta(hours=1), by="me", now=hours_from_now(2)) == [], "nothing is left to do"


def test_a_vacuum_without_grace_leaves_alone_what_a_commit_is_about_to_publish(tmp_path: Path) -> None:
    class Raced(LocalStorage):
        """Somebody vacuums after the data file was written, and before the manifest that names it."""

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith("versions/"):
                assert vacuum(Store(tmp_path / "store"), timedelta(0), by="me") == []
            super().put_if_absent(path, data)

    Store.create(tmp_path / "store")
    store = Store(Raced(tmp_path / "store"))
    store.append({"experience": [experience("a")]}, message="m", by="b")
    assert verify(store) == []


def test_vacuum_never_goes_below_a_tag(store: Store) -> None:
    store.tag("gold", 2)
    assert vacuum(store, timedelta(0), by="me", now=hours_from_now(2)) == []
    assert [sorted(row.id for row in store.rows(Experience, v)) for v in ("gold", 3)] == [["a", "b"], ["a", "b", "c"]]


def test_a_vacuumed_version_stays_away_over_checkpoints(store: Store, tmp_path: Path) -> None:
    vacuum(store, timedelta(0), by="me", now=hours_from_now(2))
    for n in range(CHECKPOINT_EVERY):
        store.append({"experience": [experience(f"{n}")]}, message="m", by="b")
    with pytest.raises(UserError, match="vacuumed away"):
        Store(tmp_path / "store").rows(Experience, 1)
    assert verify(store) == []


def test_verify_finds_every_kind_of_damage(store: Store, tmp_path: Path) -> None:
    assert verify(store) == []
    data = sorted((tmp_path / "store/data").iterdir(), key=lambda path: path.stat().st_mtime)
    manifest = tmp_path / "store" / manifest_path(2)
    for path, content, fault in (
        (data[0], data[0].read_bytes()[:-1], "bytes, the manifest says"),
        (data[0], bytes(data[0].stat().st_size), "the checksum does not fit"),
        (data[1], None, "missing, it had 1 rows"),
        (manifest, manifest.read_bytes().replace(b"a run", b"a fun"), "the checksum does not fit"),
        (manifest, b"{", "is no JSON|EOF|damaged"),
        (manifest, None, "No such file"),
    ):
        kept = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        faults = verify(store)
        assert len(faults) == 1, (path, faults)
        assert any(words in faults[0] for words in fault.split("|")), faults
        path.write_bytes(kept)
    assert verify(store) == []


def test_a_damaged_data_file_is_named_when_it_is_read(store: Store, tmp_path: Path) -> None:
    for path in (tmp_path / "store/data").iterdir():
        os.truncate(path, path.stat().st_size - 9)
    with pytest.raises(UserError, match=r"damaged: data/experience-.*\.parquet"):
        store.rows(Experience)


def test_the_log_is_read_by_pages(store: Store, tmp_path: Path) -> None:
    count = 2 * CHECKPOINT_EVERY + 3
    for n in range(count - 3):
        store.append({"experience": [experience(f"{n}")]}, message=f"{n}", by="b")

    class Counting(LocalStorage):
        reads = 0

        def read(self, path: str) -> pa.Buffer:
            self.reads += 1
            return super().read(path)

    counting = Counting(tmp_path / "store")
    opened = Store(counting)
    counting.reads = 0
    log = opened.log()
    assert counting.reads <= 2 + 2 + 1 + 3, "two looks ahead, two pages, version 0 and those since the last page"
    assert [manifest.version for manifest in log] == list(range(count, -1, -1))
    pages = sorted((tmp_path / "store/log").iterdir())
    assert [page.name for page in pages] == ["0000000064.json", "0000000128.json"]
    pages[0].unlink()
    assert Store(tmp_path / "store").log() == log, "a page is a copy, and its writer may have been killed"
    assert verify(store) == []


def test_a_page_of_the_log_that_lies_is_found(store: Store, tmp_path: Path) -> None:
    for n in range(CHECKPOINT_EVERY):
        store.append({"experience": [experience(f"{n}")]}, message=f"{n}", by="b")
    page = tmp_path / "store" / page_path(CHECKPOINT_EVERY)
    kept = page.read_bytes()
    page.write_bytes(kept.replace(b'"by":"bob"', b'"by":"eve"'))
    assert verify(store) == [f"{page_path(CHECKPOINT_EVERY)}: it is not what the manifests say"]
    page.write_bytes(kept.replace(b'"format":1', b'"format":7'))
    assert len(verify(store)) == 1
    page.write_bytes(kept[:-9])
    assert len(verify(store)) == 1


def test_verify_finds_ids_that_a_table_holds_twice_and_tags_of_nothing(store: Store, tmp_path: Path) -> None:
    store.append({"experience": [experience("a", text="again")]}, message="m", by="b")
    (tmp_path / "store/tags").mkdir()
    (tmp_path / "store/tags/late.json").write_text('{"version": 9}')
    assert verify(store) == ["tags/late.json: there is no version 9", "experience: 2 rows have the id 'a'"]
    (tmp_path / "store/tags/late.json").write_text('{"vers')
    assert any("tags/late.json names no version" in fault for fault in verify(store))
    with pytest.raises(UserError, match=r"tags/late\.json names no version"):
        store.rows(Experience, "gold")


def test_a_tag_that_a_vacuum_forestalled_is_taken_back_and_holds_no_vacuum_up(store: Store, tmp_path: Path) -> None:
    class Vacuuming(LocalStorage):
        """A vacuum comes between the tagger's look at the version and the tag."""

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith("tags/"):
                vacuum(Store(self.root), timedelta(0), by="me", now=hours_from_now(2))
            super().put_if_absent(path, data)

    with pytest.raises(UserError, match="version 1 was vacuumed away"):
        Store(Vacuuming(tmp_path / "store")).tag("gold", 1)
    assert store.tags() == {}
    (tmp_path / "store/tags/gold.json").write_text('{"version": 1}')  # its writer was killed before it took it back
    store.overwrite({"experience": [experience("a", text="new")]}, parent=5, message="m", by="b")
    assert len(vacuum(store, timedelta(0), by="me", now=hours_from_now(2))) == 1
    assert store.state().horizon == 6
    (fault,) = verify(store)
    assert fault.startswith("tags/gold.json: version 1 was vacuumed away, the oldest that can be read is 6")


def test_a_negative_grace_period_is_refused(store: Store) -> None:
    with pytest.raises(UserError, match="can't be negative: -1 day"):
        vacuum(store, timedelta(days=-1), by="me")


def test_a_blame_reads_the_log_no_further_than_it_must(store: Store, tmp_path: Path) -> None:
    for n in range(2 * CHECKPOINT_EVERY):
        store.append({"experience": [experience(f"{n}")]}, message=f"{n}", by="b")

    class Watching(LocalStorage):
        pages: tuple[str, ...] = ()

        def read(self, path: str) -> pa.Buffer:
            self.pages += (path,) if path.startswith("log/") else ()
            return super().read(path)

    watching = Watching(tmp_path / "store")
    opened = Store(watching)
    assert blame(opened, "experience", f"{2 * CHECKPOINT_EVERY - 10}").version == 2 * CHECKPOINT_EVERY - 6
    assert watching.pages == (page_path(2 * CHECKPOINT_EVERY),)
    assert blame(opened, "experience", "a").version == 1
    (tmp_path / "store/log/0000000064.json").unlink()
    (tmp_path / "store" / manifest_path(1)).write_bytes((tmp_path / "store" / manifest_path(2)).read_bytes())
    with pytest.raises(UserError, match=r"0000000001\.json is damaged"):
        blame(opened, "experience", "a")


def test_a_difference_shows_what_was_and_what_is(store: Store) -> None:
    store.overwrite(
        {"experience": [experience("b", text="x" * 100 + "old" + "y" * 100, change={"fused": True, "ROWS": 8})]},
        parent=3, message="m", by="b",
    )  # fmt: skip
    store.overwrite(
        {"experience": [experience("b", text="x" * 100 + "new" + "y" * 100, change={"fused": 1})]},
        parent=4, message="m", by="b",
    )  # fmt: skip
    (line,) = diff_lines(store, 4, 5)
    assert (line.table, line.id, line.change) == ("experience", "b", "changed")
    assert line.fields["change"] == ({"fused": True, "ROWS": 8}, {"fused": 1})
    assert shortened(*line.fields["change"]) == '{"fused": true, "ROWS": 8} -> {"fused": 1}'
    x, y = "x" * 12, "y" * 25
    assert shortened(*line.fields["text"]) == f"...{x}old{y}... -> ...{x}new{y}..."
    assert shortened(None, 0.5) == "null -> 0.5"
    assert [(line.id, line.change) for line in diff_lines(store, 3, 1)] == [
        ("b", "changed"),
        ("c", "removed"),
        ("a", "removed"),
    ]


@pytest.mark.parametrize("table", ROWS)
def test_a_row_of_every_table_says_something_in_a_line(table: str) -> None:
    assert headline(ROWS[table])


def test_a_headline_without_a_title_is_the_first_sentence_in_one_line() -> None:
    row = ROWS["test_contracts"].model_copy(update={"text": "A scale of 0.5\nis seen. So is\nanother.\n"})
    assert headline(row) == "A scale of 0.5 is seen"


def test_a_test_contract_is_found_by_its_gate_and_listed_with_it(store: Store) -> None:
    row = ROWS["test_contracts"].model_copy(update={"id": "model", "gate": "forward"})
    store.append({"test_contracts": [row]}, message="a test", by="ann")
    assert columns(store, "test_contracts") == ("gate", "level", "stage")
    assert columns(store, "experience") == ()
    assert show_row(store, "test_contracts", "forward") == show_row(store, "test_contracts", "model") == row
    with pytest.raises(UserError, match="no row 'backward' and no gate of that name at version 4"):
        show_row(store, "test_contracts", "backward")
    with pytest.raises(UserError, match="table 'experience' has no row 'forward' at version 4"):
        show_row(store, "experience", "forward")
