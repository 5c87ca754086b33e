"""Where a line of a released engine came from.

The engine's manifest is the bill of materials: which lines came from which fragment of which contract. For whom they
were written only the run knows: its repository says which candidate's commit brought a line, and its journal what that
candidate answered. An engine that was carried away from its run keeps the first half.
"""

import re
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.hashing import sha256
from roles.briefs import Span
from swarm.journal import read_events
from swarm.paths import runs_dir
from swarm.state import Candidate, RunState, fold
from swarm.workspace import Workspace

PLACE = re.compile(r"(.+):([0-9]{1,9})")


class Materials(BaseModel):
    """The part of manifest.json that says what an engine was made of."""

    run: str
    commit: str
    ckb_version: int
    contracts: dict[str, str]
    fragments: dict[str, str]
    authors: tuple[str, ...]
    spans: tuple[Span, ...]
    files: dict[str, str]


class Source(Frozen):
    """The fragment that a line was composed from."""

    fragment: str
    fragment_sha256: str
    """Hash of the row in the knowledge base; empty where the manifest lists no fragments."""
    contract: str
    contract_sha256: str


class Work(Frozen):
    """What a line was written for, and by whom."""

    issue: str
    title: str
    """What the issue asked for."""
    candidate: str
    commit: str
    """The candidate's commit in the run's repository."""
    author: str
    """composer, litellm, replay, ..."""
    model: str
    """The language model, where one wrote it."""


class Origin(Frozen):
    """Where one line came from."""

    file: str
    line: int
    text: str
    ckb_version: int
    """Version of the knowledge base that its author worked from."""
    source: Source | None
    """None: no fragment wrote the line."""
    work: Work | None
    """None: the run is not here."""
    run: str
    """Name of the run."""
    authors: tuple[str, ...]
    """Who wrote lines of the engine."""


def blame(engine: Path, place: str, run: Path | None = None) -> Origin:
    """The origin of a line, given as FILE:LINE. `run` is the folder of the engine's run, where that is elsewhere than
    below runs/.

    Raises UserError for a line that isn't there, a file that was changed since the release, and another engine's run.
    """
    materials = read_materials(engine)
    file, line = parse(place)
    text = line_of(engine, materials, file, line)
    folder = run or runs_dir() / materials.run
    here = (folder / "journal").is_dir() and (folder / "repo.git" / "HEAD").is_file()
    if run and not here:
        raise UserError(f"{run} holds no run: there is no journal or no repo.git in it")
    work: Work | None = None
    version = materials.ckb_version
    if here:
        state = fold(read_events(folder))
        candidate = written_by(folder, state, materials.commit, file, line)
        work, version = work_of(state, candidate), state.issues[candidate.submitted.issue].ckb_version or version
    return Origin(
        file=file,
        line=line,
        text=text,
        ckb_version=version,
        source=source_of(materials, file, line),
        work=work,
        run=materials.run,
        authors=materials.authors,
    )


def read_materials(engine: Path) -> Materials:
    try:
        return Materials.model_validate_json((engine / "manifest.json").read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"{engine / 'manifest.json'} is no bill of materials: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error


def parse(place: str) -> tuple[str, int]:
    match = PLACE.fullmatch(place)
    if not match:
        raise UserError(f"{place!r} is no FILE:LINE, such as model.py:41")
    return match[1], int(match[2])


def line_of(engine: Path, materials: Materials, file: str, line: int) -> str:
    """The text of a line of a file as it was released."""
    if file not in materials.files:
        raise UserError(f"{engine.name} has no file {file!r}; it has {', '.join(materials.files)}")
    path = engine / file
    data = path.read_bytes() if path.is_file() else b""
    if (found := sha256(data)) != materials.files[file]:
        raise UserError(
            f"{path} is not the file that was released (sha256 {found[:12]} now, {materials.files[file][:12]} then): "
            "where its lines came from is not known"
        )
    text = data.decode()
    lines = text.removesuffix("\n").split("\n") if text else []  # as git counts: a form feed ends no line
    if not 1 <= line <= len(lines):
        raise UserError(f"{file} has {len(lines)} lines; line {line} was asked for")
    return lines[line - 1]


def written_by(run: Path, state: RunState, commit: str, file: str, line: int) -> Candidate:
    """The candidate that brought a line of a commit on main."""
    if commit not in {merged.commit for merged in state.merges}:
        raise UserError(f"{run} is not the engine's run: it merged nothing as commit {commit[:12]}; name it with --run")
    workspace = Workspace(run)
    try:
        written = workspace.written(commit, file)[line - 1]
    finally:
        workspace.close()
    return next(c for c in state.candidates.values() if c.submitted.commit == written.commit)


def work_of(state: RunState, candidate: Candidate) -> Work:
    submitted = candidate.submitted
    calls = [call for call in state.roles if call.role == "implementer" and call.candidate == candidate.id]
    return Work(
        issue=submitted.issue,
        title=state.issues[submitted.issue].issue.title,
        candidate=candidate.id,
        commit=submitted.commit,
        author=submitted.author,
        model=calls[-1].usage.model if calls else "",
    )


def source_of(materials: Materials, file: str, line: int) -> Source | None:
    """The fragment whose span holds a line."""
    span = next((s for s in materials.spans if s.file == file and s.first <= line <= s.last), None)
    if span is None:
        return None
    return Source(
        fragment=span.fragment,
        fragment_sha256=materials.fragments.get(span.fragment, ""),
        contract=span.contract,
        contract_sha256=materials.contracts.get(span.contract, ""),
    )


def told(origin: Origin) -> list[str]:
    """An origin in lines for people."""
    source, work = origin.source, origin.work
    lines = [f"{origin.file}:{origin.line}  {origin.text}"]
    if source:
        lines.append(f"fragment   {source.fragment} ({source.fragment_sha256[:12] or 'in no manifest'})")
        lines.append(f"contract   {source.contract} ({source.contract_sha256[:12] or 'in no manifest'})")
    else:
        lines.append("fragment   none: no fragment wrote this line")
    lines.append(f"knowledge  version {origin.ckb_version}")
    if not work:
        unknown = f"not known: the run {origin.run} is not below {runs_dir()}; name its folder with --run"
        return [*lines, f"issue      {unknown}", f"author     one of {', '.join(origin.authors)}"]
    lines.append(f"issue      {work.issue}: {work.title}")
    lines.append(f"candidate  {work.candidate}, commit {work.commit[:12]} of run {origin.run}")
    return [*lines, f"author     {work.author} {work.model}".rstrip()]
