"""The seed files become version 1, changes become versions, and generation reads one pinned version."""

import shutil
from pathlib import Path

import pytest

from ckb.build import Build, build, ensure_store, read_knowledge_at, read_seed
from ckb.errors import UserError
from ckb.history import diff
from ckb.knowledge_files import KNOWLEDGE, KnowledgeFileError, read_knowledge
from ckb.records import Contract, Provenance
from ckb.schemas import Experience
from ckb.storage import LocalStorage
from ckb.store import Store
from ckb.versions import manifest_path
from tests.unit.ckb.samples import experience


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    """A copy of the seed files that a test may change."""
    return Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))


def test_the_seed_is_version_1_and_building_again_adds_nothing(seed: Path, tmp_path: Path) -> None:
    first = build(tmp_path / "store", seed)
    files = {table: len(rows) for table, rows in read_seed(seed).items() if rows}
    assert first.version == 1
    assert {table: len(ids) for table, ids in first.added.items()} == files
    assert build(tmp_path / "store", seed) == Build(1)
    assert build(tmp_path / "store", seed).unchanged


def test_the_store_gives_generation_what_the_files_say(seed: Path, tmp_path: Path) -> None:
    knowledge = read_knowledge_at(ensure_store(tmp_path / "store", seed), 1)
    files = read_knowledge(seed)
    undated = {id: row.model_copy(update={"created": ""}) for id, row in knowledge.contracts.items()}
    assert undated == files.contracts
    assert {f.id: f.code for f in knowledge.fragments.values()} == {f.id: f.code for f in files.fragments.values()}
    assert all(row.created for row in knowledge.contracts.values())
    assert knowledge.version == 1


def test_a_changed_file_overwrites_its_row_in_a_new_version(seed: Path, tmp_path: Path) -> None:
    build(tmp_path / "store", seed, today="2026-01-01")
    path = seed / "contracts/rope.md"
    path.write_text(path.read_text().replace("title: ", "title: Changed ", 1))
    outcome = build(tmp_path / "store", seed, today="2026-02-02")
    assert outcome == Build(2, changed={"contracts": ("rope",)})
    store = Store(tmp_path / "store")
    (change,) = diff(store, 1, 2)
    assert (change.id, list(change.fields)) == ("rope", ["title"]), "the date of the first version stays"
    assert not read_knowledge_at(store, 1).contracts["rope"].title.startswith("Changed"), (
        "the pinned version is as it was"
    )
    assert read_knowledge_at(store).contracts["rope"].title.startswith("Changed")


def test_a_removed_file_deprecates_its_row_and_generation_no_longer_sees_it(seed: Path, tmp_path: Path) -> None:
    build(tmp_path / "store", seed)
    text = (seed / "fragments/rope.py").read_text()
    (seed / "fragments/rope.py").unlink()
    assert build(tmp_path / "store", seed) == Build(2, deprecated={"fragments": ("rope",)})
    store = Store(tmp_path / "store")
    assert "rope" in read_knowledge_at(store, 1).fragments
    assert "rope" not in read_knowledge_at(store, 2).fragments
    assert build(tmp_path / "store", seed) == Build(2), "once is enough"
    (seed / "fragments/rope.py").write_text(text)
    assert build(tmp_path / "store", seed) == Build(3, changed={"fragments": ("rope",)})
    assert "rope" in read_knowledge_at(store).fragments


def test_what_a_run_wrote_is_left_alone(seed: Path, tmp_path: Path) -> None:
    store = ensure_store(tmp_path / "store", seed)
    learned = experience("learned", provenance=Provenance(source="run", run="r"))
    store.append({"experience": [learned]}, message="m", by="b")
    assert build(tmp_path / "store", seed) == Build(2)
    assert learned in store.rows(Experience)
    fields = "title: t\nkind: debugging\nsignal: confirmed"
    (seed / "experience").mkdir(exist_ok=True)
    (seed / "experience/learned.md").write_text(f"---\n{fields}\n---\ntext\n")
    with pytest.raises(UserError, match="'learned' is the id of a row that a run wrote"):
        build(tmp_path / "store", seed)


def test_two_builds_at_once_import_the_seed_once(seed: Path, tmp_path: Path) -> None:
    class Raced(LocalStorage):
        """Another build comes first, at the last moment."""

        done = False

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path == manifest_path(1) and not self.done:
                self.done = True
                assert build(self.root, seed).version == 1
            super().put_if_absent(path, data)

    assert build(Raced(tmp_path / "store"), seed) == Build(1)
    assert Store(tmp_path / "store").latest == 1


def test_draft_rows_are_not_for_generation(seed: Path, tmp_path: Path) -> None:
    store = ensure_store(tmp_path / "store", seed)
    rope = read_knowledge_at(store).contracts["rope"]
    assert isinstance(rope, Contract)
    store.overwrite({"contracts": [rope.model_copy(update={"status": "draft"})]}, parent=1, message="m", by="b")
    assert "rope" not in read_knowledge_at(store).contracts


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("contracts/x.md", "title: no front matter", "starts with YAML front matter"),
        ("experience/x.md", "---\n- a list\n---\ntext", "holds no mapping"),
        ("models/x.yaml", "a: [", "is no YAML"),
        ("models/x.yaml", "title: t\nmodel_typ: llama", "model_typ: Extra inputs are not permitted"),
        ("test_contracts/x.md", "---\nlevel: L9\n---\ntext", "level: Input should be"),
        ("fragments/x.py", "# ---\n# contract: rope\n# ---\nx = (", "does not parse"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_built(
    seed: Path, tmp_path: Path, file: str, content: str, fault: str
) -> None:
    (seed / file).parent.mkdir(exist_ok=True)
    (seed / file).write_text(content)
    with pytest.raises(KnowledgeFileError, match=fault) as caught:
        build(tmp_path / "store", seed)
    assert file in str(caught.value)
    assert not (tmp_path / "store").exists()
