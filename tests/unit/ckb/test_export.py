"""The canonical form: committed files have it, the store gives it back, and one changed field shows in one file."""

import ast
import difflib
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ckb.build import build, ensure_store, read_seed
from ckb.errors import UserError
from ckb.export import export, export_files, export_store, render, render_row
from ckb.knowledge_files import KNOWLEDGE, SUFFIXES, KnowledgeFileError, parse_fragment, parse_text_row, parse_yaml_row
from ckb.records import Contract, ErrorCase, Fragment, Provenance, Row
from ckb.schemas import TABLES
from ckb.store import Store
from ckb.yaml_form import WIDTH, to_yaml
from tests.unit.ckb.samples import ROWS, experience

ROOT = Path(__file__).parents[3]
FORMAT = "run `enginesmith ckb export ckb/knowledge --seed`"
SEED = render(read_seed())
FOREIGN = Provenance(source="run", run="r")


def contents(root: Path) -> dict[str, str]:
    """Every file below a folder by its path."""
    return {str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in sorted(root.rglob("*")) if p.is_file()}


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the seed."""
    path = tmp_path_factory.mktemp("store")
    ensure_store(path)
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Store:
    """A copy of it that a test may add versions to."""
    return Store(Path(shutil.copytree(built, tmp_path / "store")))


def test_the_committed_files_are_in_canonical_form() -> None:
    committed = {name: text for name, text in contents(KNOWLEDGE).items() if name.split("/")[0] in SUFFIXES}
    assert committed.keys() == SEED.keys()
    wrong = {n: changed_lines(committed[n], text)[:4] for n, text in SEED.items() if committed[n] != text}
    assert wrong == {}, FORMAT


def test_every_table_of_the_seed_has_a_form() -> None:
    assert SUFFIXES.keys() == read_seed().keys()


def test_build_then_export_is_the_identity_and_so_is_a_second_round(built: Path, tmp_path: Path) -> None:
    files = export_store(Store(built), tmp_path / "out", 1)
    assert contents(tmp_path / "out") == SEED
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in files) == sorted(contents(tmp_path / "out"))
    again = build(tmp_path / "second", tmp_path / "out")
    export_store(Store(tmp_path / "second"), tmp_path / "third", again.version)
    assert contents(tmp_path / "third") == contents(tmp_path / "out")


def test_formatting_a_badly_laid_out_file_changes_its_lines_and_not_its_row(tmp_path: Path) -> None:
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "seed"))
    path = seed / "contracts/rope.md"
    tidy = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(r"^title: (.*)$", r"title:\n    '\1'\nlayer:   contract", tidy, count=1, flags=re.M) + "\n\n"
    )
    rows = read_seed(seed)
    assert path.read_text(encoding="utf-8") != tidy
    export_files(seed, seed)
    assert path.read_text(encoding="utf-8") == tidy
    assert read_seed(seed) == rows


CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("contracts", "rope", {"title": "Another title"}),
    ("contracts", "rope", {"text": "One line.\n\n---\n\nAnd another.\n"}),
    ("contracts", "rope", {"order": 70}),
    ("contracts", "rms-norm", {"requires": ("setup",)}),
    ("contracts", "kv-cache", {"decisions": {"kv_layout": ("token_major", "head_major")}}),
    ("contracts", "kv-cache", {"status": "draft"}),
    ("contracts", "kv-cache", {"applies_to": "model.heads > 1"}),
    ("contracts", "kv-cache", {"state": ()}),
    ("fragments", "rope", {"rank": 3}),
    ("fragments", "rope", {"imports": ("import math", "import torch", "from .cache import KVCache")}),
    ("fragments", "cpp-products", {"parameters": {"STREAMS": (4,), "PREFETCH": (0, 512, 1024, 2048)}}),
    ("fragments", "cpp-products", {"code": "STREAMS = 1\n"}),
    ("models", "llama", {"model_type": "llama5"}),
    ("platforms", "cpu-x86-64", {"dtypes": ("float32",)}),
    ("experience", "stale-build-lock", {"signal": "tentative"}),
    ("test_contracts", "rope", {"gate": "another"}),
]


def in_rounds() -> list[list[tuple[str, str, dict[str, Any]]]]:
    """The changes in as few exports as there may be: no row twice in one."""
    rounds: list[list[tuple[str, str, dict[str, Any]]]] = []
    for change in CHANGES:
        fitting = (one for one in rounds if all(other[:2] != change[:2] for other in one))
        if (free := next(fitting, None)) is None:
            rounds.append(free := [])
        free.append(change)
    return rounds


@pytest.mark.parametrize("changes", in_rounds(), ids=lambda changes: str(len(changes)))
def test_one_field_changed_in_the_store_shows_in_one_file(
    store: Store, tmp_path: Path, changes: list[tuple[str, str, dict[str, Any]]]
) -> None:
    rows = {(table, row.id): row for table in SUFFIXES for row in store.rows(table)}
    others: dict[str, list[Row]] = {table: [] for table in SUFFIXES}
    for table, id, change in changes:
        others[table].append(type(rows[table, id]).model_validate(rows[table, id].model_dump() | change))
        assert others[table][-1] != rows[table, id]
    store.overwrite(others, parent=1, message="m", by="b")
    export_store(store, tmp_path / "out")
    after = contents(tmp_path / "out")
    assert after.keys() == SEED.keys()
    assert {n for n in SEED if after[n] != SEED[n]} == {f"{t}/{id}{SUFFIXES[t]}" for t, id, _ in changes}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where the single values of nested fields stand."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    return [path]


def replaced(value: Any, path: tuple[str | int, ...]) -> Any:
    """The same, with another value at that place."""
    if path:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        new = {key: replaced(item, path[1:]) if key == path[0] else item for key, item in pairs}
        return new if isinstance(value, dict) else tuple(new.values())
    return {None: ("N",), "host": "device", "device": "either", "either": "host"}.get(value, f"{value} x")


TYPED = ("requires", "interface", "native", "decisions", "state", "transitions", "error_cases", "failures")


EACH_CONTRACT = [
    pytest.param(row, id=row.id, marks=pytest.mark.slow if row.status == "draft" else ())
    for row in read_seed()["contracts"]
]


@pytest.mark.parametrize("contract", EACH_CONTRACT)
def test_a_change_of_one_typed_value_touches_few_lines_or_is_refused(contract: Contract) -> None:
    fields, before = contract.model_dump(), render_row("contracts", contract)
    for path in (leaf for name in TYPED for leaf in leaves(fields[name], (name,))):
        changed = replaced(fields, path)
        try:
            row = Contract.model_validate(changed)
        except ValidationError:  # an error case of a function that the interface lacks
            assert path[-1] in ("name", "function")
            continue
        lines = changed_lines(before, render_row("contracts", row))
        assert 1 <= len(lines) <= 16, (path, lines)


def test_an_error_case_of_a_function_that_is_not_offered_is_refused() -> None:
    fields = ROWS["contracts"].model_dump()
    fields["error_cases"] = (ErrorCase(function="nobody", condition="c", exception="ValueError"),)
    with pytest.raises(ValidationError, match="error cases of nobody, which the interface does not offer"):
        Contract.model_validate(fields)


@pytest.mark.parametrize("table", SUFFIXES)
def test_a_row_born_in_the_store_survives_its_file_with_every_field(table: str, tmp_path: Path) -> None:
    row = ROWS[table]  # a draft of a run, dated, its text without a line's end
    assert row.provenance.source == "run"
    store = Store.create(tmp_path / "store")
    store.append({table: [row]}, message="m", by="b")
    export_store(store, tmp_path / "out")
    build(tmp_path / "other", tmp_path / "out")
    back = Store(tmp_path / "other").rows(TABLES[table])
    assert [repr(found) for found in back] == [repr(row)]


ODD = (
    "",
    "\n",
    " x",
    "x",
    "x\n",
    "x\n\n",
    "a\r\nb\n",
    "---\n",
    "# not a comment\n",
    "a: b\n",
    "größe 漢字 😀\n",
    "\t- x\n",
    "a\u2028b\n",
)


@pytest.mark.parametrize("text", ODD)
def test_whatever_a_text_holds_it_comes_back(text: str, tmp_path: Path) -> None:
    row = experience("odd", text=text, title=text, provenance=FOREIGN, created="2026-01-02")
    (path,) = export({"experience": [row]}, tmp_path)
    assert parse_text_row(path, path.read_text(encoding="utf-8"), type(row)) == row


def test_a_text_can_stand_in_one_place_only(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeFileError, match="the text stands twice"):
        parse_text_row(tmp_path / "x.md", "---\ntitle: t\ntext: here\n---\nand here\n", type(ROWS["experience"]))


def test_what_a_file_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    fragment = ROWS["fragments"]
    assert isinstance(fragment, Fragment)
    cases: list[tuple[str, Row, str]] = [
        ("fragments", fragment.model_copy(update={"code": "x = (\n"}), "does not parse"),
        ("fragments", fragment.model_copy(update={"code": "import os\nx = 1\n"}), "give back another imports, code"),
        ("fragments", fragment.model_copy(update={"code": "x = 1\n\n\n"}), "give back another code"),
        ("fragments", fragment.model_copy(update={"imports": ("import  torch",)}), "give back another imports"),
        ("experience", experience("../up"), "'../up' is no file name"),
        ("experience", experience(".hidden"), "'.hidden' is no file name"),
        ("experience", experience("x" * 300), "is no file name"),
        ("experience", experience("漢" * 200), "603 bytes with its .md, at most 255 are allowed"),
        ("experience", experience("é" * 126 + "x"), "256 bytes with its .md, at most 255 are allowed"),
        ("experience", experience("fine"), "two rows would be the file experience/fine.md"),
        ("experience", experience("half", text="\ud800\n"), "'half' can't be exported: 'utf-8' codec"),
        ("fragments", fragment.model_copy(update={"code": 'S = "a\\\r\nb"\n'}), "give back another code"),
        ("fragments", fragment.model_copy(update={"code": "x = 1\nimport os\ny = 2\n"}), "a statement stands"),
    ]
    for table, row, fault in cases:
        rows: dict[str, list[Row]] = {"experience": [experience("fine")]}
        rows.setdefault(table, []).append(row)
        with pytest.raises(UserError, match=re.escape(fault)):
            export(rows, tmp_path / "out")
        assert not (tmp_path / "out").exists(), fault


def test_the_longest_name_that_a_file_can_have_is_written(tmp_path: Path) -> None:
    (path,) = export({"experience": [experience("é" * 126)]}, tmp_path)
    assert len(path.name.encode()) == 255
    assert contents(tmp_path).keys() == {f"experience/{'é' * 126}.md"}


@pytest.mark.parametrize("place", ["experience", "experience/b.md", "experience/link.md"])
def test_nothing_is_written_through_a_link(tmp_path: Path, place: str) -> None:
    victim = tmp_path / "victim"
    if "/" in place:
        victim.write_text("mine")
        (tmp_path / "out/experience").mkdir(parents=True)
    else:
        victim.mkdir()
        (tmp_path / "out").mkdir()
    (tmp_path / "out" / place).symlink_to(victim)
    with pytest.raises(UserError, match=rf"{place} is a link|link\.md\): name an empty folder"):
        export({"experience": [experience("a"), experience("b")]}, tmp_path / "out")
    assert victim.read_text() == "mine" if victim.is_file() else list(victim.iterdir()) == []
    assert not (tmp_path / "out/experience/a.md").exists()


@pytest.mark.parametrize(("place", "kind"), [("experience", "folder"), ("experience/b.md", "file")])
def test_what_stands_in_the_way_is_named_before_anything_is_written(tmp_path: Path, place: str, kind: str) -> None:
    if kind == "folder":
        (tmp_path / place).write_text("")
    else:
        (tmp_path / place).mkdir(parents=True)
    with pytest.raises(UserError, match=f"{place} must be a {kind}, and something else stands there"):
        export({"experience": [experience("a"), experience("b")]}, tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")] == [place] * (kind == "file")
    (tmp_path / "no-folder").write_text("")
    with pytest.raises(UserError, match=r"the 1 files can't be written: .*Not a directory"):
        export({"experience": [experience("a")]}, tmp_path / "no-folder/out")


SCRIPT = """
import resource, signal, sys
from pathlib import Path
from ckb.errors import UserError
from ckb.export import export_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    export_files(Path(sys.argv[1]), Path(sys.argv[1]))
except UserError as error:
    print(error)
