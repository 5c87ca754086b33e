"""The copied-span check: planted copies are found whatever they look like, and what was written by hand is not."""

import ast
import random
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest

from ckb import fingerprint_table as tables
from ckb.errors import UserError
from ckb.fingerprint_check import checked
from ckb.fingerprints import (
    HASH_BYTES,
    SCHEMA,
    SHINGLE,
    SPAN,
    TABLE,
    WINDOW,
    Line,
    committed,
    copied_spans,
    normalised,
    read_table,
    shingles,
    winnowed,
)
from tests.unit.ckb.planted import chosen, disguised

ROOT = Path(__file__).parents[3]
SEED = 20
OWN = ("swarm", "roles", "ckb", "gpu_actors", "benchmarks", "tests")


def host() -> dict[str, str]:
    """The engine that was written by hand, in which copies are planted."""
    folder = ROOT / "tests/unit/gpu_actors/tiny_engine"
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py"))}


# --- what it finds, in the committed table ----------------------------------------------------------------------------


def test_twenty_planted_copies_are_all_found_where_they_stand() -> None:
    draws = random.Random(SEED)
    copies = chosen(20, SPAN + 4, SEED)
    assert len(copies) == 20
    missed = []
    for source, function in copies:
        tree, name = host(), function.name
        before = tree["model.py"].count("\n")
        tree["model.py"] += disguised([function], draws)
        spans = [span for span in copied_spans(tree) if span.project == "transformers"]
        if not spans:
            missed.append(f"{source}: {name}")
        assert all(span.file == "model.py" and span.first > before for span in spans)
    assert missed == []


def test_functions_in_another_order_are_each_found() -> None:
    copies = [function for _, function in chosen(6, SPAN + 8, SEED)]
    text = disguised(copies, random.Random(SEED))
    spans = copied_spans({"model.py": text})
    for function in ast.parse(text).body:
        assert any(span.first <= function.end_lineno and function.lineno <= span.last for span in spans), function.name


def test_the_table_is_of_the_release_that_is_installed_and_of_no_source() -> None:
    table = committed()
    assert table.schema.names == SCHEMA.names
    releases = {(row["project"], row["release"]) for row in table.select(["project", "release"]).to_pylist()}
    assert ("transformers", version("transformers")) in releases, "run enginesmith ckb fingerprints on the new release"
    assert {project for project, _ in releases} <= tables.GLOBS.keys()
    files = set(table["file"].to_pylist())
    assert all(file.endswith(".py") and "\n" not in file for file in files)
    assert TABLE.stat().st_size < 6_000_000


# --- what it does not find --------------------------------------------------------------------------------------------


def test_nothing_that_was_written_by_hand_here_is_taken_for_a_copy() -> None:
    files = [file for package in OWN for file in (ROOT / package).rglob("*.py")]
    assert len(files) > 150
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    assert [str(span) for span in copied_spans(texts)] == []


@pytest.mark.parametrize(
    "source",
    [
        "\n".join(f"self.{name} = {name}" for name in "abcdefghijklmnop"),
        "\n".join(f"parser.add_argument('--{name}', type=int, default=0)" for name in "abcdefghijkl"),
        "\n".join(f"import {name}" for name in "abcdefghijkl"),
        "\n".join(f"{name}: int" for name in "abcdefghijkl"),
        "def f(:\n" * 20,
        "x = 1\0",
        "",
    ],
    ids=["fields", "arguments", "imports", "declarations", "no Python", "a null byte", "nothing"],
)
def test_what_tells_nothing_is_in_no_span(source: str) -> None:
    assert copied_spans({"a.py": source}) == []


# --- normalising ------------------------------------------------------------------------------------------------------

FIRST = '''
from x import y
@decorated
def scale(self, values: list[int], limit: int = 3) -> int:
    """Says something."""
    total: int = 0
    for value in values:  # each
        if value > limit: continue
        total += self.weight[value] * 2; self.count = 1
    return call(total, key="a", other=f"{total}")
'''
SECOND = """
def grow(this, items, most=77):
    gathered = 9
    for item in items:
        if (item > most):
            continue
        # a remark
        gathered += (this.table[
            item
        ] * 5)
        this.seen = 12
    return done(
        gathered,
        name='bb', more="text",
    )
"""


