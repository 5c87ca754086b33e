"""The export as Agent Skills: the format, what an agent finds in it, and folders that it is not written into."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ckb.build import read_seed
from ckb.errors import UserError
from ckb.facts import FACT_NAMES
from ckb.knowledge_files import parse_fragment
from ckb.records import Contract, Fragment, Provenance
from ckb.schemas import Experience, Guide
from roles.skills.export import export_skills
from roles.skills.layout import DESCRIPTIONS, READERS, flat, skills
from roles.skills.shelf import Shelf
from tests.unit.roles.skill_format import faults


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf(read_seed(), "version 7", '{"format": 2}')


@pytest.fixture(scope="module")
def files(shelf: Shelf) -> dict[str, str]:
    return flat(skills(shelf))


@pytest.fixture(scope="module")
def once(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once") / "skills"
    export_skills(shelf, folder)
    return folder


@pytest.fixture
def exported(once: Path, tmp_path: Path) -> Path:
    """An export of one's own, to be broken."""
    return Path(shutil.copytree(once, tmp_path / "skills"))


# --- the format -------------------------------------------------------------------------------------------------------


def test_every_skill_is_of_the_format(exported: Path) -> None:
    assert {place.name for place in exported.iterdir()} == set(DESCRIPTIONS)
    assert faults(exported) == []


def broken_front(key: str, value: object) -> Callable[[Path], None]:
    def breaks(skill: Path) -> None:
        text = (skill / "SKILL.md").read_text()
        _, front, body = text.split("---\n", 2)
        (skill / "SKILL.md").write_text(f"---\n{yaml.safe_dump(yaml.safe_load(front) | {key: value})}---\n{body}")

    return breaks


def appended(file: str, text: str) -> Callable[[Path], None]:
    def breaks(skill: Path) -> None:
        (skill / file).write_text((skill / file).read_text() + text)

    return breaks


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (broken_front("name", "enginesmith-Model"), "the name is"),
        (broken_front("name", "another"), "the name is"),
        (broken_front("description", "x" * 1025), "the description is"),
        (broken_front("description", ""), "the description is"),
        (broken_front("version", "1"), "unknown keys ['version']"),
        (broken_front("metadata", {"knowledge-base": 7}), "the metadata is"),
        (appended("SKILL.md", "[x](contracts/nowhere.md)"), "links to contracts/nowhere.md"),
        (appended("SKILL.md", "[x](../enginesmith-engine/SKILL.md)"), "no file of the skill"),
        (appended("contracts/model.md", "[x](../fragments/gone.py)"), "contracts/model.md links to"),
        (appended("SKILL.md", "\n" * 500), "lines, 1 to 500"),
        (lambda skill: (skill / "notes.md").write_text("hidden"), "SKILL.md does not name notes.md"),
        (lambda skill: (skill / "SKILL.md").write_text("# no front matter"), "has no front matter"),
        (lambda skill: (skill / "SKILL.md").unlink(), "there is no SKILL.md"),
    ],
)
def test_a_fault_of_the_format_is_noticed(exported: Path, breaks: Callable[[Path], object], says: str) -> None:
    breaks(exported / "enginesmith-model")
    found = faults(exported)
    assert len(found) >= 1
    assert all(fault.startswith("enginesmith-model: ") for fault in found)
    assert says in found[0]


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_every_usable_row_is_handed_on_and_drafts_stand_apart(shelf: Shelf, files: dict[str, str]) -> None:
    def skills_with(path: str) -> set[str]:
        return {name.partition("/")[0] for name in files if name.endswith(f"/{path}")}

    for contract in shelf.contracts:
        place = "enginesmith-check" if contract.stage == "acceptance" else f"enginesmith-{contract.stage}"
        assert skills_with(f"contracts/{contract.id}.md") == {place}, contract.id
    for draft in shelf.drafts:
        assert skills_with(f"contracts/{draft.id}.md") == {"enginesmith-gaps"}, draft.id
        assert "**A draft**" in files[f"enginesmith-gaps/contracts/{draft.id}.md"]
    for fragment in shelf.fragments:
        stage = next(c.stage for c in shelf.contracts if c.id == fragment.contract)
        assert skills_with(f"fragments/{fragment.id}.py") == {f"enginesmith-{stage}"}, fragment.id
    for guide in shelf.guides:
        folder = "procedures" if guide.kind == "procedure" else "guides"
        assert skills_with(f"{folder}/{guide.id}.md"), guide.id
    for table in ("models", "platforms", "parallelism"):
        assert all(skills_with(f"{table}/{row.id}.yaml") for row in shelf.rows[table]), table
    learned = files["enginesmith-tune/references/experience.md"]
    assert all(row.title in learned for row in shelf.experience)
    tests = files["enginesmith-check/references/tests.md"]
    assert all(f"`{test.gate}`" in tests for row in shelf.contracts for test in shelf.tests(row))