"""


def test_a_full_disk_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    """The first file that is too long for the limit is not the first of all."""
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "seed"))
    for path in (seed / "contracts").glob("*.md"):
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    before = contents(seed)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(seed)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "files can't be written: [Errno 27] File too large" in done.stdout
    assert contents(seed) == before
    assert [path for path in seed.iterdir() if path.name.startswith(".")] == []


HEAD = "# ---\n# contract: rope\n# title: t\n# ---\n"


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        ("LIMIT = 3\n\nimport math\n\n\ndef f():\n    return math.pi\n", 5, "a statement"),
        ('"""A docstring."""\nimport os\n', 5, "a statement"),
        ("import os\n\nX = 1\nimport math\n\nY = 2\n", 7, "a statement"),
        ("import os; X = 1\n\nY = 2\n", 5, "a statement"),
        ("try:\n    import os\nexcept ImportError:\n    pass\nimport math\nZ = 1\n", 5, "a statement"),
        ("import os  # it is needed\n\nY = 2\n", 5, "a comment"),
        ("import os\n# why\nimport math\n\nY = 2\n", 6, "a comment"),
        ("from os import (\n    path,\n    sep,  # of paths\n)\n\nY = 2\n", 7, "a comment"),
    ],
)
def test_what_an_imports_only_head_would_lose_is_refused_with_its_line(code: str, line: int, what: str) -> None:
    with pytest.raises(KnowledgeFileError, match=rf"x\.py:{line}: {what} stands at or above the last import"):
        parse_fragment(Path("x.py"), HEAD + code)


@pytest.mark.parametrize(
    "code",
    [
        "# the first line\nX = 1\n",
        "import os\nimport torch\n# about x\nX = os.sep\n",
        "import os; import math\n\nX = (os, math)\n",
        "from os import (\n    path,\n    sep,\n)\n\n\ndef f():\n    import math  # late\n    return math, path\n",
        "from __future__ import annotations\n\nX = 1\n",
        'import os\n\nS = "a\x0cb\x85c\u2028d"\n',
        "def f():\n    return 1\n\n\n# the end\n",
    ],
)
def test_all_code_of_a_fragment_survives_its_canonical_form(code: str) -> None:
    fragment = parse_fragment(Path("x.py"), HEAD + code)
    written = render_row("fragments", fragment)
    assert parse_fragment(Path("x.py"), written) == fragment
    assert meaning(written) == meaning(HEAD + code)


def meaning(source: str) -> tuple[list[str], list[str]]:
    """The statements of a module, imports one by one, and its comments."""
    statements = [ast.unparse(node) for node in ast.parse(source).body]
    return statements, re.findall(r"# [a-z].*", source)


def test_files_of_other_rows_are_not_mixed_with_the_exported_ones(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "contracts").mkdir(parents=True)
    (out / "contracts/old.md").write_text("left over")
    (out / "README.md").write_text("no table's file")
    with pytest.raises(UserError, match=r"holds 1 file\(s\) that belong to none of these rows \(.*old\.md\)"):
        export_store(store, out)
    assert len(contents(out)) == 2
    (out / "contracts/old.md").unlink()
    export_store(store, out)
    assert (out / "README.md").read_text() == "no table's file"
    assert len(export_store(store, out)) == len(contents(out)) - 1, "again, over its own files"


def test_imports_stand_in_blocks_by_origin_and_two_lines_above_a_definition() -> None:
    source = "# ---\n# contract: rope\n# title: t\n# ---\nimport os\nimport torch\nfrom .cache import KVCache\n{code}"
    for code, gap in (
        ("X = 1\n", "\n"),
        ("def f() -> None:\n    pass\n", "\n\n"),
        ("@g\nclass A:\n    pass\n", "\n\n"),
    ):
        fragment = parse_fragment(Path("x.py"), source.format(code=code))
        text = render_row("fragments", fragment)
        assert text.partition("import os")[2] == f"\n\nimport torch\n\nfrom .cache import KVCache\n{gap}{code}"
    bare = parse_fragment(Path("x.py"), "# ---\n# contract: rope\n# title: t\n# ---\n\n\n\nX = 1\n")
    assert render_row("fragments", bare) == "# ---\n# contract: rope\n# title: t\n# ---\nX = 1\n"


def test_what_has_its_default_is_not_said() -> None:
    row = parse_yaml_row(
        Path("t.yaml"), "title: t\naccelerator: cpu\ndtypes: []\nstatus: verified\n", TABLES["platforms"]
    )
    assert render_row("platforms", row) == "title: t\naccelerator: cpu\ndtypes: []\n"


WORDS = (
    "a",
    "word",
    "-",
    "#",
    ":",
    "x:",
    "'",
    '"',
    "{",
    "]",
    ",",
    "%",
    "no",
    "1",
    "1.0",
    "null",
    "2026-01-02",
    "=",
    "|",
    "ä",
    "&b",
)


def drawn(rng: random.Random, depth: int = 0) -> Any:
    """Plain values as deep as the records are."""
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 3:
        return rng.choice((" ", " ", "\n")).join(rng.choice(WORDS) for _ in range(rng.choice((1, 1, 3, 40))))
    if kind < 5:
        return rng.choice((None, True, False, 0, 1, -7, 1.0, 1e-6, 1e300, ""))
    if kind == 5:
        return {rng.choice(WORDS) + str(i): drawn(rng, depth + 1) for i in range(rng.randrange(4))}
    return [drawn(rng, depth + 1) for _ in range(rng.randrange(4))]


@pytest.mark.parametrize("seed", range(8))
def test_any_fields_come_back_from_their_yaml_as_they_were(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(40):
        fields = {f"f{i}": drawn(rng) for i in range(rng.randrange(5))}
        text = to_yaml(fields)
        assert repr(yaml.safe_load(text) or {}) == repr(fields), text
        assert to_yaml(fields) == text


def test_a_collection_stands_on_one_line_where_it_fits_and_records_have_their_own() -> None:
    tensor = {"name": "x", "shape": ["M", "K"], "dtype": "compute"}
    assert to_yaml({"a": [tensor], "b": ["x", "y"], "c": {}}) == (
        "a:\n- {name: x, shape: [M, K], dtype: compute}\nb: [x, y]\nc: {}\n"
    )
    wide = {"name": "f", "takes": [tensor, tensor], "does": "w" * 40}
    assert to_yaml({"a": [wide]}) == (
        "a:\n- name: f\n  takes: [{name: x, shape: [M, K], dtype: compute}, {name: x, shape: [M, K], dtype: compute}]\n"
        f"  does: {'w' * 40}\n"
    )
    text = to_yaml({"a": [{"does": "word " * 100}], "b": "two\nlines\n"})
    assert to_yaml({"a": ["s" * 40], "b": ["s" * 41]}) == f"a: [{'s' * 40}]\nb:\n- {'s' * 41}\n"
    assert max(map(len, text.splitlines())) <= WIDTH + len(" word")
    assert text.endswith("b: |\n  two\n  lines\n")