def test_names_literals_layout_and_remarks_are_normalised_away() -> None:
    first, second = normalised(FIRST), normalised(SECOND)
    assert [line.kinds for line in first] == [line.kinds for line in second]
    assert (first[0].first, second[0].first) == (4, 2)
    assert (second[5].first, second[5].last) == (8, 10)
    other = normalised(SECOND.replace("* 5", "+ 5"))
    assert [line.kinds for line in first] != [line.kinds for line in other]


def test_a_long_statement_is_several_lines_and_a_deep_one_is_no_crash() -> None:
    assert len(normalised(f"f({', '.join('a' * 60)})")) == 6
    deep = "if a:\n    pass\n" + "elif b(c):\n    d = e\n" * 900
    assert copied_spans({"a.py": deep, "b.py": "-" * 100_000 + "1"}) == []


# --- winnowing: the guarantee -----------------------------------------------------------------------------------------


def lines_of(draws: random.Random, count: int) -> list[Line]:
    return [Line(f"{draws.random()}", 8, at, at) for at in range(count)]


def test_any_span_of_eight_lines_in_common_shares_a_kept_hash_and_none_of_seven_does() -> None:
    assert SHINGLE == SPAN, "what is shorter than a span is no span"
    draws = random.Random(SEED)
    for length in (SPAN, SPAN + 1, 40):
        for _ in range(200):
            span = lines_of(draws, length)
            one, two = (lines_of(draws, draws.randrange(30)) + span + lines_of(draws, 30) for _ in range(2))
            assert set(winnowed(shingles(one))) & set(winnowed(shingles(two)))
    short = lines_of(draws, SHINGLE - 1)
    one, two = (lines_of(draws, 30) + short + lines_of(draws, 30) for _ in range(2))
    assert not set(shingles(one)) & set(shingles(two))


def test_winnowing_by_three_keeps_about_half_and_the_last_of_equals() -> None:
    hashes = shingles(lines_of(random.Random(SEED), 5_000))
    assert 0.45 < len(winnowed(hashes, 3)) / len(hashes) < 0.55
    assert len(winnowed(hashes)) == len(hashes) == len(winnowed(hashes, WINDOW))
    assert all(value is not None and value < 256**HASH_BYTES for value in hashes)
    assert winnowed([7, 7, 7, 7, 7], 3) == [7, 7, 7]
    assert winnowed([None, None, None, 4, None, None, None], 3) == [4]
    assert winnowed([]) == []
    assert winnowed([3]) == [3]


# --- building the table -----------------------------------------------------------------------------------------------

CODE = "\n".join(f"def part_{n}(a, b):\n    return a.{'m(b)[0] + a.' * n}x(b, {n}) * b[a : {n}]" for n in range(1, 12))
OTHER = CODE.replace("+", "-")