def test_every_reader_of_a_procedure_has_a_skill() -> None:
    guides = [row for row in read_seed()["guides"] if isinstance(row, Guide) and row.kind == "procedure"]
    placed = {reader for readers in READERS.values() for reader in readers}
    assert {role for guide in guides for role in guide.roles} == placed


def test_a_contract_says_when_it_is_in_force_how_it_is_checked_and_what_serves_it(files: dict[str, str]) -> None:
    text = files["enginesmith-execution/contracts/cpp-products.md"]
    for part in (
        "# Contract `cpp-products`: ",
        "In `kernels.py`, stage execution; builds on setup, cpp-vectors, weight-format.",
        "In force where: `choice.linear == 'native'`",
        "## How it is checked\n\n- L1, `",
        "- [cpp-products](../fragments/cpp-products.py): ",
        "Sources: ",
    ):
        assert part in text
    assert "may be used where `platform.accelerator == 'cuda'" in files["enginesmith-execution/contracts/rope.md"]


def test_the_preferred_example_comes_first(shelf: Shelf) -> None:
    fragments = [row for row in shelf.rows["fragments"] if isinstance(row, Fragment)]
    ranked = [row.model_copy(update={"rank": 5}) if row.id == "setup-torch" else row for row in fragments]
    more = flat(skills(Shelf({**shelf.rows, "fragments": ranked}, shelf.version, shelf.manifest)))
    for place in ("enginesmith-execution/SKILL.md", "enginesmith-execution/contracts/setup.md"):
        assert re.findall(r"\[(setup-\w+)\]", more[place]) == ["setup-torch", "setup-cuda", "setup-native"], place


def test_an_example_is_the_row_itself_below_one_line(shelf: Shelf, files: dict[str, str]) -> None:
    for fragment in shelf.fragments:
        stage = next(c.stage for c in shelf.contracts if c.id == fragment.contract)
        first, text = files[f"enginesmith-{stage}/fragments/{fragment.id}.py"].split("\n", 1)
        assert first == "# Knowledge base of Enginesmith, version 7."
        back = parse_fragment(Path(f"{fragment.id}.py"), text)
        assert back.model_copy(update={"created": fragment.created}) == fragment


def test_every_name_of_a_condition_is_explained(files: dict[str, str]) -> None:
    text = files["enginesmith-engine/references/facts.md"]
    assert set(re.findall(r"^\| `((?:model|platform|workload)\.\w+)`", text, re.MULTILINE)) == FACT_NAMES
    assert "| `model.rope_type` | str | `default` is the plain rotary embedding; " in text
    assert "| `model.sliding_window` | int \\| None |" in text
    assert "| `workload.dtype` | float32 or bfloat16 |" in text
    assert "| `HEAD_DIM` | `model.head_dim` |" in text
    assert "| `DTYPE` | `workload.dtype`, as a dtype of torch |" in text


def test_the_rules_name_what_an_audit_refuses(files: dict[str, str]) -> None:
    text = files["enginesmith-engine/references/rules.md"]
    for part in (
        "vllm",
        "transformers",
        "jinja2, numpy, safetensors",
        "| flash_attn | models, ",
        "kernels.py, cache.py",
    ):
        assert part in text


def test_every_file_says_its_version_and_the_same_knowledge_gives_the_same_bytes(
    shelf: Shelf, files: dict[str, str]
) -> None:
    assert all(text.count("Knowledge base of Enginesmith, version 7.\n") == 1 for text in files.values())
    shuffled = {table: list(reversed(rows)) for table, rows in shelf.rows.items()}
    assert flat(skills(Shelf(shuffled, shelf.version, shelf.manifest))) == files
    dated = {
        table: [row.model_copy(update={"created": "2020-01-01"}) for row in rows] for table, rows in shelf.rows.items()
    }
    assert flat(skills(Shelf(dated, shelf.version, shelf.manifest))) == files, "a seed's row has the date of its store"


