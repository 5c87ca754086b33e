"""Where a line of a released engine came from: a whole rehearsed run, with its git, its journal and its composer."""

import difflib
import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ckb.build import read_knowledge_at
from ckb.errors import UserError
from ckb.hashing import sha256
from ckb.store import Store
from roles.briefs import Span
from swarm import events as e
from swarm.blame import blame, told
from swarm.cli import main
from swarm.context import Context, RunFiles
from swarm.journal import Journal, read_events
from swarm.release import Manifest, manifest_of, spans_of
from swarm.state import fold
from swarm.workspace import Workspace
from tests.unit.swarm.rehearsal import prepare, rehearse

LABELS = ["fragment", "contract", "knowledge", "issue", "candidate", "author"]
"""What the lines below the line itself are headed with."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Context]:
    """A home with a finished run, and what the run knew."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINESMITH_HOME", str(home))
        return home, rehearse(home, prepare(home))


@pytest.fixture
def context(run: tuple[Path, Context], monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("ENGINESMITH_HOME", str(run[0]))
    monkeypatch.chdir(run[0])
    return run[1]


@pytest.fixture
def engine(context: Context) -> Path:
    assert context.state.released
    return context.files.root.parents[1] / context.state.released.path


@pytest.fixture
def copy(engine: Path, tmp_path: Path) -> Path:
    """The engine alone, in a folder of its own."""
    return Path(shutil.copytree(engine, tmp_path / engine.name))


@pytest.fixture
def composed(context: Context, tmp_path: Path) -> Path:
    """An engine whose tree is one candidate's answer; the released one was merged from two."""
    merged = [m for m in context.state.merges if context.state.candidates[m.candidate].submitted.tree == m.tree][-1]
    benchmark = context.state.final_benchmark
    assert benchmark
    folder, files = tmp_path / "engine_composed", context.workspace.files(merged.commit)
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    known = manifest_of(context, folder.name, merged, files, benchmark)
    assert known.spans
    (folder / "manifest.json").write_text(known.model_dump_json())
    return folder


def manifest(engine: Path) -> Manifest:
    return Manifest.model_validate_json((engine / "manifest.json").read_bytes())


def edit(engine: Path, **fields: Any) -> None:
    data = json.loads((engine / "manifest.json").read_text())
    (engine / "manifest.json").write_text(json.dumps(data | fields))


def lines(engine: Path) -> list[tuple[str, int, str]]:
    """(file, line, text) of all lines of an engine."""
    files = {name: (engine / name).read_text(encoding="utf-8") for name in manifest(engine).files}
    return [(name, n, text) for name, whole in files.items() for n, text in enumerate(whole.splitlines(), 1)]


def line_with(engine: Path, file: str, start: str) -> int:
    return next(n for name, n, text in lines(engine) if name == file and text.startswith(start))


@pytest.mark.parametrize("kind", ["copy", "composed"])
def test_a_line_names_the_fragment_that_holds_it_and_the_candidate_that_brought_it(
    kind: str, context: Context, request: pytest.FixtureRequest
) -> None:
    """A sample of the lines, each looked up in the knowledge base and in the candidate's own tree."""
    engine: Path = request.getfixturevalue(kind)
    seed = random.randrange(10**6)
    knowledge = read_knowledge_at(Store(context.files.root.parents[1] / "store"), context.plan.ckb_version)
    merged = {m.candidate for m in context.state.merges}
    known = manifest(engine)
    for file, line, text in random.Random(seed).sample(lines(engine), 40):
        origin = blame(engine, f"{file}:{line}")
        where = f"{file}:{line} (seed {seed})"
        assert (origin.file, origin.line, origin.text) == (file, line, text), where
        assert origin.ckb_version == context.plan.ckb_version, where
        if origin.source:
            fragment = knowledge.fragments[origin.source.fragment]
            assert text in fragment.code.splitlines(), where
            assert origin.source.contract == fragment.contract, where
            assert origin.source.fragment_sha256 == known.fragments[fragment.id], where
            assert origin.source.contract_sha256 == known.contracts[fragment.contract], where
        assert origin.work, where
        assert origin.work.candidate in merged, where
        candidate = context.state.candidates[origin.work.candidate]
        assert candidate.submitted.issue == origin.work.issue, where
        assert text in context.workspace.files(origin.work.commit)[file].splitlines(), where
        assert (origin.work.author, origin.work.model) == ("composer", ""), where


def test_lines_of_several_issues_are_told_apart(engine: Path, context: Context) -> None:
    """What the last merge changed is its own; what stood there before is not."""
    state = context.state
    assert state.released
    place = next(n for n, m in enumerate(state.merges) if m.commit == state.released.commit)
    last, before = state.merges[place], state.merges[place - 1]
    new, old = (context.workspace.files(m.commit) for m in (last, before))
    changed = [
        (file, number, op == "equal")
        for file, text in new.items()
        for op, _, _, start, end in difflib.SequenceMatcher(
            a=old[file].splitlines(), b=text.splitlines(), autojunk=False
        ).get_opcodes()
        for number in range(start + 1, end + 1)
    ]
    mine = [(f, n) for f, n, same in changed if not same and new[f].splitlines()[n - 1] not in old[f].splitlines()]
    others = [(file, number) for file, number, same in changed if same]
    assert mine
    for file, number in mine[:5]:
        work = blame(engine, f"{file}:{number}").work
        assert work
        assert (work.candidate, work.issue) == (last.candidate, state.candidates[last.candidate].submitted.issue)
        assert work.title == state.issues[work.issue].issue.title
    first = blame(engine, f"{others[0][0]}:{others[0][1]}").work
    assert first
    assert first.candidate != last.candidate
    assert first.issue.startswith("s")


def test_a_line_that_no_fragment_wrote_says_so(engine: Path) -> None:
    origin = blame(engine, "model.py:1")
    assert origin.text.startswith('"""')
    assert origin.source is None
    assert origin.work
    assert "fragment   none: no fragment wrote this line" in told(origin)


def test_an_engine_without_its_run_still_names_its_fragments(
    composed: Path, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = f"kernels.py:{line_with(composed, 'kernels.py', 'def attention(')}"
    with_run = blame(composed, place)
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    alone = blame(composed, place)
    assert with_run.source
    assert alone.source == with_run.source
    assert alone.work is None
    assert (alone.ckb_version, alone.authors) == (1, ("composer",))
    assert "issue      not known: the run rehearsal is not below" in told(alone)[4]
    assert blame(composed, place, context.files.root) == with_run


def test_a_merge_of_several_candidates_has_a_bill_of_materials_too(engine: Path, context: Context) -> None:
    """Put together line by line, whoever brought each; all but the headers of the modules was composed."""
    state = context.state
    assert state.released
    spans = list(spans_of(context, state.released.commit, manifest(engine).files))
    whole = {name: (engine / name).read_text(encoding="utf-8").splitlines() for name in manifest(engine).files}
    covered = {(span.file, line) for span in spans for line in range(span.first, span.last + 1)}
    assert len(covered) == sum(span.last - span.first + 1 for span in spans), "no line is in two spans"
    for file, text in whole.items():
        inside = sum((file, line) in covered for line in range(1, len(text) + 1))
        assert inside > 0.6 * len(text), (file, inside, len(text))
    assert all(span.last <= len(whole[span.file]) for span in spans)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("model.py", "'model.py' is no FILE:LINE"),
        ("model.py:", "is no FILE:LINE"),
        ("model.py:-1", "is no FILE:LINE"),
        ("model.py:12345678901234567890", "is no FILE:LINE"),
        ("attention.py:3", r"has no file 'attention.py'; it has cache.py, engine.py, kernels.py"),
        ("../model.py:3", r"has no file '../model.py'"),
        ("manifest.json:3", "has no file 'manifest.json'"),
        ("model.py:0", r"model\.py has \d+ lines; line 0 was asked for"),
        ("model.py:9999", r"model\.py has \d+ lines; line 9999 was asked for"),
    ],
)
def test_a_line_that_is_not_there_is_refused_with_the_numbers(engine: Path, place: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        blame(engine, place)


def test_the_last_line_is_one_and_the_next_is_none(engine: Path) -> None:
    count = (engine / "cache.py").read_text().count("\n")
    assert blame(engine, f"cache.py:{count}").line == count
    with pytest.raises(UserError, match=f"has {count} lines; line {count + 1}"):
        blame(engine, f"cache.py:{count + 1}")


def test_a_file_that_was_changed_or_removed_since_its_release_is_refused(copy: Path) -> None:
    text = (copy / "model.py").read_text()
    (copy / "model.py").write_text("# mine\n" + text)
    with pytest.raises(UserError, match="is not the file that was released"):
        blame(copy, "model.py:1")
    (copy / "model.py").unlink()
    with pytest.raises(UserError, match="is not the file that was released"):
        blame(copy, "model.py:1")


def test_another_run_or_none_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        blame(copy, "model.py:1", tmp_path)
    edit(copy, commit="0" * 40)
    with pytest.raises(UserError, match="is not the engine's run: it merged nothing as commit 000000000000"):
        blame(copy, "model.py:1")
    edit(copy, spans=3)
    with pytest.raises(UserError, match="is no bill of materials: spans"):
        blame(copy, "model.py:1")


def test_the_command_tells_a_person_and_a_machine(
    engine: Path, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"kernels.py:{line_with(engine, 'kernels.py', 'def attention(')}"
    assert main(["blame", "tiny", place]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith(f"{place}  def attention(")
    assert [line.split()[0] for line in output[1:]] == LABELS
    assert output[3] == "knowledge  version 1"
    assert main(["blame", "tiny", place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == blame(engine, place).model_dump(mode="json")
    assert main(["blame", "tiny", "model.py:0"]) == 2
    assert "line 0 was asked for" in capsys.readouterr().err
    assert main(["blame", "tiny", place, "--run", "elsewhere"]) == 2
    assert "elsewhere is no run" in capsys.readouterr().err


def test_blame_leaves_the_run_as_it_was(engine: Path, context: Context) -> None:
    """A run may be at work while somebody asks: reading must not take it over."""

    def listing(files: RunFiles) -> list[tuple[str, int]]:
        return sorted((str(p), p.stat().st_size) for p in files.root.rglob("*") if p.is_file())

    before = listing(context.files)
    blame(engine, "model.py:5")
    assert listing(context.files) == before


def test_a_line_that_moved_in_a_merge_is_looked_up_where_its_author_put_it(tmp_path: Path) -> None:
    """Two candidates of one base: the second one writes above what the first one wrote."""
    workspace, journal = Workspace(tmp_path), Journal(tmp_path)
    below, above = "a = 1\nb = 2\nc = 3\n", "# new\n# new too\na = 1\nb = 2\nc = 3\n"
    for name, text, span in (("s1-c0", below, (3, 3)), ("r1-1-c0", above, (1, 2))):
        issue = name.removesuffix("-c0")
        base = workspace.tip()
        journal.append(e.IssueOpened(issue=e.Issue(id=issue, stage="model", title=name, base=base), ckb_version=5))
        made = workspace.commit(f"candidate/{name}", base, {"model.py": text}, name)
        spans = (Span(file="model.py", first=span[0], last=span[1], contract="c", fragment=f"of-{name}"),)
        fields = {"branch": made.branch, "commit": made.commit, "tree": made.tree, "lines": made.lines, "spans": spans}
        journal.append(
            e.CandidateSubmitted(
                candidate=name, issue=issue, attempt=1, author="composer", choices={}, summary="s", **fields
            )
        )
        merged = workspace.merge(made.commit, "m", f"merge/{name}")
        workspace.advance(merged.commit, base)
        journal.append(e.Merged(candidate=name, commit=merged.commit, tree=merged.tree, choices={}))
    context = SimpleNamespace(state=fold(read_events(tmp_path)), workspace=workspace)
    spans = list(spans_of(cast("Context", context), merged.commit, ["model.py"]))
    workspace.close()
    assert [(s.first, s.last, s.fragment) for s in spans] == [(1, 2, "of-r1-1-c0"), (5, 5, "of-s1-c0")]
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "model.py").write_text(above)
    known = {"run": "r", "commit": merged.commit, "ckb_version": 1, "authors": ["composer"]}
    hashes = {"contracts": {}, "fragments": {}, "files": {"model.py": sha256(above.encode())}}
    (engine / "manifest.json").write_text(json.dumps(known | hashes | {"spans": [s.model_dump() for s in spans]}))
    origins = [blame(engine, f"model.py:{line}", tmp_path) for line in range(1, 6)]
    found = [(o.work and o.work.candidate, o.source and o.source.fragment, o.ckb_version) for o in origins]
    first, second = ("s1-c0", None, 5), ("r1-1-c0", "of-r1-1-c0", 5)
    assert found == [second, second, first, first, ("s1-c0", "of-s1-c0", 5)]