def wheel(folder: Path, name: str, release: str, files: Mapping[str, str]) -> Path:
    path = folder / f"{name}-{release}-py3-none-any.whl"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-{release}.dist-info/METADATA", head)
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def sdist(folder: Path, name: str, release: str, files: Mapping[str, str]) -> Path:
    root = folder / f"{name}-{release}"
    for file, text in {"PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n", **files}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    with tarfile.open(folder / f"{name}-{release}.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)
    return folder / f"{name}-{release}.tar.gz"


def test_a_table_is_built_from_wheels_and_sdists_and_only_of_the_globs(tmp_path: Path) -> None:
    files = {"vllm/v1/core/sched.py": CODE, "vllm/entrypoints/cli.py": OTHER, "vllm/v1/tests/test_x.py": OTHER}
    one = tables.read_release(wheel(tmp_path, "vllm", "1.0", files))
    two = tables.read_release(sdist(tmp_path, "sglang", "2.0", {"python/sglang/srt/layers/a.py": OTHER}))
    assert (one.project, one.version, [*one.files]) == ("vllm", "1.0", ["vllm/v1/core/sched.py"])
    assert [*two.files] == ["sglang/srt/layers/a.py"]
    table, done = tables.merged(SCHEMA.empty_table(), [one, two], ())
    tables.write_table(table, tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    held = [row["project"] for row in table.to_pylist()]
    assert [item.kept for item in done] == [held.count("vllm"), held.count("sglang")]
    (span,) = copied_spans({"x.py": CODE}, table)
    assert (span.project, span.release, span.source) == ("vllm", "1.0", "vllm/v1/core/sched.py")
    assert span.first <= WINDOW
    assert span.last >= 2 * 11 - 1
    assert [span.project for span in copied_spans({"x.py": OTHER, "y.py": CODE}, table)] == ["sglang", "vllm"]


def test_merging_replaces_a_project_and_keeps_the_others(tmp_path: Path) -> None:
    first = [tables.Release("vllm", "1", {"a.py": CODE}), tables.Release("sglang", "1", {"b.py": CODE})]
    table, _ = tables.merged(SCHEMA.empty_table(), first, ())
    table, _ = tables.merged(table, [tables.Release("vllm", "2", {"c.py": OTHER, "d.py": "def f(:"})], ())
    found = {(row["project"], row["release"], row["file"]) for row in table.to_pylist()}
    assert found == {("vllm", "2", "c.py"), ("sglang", "1", "b.py")}
    assert table["hash"].to_pylist() == sorted(table["hash"].to_pylist())


def test_what_independent_projects_share_is_left_out() -> None:
    """From what is installed: how aiohttp and pydantic would look if both held it."""
    shared = {value for value in shingles(normalised(CODE)) if value is not None}
    release = tables.Release("vllm", "1", {"a.py": CODE, "b.py": OTHER})
    table, (done,) = tables.merged(SCHEMA.empty_table(), [release], shared)
    assert done.common > 0
    assert copied_spans({"x.py": CODE}, table) == []
    assert [span.source for span in copied_spans({"x.py": OTHER}, table)] == ["b.py"]


def test_common_is_what_two_projects_beside_a_framework_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for project, text in {"one": CODE, "two": f"{CODE}\n{OTHER}", "three": "x = 1\n"}.items():
        (tmp_path / "site" / project / "tests").mkdir(parents=True)
        (tmp_path / "site" / project / "a.py").write_text(text)
        (tmp_path / "site" / project / "tests/b.py").write_text(OTHER)
    (tmp_path / "python").mkdir()
    monkeypatch.setattr(
        tables.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "python"), "purelib": str(tmp_path / "site")}
    )
    monkeypatch.setattr(tables, "INDEPENDENT", ("one", "two", "three"))
    assert tables.common_hashes() == set(shingles(normalised(CODE)))
    monkeypatch.setattr(tables, "INDEPENDENT", ("one", "absent"))
    with pytest.raises(UserError, match=r"absent isn't installed in .*site"):
        tables.common_hashes()


def test_what_is_no_release_or_no_table_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "broken.whl").write_text("x")
    (tmp_path / "broken.tar.gz").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, message in (
        (tmp_path / "absent.whl", "is no wheel.*No such file"),
        (tmp_path / "broken.whl", "is no wheel.*zip"),
        (tmp_path / "broken.tar.gz", "is no wheel"),
        (tmp_path / "folder", "neither METADATA nor PKG-INFO among its 0 files"),
        (wheel(tmp_path, "other", "3", {"other/a.py": ""}), "is other 3; GLOBS of .* has transformers, vllm"),
        (wheel(tmp_path, "vllm", "3", {"vllm/cli.py": ""}), "none of the 2 files of .* is one of vllm's"),
    ):
        with pytest.raises(UserError, match=message):
            tables.read_release(path)
    (tmp_path / "t.parquet").write_text("x")
    with pytest.raises(UserError, match="is no table of fingerprints"):
        tables.stored(tmp_path / "t.parquet")
    with pytest.raises(UserError, match="there is no folder"):
        tables.stored(tmp_path / "absent" / "t.parquet")
    tables.write_table(SCHEMA.empty_table(), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="holds no fingerprints"):
        read_table(tmp_path / "t.parquet")
    other = pa.table({"hash": [1]})
    tables.write_table(other, tmp_path / "o.parquet")
    with pytest.raises(UserError, match="has the columns"):
        tables.stored(tmp_path / "o.parquet")


# --- whole projects ---------------------------------------------------------------------------------------------------


def test_a_project_is_checked_without_its_tests_and_each_span_is_named(tmp_path: Path) -> None:
    (_, copy), *_ = chosen(1, SPAN + 8, SEED)
    text = disguised([copy], random.Random(SEED))
    clean = checked(wheel(tmp_path, "clean", "1.0", {"clean/a.py": "x = 1\n", "clean/tests/b.py": text}))
    assert (clean.name, clean.version, clean.files, clean.lines, clean.spans) == ("clean", "1.0", 1, 1, ())
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/model.py").write_text(f"x = 1\n{text}")
    copied = checked(tmp_path / "folder")
    assert (copied.name, copied.version, copied.files) == ("folder", "", 1)
    assert copied.spans
    assert copied.flagged_lines >= SPAN - 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no Python file"):
        checked(tmp_path / "empty")
