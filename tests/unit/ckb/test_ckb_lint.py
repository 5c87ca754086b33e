"""Lint: each kind of fault is found, in a copy of the seed, which itself has none."""

import re
import shutil
from pathlib import Path

import pytest

from ckb.build import build, read_seed
from ckb.knowledge_files import KNOWLEDGE, SUFFIXES, read_row
from ckb.lint import Problem, lint, lint_files, lint_store
from ckb.records import Row
from ckb.store import Store
from tests.unit.ckb.samples import experience

NEW = "---\ntitle: t\nstage: model\nmodule: model.py\norder: 1\ninterface: []\ntest: model\n"
FRAGMENT = "# ---\n# contract: {contract}\n# title: t\n# rank: -1\n{more}# ---\nx = 1\n"


def test_the_seed_has_no_problem(tmp_path: Path) -> None:
    assert lint_files() == []
    build(tmp_path / "store")
    assert lint_store(Store(tmp_path / "store")) == []


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("contracts/new.md", NEW + "requires: [nothing]\n---\n", "requires the unknown contract 'nothing'"),
        ("contracts/new.md", NEW.replace("test: model", "test: none") + "---\n", "has no test: .* 'none'"),
        ("contracts/new.md", NEW + "applies_to: model.heads ==\n---\n", "applies_to: .*does not parse"),
        ("contracts/new.md", NEW + "applies_to: len(x) > 1\n---\n", "applies_to: .*not part of the language"),
        ("contracts/new.md", NEW + "applies_to: model.head == 1\n---\n", "applies_to: names the fact model.head"),
        ("contracts/new.md", NEW + "applies_to: choice.zz == 1\n---\n", "names the decision choice.zz"),
        (
            "contracts/new.md",
            NEW + "decisions: {a: [1]}\ndecision_requires: {a=2: ''}\n---\n",
            "a condition for a=2, which is no option",
        ),
        (
            "platforms/new.yaml",
            "{title: t, accelerator: cpu, dtypes: [], applies_to: model.heads == 1}",
            "applies_to asks about model.heads; only platform facts can be",
        ),
        ("contracts/new.md", NEW + "decisions: {a: [1, 1]}\n---\n", "a has no options, or one twice"),
        (
            "contracts/new.md",
            NEW + "decisions: {a: [1]}\ndecision_requires: {a=1: model.x}\n---\n",
            "a=1: names the fact model.x",
        ),
        ("fragments/new.py", FRAGMENT.format(contract="nothing", more=""), "the unknown contract 'nothing'"),
        (
            "fragments/new.py",
            FRAGMENT.format(contract="rope", more="# parameters: {N: [1]}\n# parameter_requires: {N=1: zz}\n"),
            "N=1: names the fact zz",
        ),
        ("fragments/new.py", FRAGMENT.format(contract="rope", more="") + "x = 1\n" * 75, "has 81 lines, at most 80"),
        ("fragments/new.py", FRAGMENT.format(contract="rope", more="") + "x = (\n", "does not parse"),
        (
            "fragments/new.py",
            FRAGMENT.format(contract="rope", more="") + "import os\n",
            r"new\.py:6: a statement stands",
        ),
        ("contracts/new.md", "no front matter\n", r"new\.md: the file starts with YAML front matter"),
        ("contracts/new.md", NEW + "created: 2026-13-99\n---\n", r"new\.md is no YAML: month must be"),
        ("contracts/new.md", NEW + f"state: {'[' * 20000}\n---\n", r"new\.md is no YAML: "),
        ("contracts/new.md", NEW + "colour: red\n---\n", r"new\.md: colour: Extra inputs are not permitted"),
        (
            "test_contracts/new.md",
            "---\ncontract: nothing\nstage: model\nlevel: L1\ngate: g\n---\nt\n",
            "checks the unknown contract 'nothing'",
        ),
    ],
)
def test_each_fault_is_found_once_with_its_row(tmp_path: Path, file: str, content: str, what: str) -> None:
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))
    (seed / file).write_text(content)
    # a platform more is also one that each guide must speak of: that is the guides' test
    (problem,) = (problem for problem in lint_files(seed) if problem.table != "guides")
    assert (problem.table, problem.id) == (file.split("/")[0], "new")
    assert re.search(what, problem.what)


def test_files_that_cannot_be_read_hide_no_problem_of_the_others(tmp_path: Path) -> None:
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))
    (seed / "contracts/a-folder.md").mkdir()
    (seed / "contracts/latin.md").write_bytes(b"\xff\xfe")
    (seed / "models/none.yaml").write_text("- a list\n")
    (seed / "contracts/new.md").write_text(NEW + "requires: [nothing]\n---\n")
    found = [(problem.table, problem.id, problem.what) for problem in lint_files(seed)]
    expected = (
        ("contracts", "a-folder", "a-folder.md can't be read: .*Is a directory"),
        ("contracts", "latin", "latin.md can't be read: 'utf-8' codec can't decode"),
        ("models", "none", "none.yaml holds no mapping of fields"),
        ("contracts", "new", "requires the unknown contract 'nothing'"),
    )
    for (table, id, what), (in_table, of, text) in zip(found, expected, strict=True):
        assert (table, id) == (in_table, of)
        assert re.search(text, what), what


def test_what_lint_reads_is_what_a_build_reads() -> None:
    rows = {
        table: [read_row(table, path) for path in sorted((KNOWLEDGE / table).glob(f"*{suffix}"))]
        for table, suffix in SUFFIXES.items()
    }
    assert rows == read_seed()


@pytest.mark.parametrize("code", ["x = (\n", "x = '\0'\n", "x = '\ud800'\n", "x = " + "-" * 5000 + "1\n"])
def test_code_of_the_store_that_does_not_parse_is_a_problem(code: str) -> None:
    rows = dict(read_seed())
    fragment = next(row for row in rows["fragments"] if row.id == "rope")
    rows["fragments"] = [row for row in rows["fragments"] if row.id != "rope"]
    (problem,) = lint({**rows, "fragments": [*rows["fragments"], fragment.model_copy(update={"code": code})]})
    assert (problem.table, problem.id) == ("fragments", "rope")
    assert problem.what.startswith("does not parse: ")


def test_contracts_that_require_each_other_are_a_problem_of_one_of_them() -> None:
    rows = dict(read_seed())
    more = {"rope": ("attention",), "attention": ("rope", "linear"), "linear": ("linear",), "kv-cache": ("rope",)}
    assert more.keys() <= {row.id for row in rows["contracts"]}
    rows["contracts"] = [row.model_copy(update={"requires": more.get(row.id, ())}) for row in rows["contracts"]]
    assert lint(rows) == [
        Problem("contracts", "attention", "requires itself: attention -> rope -> attention"),
        Problem("contracts", "linear", "requires itself: linear -> linear"),
    ]
    three = {"rope": ("attention",), "attention": ("linear",), "linear": ("rope",)}
    rows["contracts"] = [row.model_copy(update={"requires": three.get(row.id, ())}) for row in rows["contracts"]]
    (problem,) = lint(rows)
    assert problem.what == "requires itself: attention -> linear -> rope -> attention"


def test_faults_that_no_file_can_hold(tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {"experience": [experience("a"), experience("a")]}
    assert lint(rows) == [Problem("experience", "a", "there are 2 rows with this id")]
    retired = experience("b", status="deprecated", applies_to="nonsense ==")
    assert lint({"experience": [retired]}) == []