def learned(id: str, **fields: object) -> Experience:
    return Experience.model_validate(
        {
            "id": id,
            "title": f"What {id} says",
            "kind": "optimisation",
            "signal": "confirmed",
            "text": "Pipes | and ``` are only text.",
            "provenance": Provenance(source="run", run="r"),
            **fields,
        }
    )


def test_what_runs_learned_is_handed_on_unless_it_is_tentative_or_settled(shelf: Shelf, tmp_path: Path) -> None:
    rows = [
        learned("issue/gate"),
        learned("guess", signal="tentative"),
        learned("draft", status="draft"),
        learned("gone", status="deprecated"),
    ]
    text = flat(skills(Shelf({**shelf.rows, "experience": rows}, "version 8", "{}")))[
        "enginesmith-tune/references/experience.md"
    ]
    assert "## What issue/gate says (confirmed)" in text
    assert "guess" not in text
    assert "draft" not in text
    assert "gone" not in text


def test_an_example_of_a_draft_and_one_of_the_whole_engine_lie_beside_their_contracts(
    shelf: Shelf, tmp_path: Path
) -> None:
    contracts = [row for row in shelf.rows["fragments"] if isinstance(row, Fragment)]
    filed = [row.model_copy(update={"contract": "rope-yarn"}) for row in contracts if row.id == "rope"]
    more = {**shelf.rows, "fragments": [*shelf.rows["fragments"][1:], *filed]}
    (tmp_path / "skills").mkdir()
    export_skills(Shelf(more, "version 7", "{}"), tmp_path / "skills")
    assert (tmp_path / "skills/enginesmith-gaps/fragments/rope.py").is_file()
    assert "| [rope](fragments/rope.py) |" in (tmp_path / "skills/enginesmith-gaps/SKILL.md").read_text()
    assert faults(tmp_path / "skills") == []


# --- where it is written ----------------------------------------------------------------------------------------------


def test_a_second_export_changes_nothing_and_another_version_replaces_all(exported: Path, shelf: Shelf) -> None:
    before = {path: path.read_bytes() for path in exported.rglob("*") if path.is_file()}
    assert export_skills(shelf, exported) == sorted(before)
    assert {path: path.read_bytes() for path in exported.rglob("*") if path.is_file()} == before
    export_skills(Shelf(shelf.rows, "version 8", shelf.manifest), exported)
    assert all(b"version 8.\n" in path.read_bytes() for path in before)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("mine/SKILL.md", "file"),
        ("enginesmith-model/contracts/mine.md", "file"),
        ("enginesmith-model/mine", "folder"),
        ("enginesmith-model/SKILL.md", "folder"),
        ("enginesmith-model", "file"),
        ("enginesmith-model", "link"),
        ("enginesmith-model/SKILL.md", "link"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused_untouched(
    shelf: Shelf, tmp_path: Path, place: str, kind: str
) -> None:
    out = tmp_path / "skills"
    (out / place).parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        (out / place).mkdir()
    elif kind == "link":
        (out / place).symlink_to(tmp_path)
    else:
        (out / place).write_text("mine")
    before = sorted(out.rglob("*"))
    with pytest.raises(UserError, match=r"none of the \d+ files of these skills: name an empty folder"):
        export_skills(shelf, out)
    assert sorted(out.rglob("*")) == before


def test_no_folder_and_no_knowledge_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is no folder"):
        export_skills(shelf, tmp_path / "file")
    drafts = {"contracts": [row for row in shelf.rows["contracts"] if isinstance(row, Contract) and not row.usable]}
    with pytest.raises(UserError, match="version 0 holds no verified contract"):
        export_skills(Shelf(drafts, "version 0", "{}"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unnamed = [row.model_copy(update={"id": "a/b"}) for row in shelf.rows["models"][:1]]
    with pytest.raises(UserError, match="'a/b' is no file name"):
        export_skills(Shelf({**shelf.rows, "models": unnamed}, "version 7", "{}"), tmp_path / "out")
