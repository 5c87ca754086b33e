"""What the knowledge base has for a model or a Target, and what it says: tools that read."""

from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from ckb import views
from ckb.build import read_knowledge_at
from ckb.checkpoint import read_checkpoint, read_config
from ckb.choices import default_choices
from ckb.coverage import Coverage, refused
from ckb.errors import UserError
from ckb.facts import Facts, Frozen
from ckb.gaps import Gap, GapError
from ckb.records import Choice, Layer, Reader
from ckb.schemas import ModelFamily
from ckb.search import Query, Search, Table
from ckb.store import Store
from gpu_actors.say import Say
from swarm.feasibility import facts_of
from swarm.init import draft_target
from swarm.mcp_server.tool import READS, AnyTool, Tool, in_thread
from swarm.operators import trial_of
from swarm.paths import resolve, store_dir
from swarm.plan import cover, coverage_of, tried_out
from swarm.platform import detect
from swarm.target import load_target


class AskCoverage(Frozen):
    """Name one of the two."""

    target: str | None = None
    """A Target: a YAML file."""
    config: str | None = None
    """A model alone: its config.json, or its folder, where the headers of its weights are read too. The rest is as in
    the draft of `enginesmith init`."""
    accelerator: Literal["cpu", "cuda"] = "cpu"
    """With `config`: what of this machine computes. A Target says it itself."""


class CoveredNeed(Frozen):
    what: str
    """model, feature, weights, platform, operator, parallelism, contract."""
    subject: str
    """The model_type, the feature, the weight format, the platform, the operator library, a contract's id."""
    covered_by: tuple[str, ...]
    """Ids of the rows that serve it."""
    gaps: tuple[Gap, ...]
    described_by: tuple[str, ...]
    """Ids of draft contracts that describe what is missing."""
    note: str


class CoverageTable(Frozen):
    percent: float
    """Share of the needs that are covered, 0 to 100."""
    covered: bool
    """Whether a run could begin."""
    needs: tuple[CoveredNeed, ...]


def coverage(asked: AskCoverage, say: Say) -> CoverageTable:
    """What an engine for a model or Target needs of the knowledge base on this machine, and what of it is a gap.

    Tries the operator libraries in a sandbox the first time, which takes seconds."""
    if (asked.target is None) == (asked.config is None):
        both = "neither was given" if asked.target is None else "both were given"
        raise UserError(f"name `target`, a Target's YAML file, or `config`, a config.json: {both}")
    store = Store(store_dir())
    try:
        found = (
            _of_target(asked.target, store, say)
            if asked.target
            else _of_config(asked.config or "", asked.accelerator, store, say)
        )
    except GapError as error:
        found = refused(error.gaps)
    return CoverageTable.model_validate(found.document())


def _of_target(target_file: str, store: Store, say: Say) -> Coverage:
    target = load_target(existing(target_file))
    platform = detect(target.hardware.accelerator, target.hardware.count)
    return coverage_of(target, store, platform, trial_of(target, say))


def _of_config(config: str, accelerator: Literal["cpu", "cuda"], store: Store, say: Say) -> Coverage:
    place, families = existing(config), store.rows(ModelFamily)
    weights = place.is_dir() and any(place.glob("*.safetensors"))
    file = place / "config.json" if place.is_dir() else place
    checkpoint = read_checkpoint(place, families) if weights else read_config(file, families)
    platform = detect(accelerator)
    target = draft_target(checkpoint.path, checkpoint.facts, platform, "")
    facts, tried = tried_out(facts_of(target, checkpoint.facts, platform), trial_of(target, say))
    return cover(facts, checkpoint, read_knowledge_at(store), store, tried)


def existing(name: str) -> Path:
    """A file or folder by its path, absolute, or below this process's folder or ENGINESMITH_HOME. Raises UserError."""
    for place in (Path(name).expanduser(), resolve(name)):
        if place.exists():
            return place.absolute()
    raise UserError(f"{name} is neither in {Path.cwd()} nor at {resolve(name)}: give an absolute path")


class Find(Frozen):
    words: str = ""
    """What to look for: a row may hold any of the words, rare ones count most. Empty: all rows that pass the rest."""
    table: Table | None = None
    layer: Layer | None = None
    contract: str | None = None
    """Only this contract and the fragments filed under it."""
    role: Reader | None = None
    """Only the guides that are written for this role."""
    target: str | None = None
    """A Target's YAML file: only rows whose condition holds for it here, with the default of each decision."""
    limit: int = Field(10, ge=1, le=100)
    """Most rows."""
    at: str | None = None
    """A version number or tag; left out: the newest."""


class FoundRow(Frozen):
    table: str
    id: str
    score: float
    """Higher is better; 0 without words."""
    applies_to: str
    """The condition under which it holds; empty: always."""
    says: str
    """In a line; `ckb_show` has the row whole."""


class Found(Frozen):
    version: int
    rows: tuple[FoundRow, ...]


def find(asked: Find, say: Say) -> Found:
    """Looks for verified knowledge: contracts, fragments (code examples), guides, models, platforms, experience.

    The rows that answer the words best come first. Drafts are not found: `ckb_show` lists them too."""
    search = Search(Store(store_dir()), asked.at)
    facts, choices = _facts_and_choices(asked.target, search, say) if asked.target else (None, {})
    query = Query(
        words=asked.words,
        table=asked.table,
        layer=asked.layer,
        contract=asked.contract,
        role=asked.role,
        facts=facts,
        choices=choices,
        limit=asked.limit,
    )
    rows = tuple(
        FoundRow(
            table=hit.table,
            id=hit.row.id,
            score=hit.score,
            applies_to=hit.row.applies_to,
            says=views.headline(hit.row),
        )
        for hit in search.find(query)
    )
    return Found(version=search.version, rows=rows)


def _facts_and_choices(target_file: str, search: Search, say: Say) -> tuple[Facts, dict[str, Choice]]:
    target, store = load_target(existing(target_file)), Store(store_dir())
    platform = detect(target.hardware.accelerator, target.hardware.count)
    checkpoint = read_checkpoint(target.checkpoint, store.rows(ModelFamily, search.version))
    facts, _ = tried_out(facts_of(target, checkpoint.facts, platform), trial_of(target, say))
    return facts, default_choices(facts, read_knowledge_at(store, search.version).contracts.values())


class Show(Frozen):
    table: str | None = None
    """Left out: the tables with their numbers of rows."""
    id: str | None = None
    """Left out: all rows of the table in a line each. A row of test_contracts is found by its gate too."""
    at: str | None = None
    """A version number or tag; left out: the newest."""


class ShownRow(Frozen):
    id: str
    status: str
    applies_to: str
    says: str


class Shown(Frozen):
    version: int
    tables: dict[str, int] = Field(default_factory=dict)
    """Table -> rows, where no table was named."""
    rows: tuple[ShownRow, ...] = ()
    """Where a table was named."""
    row: dict[str, JsonValue] | None = None
    """Every field of the row that was named."""


def show(asked: Show, _: Say) -> Shown:
    """Shows the knowledge base: its tables, the rows of one table, drafts and deprecated ones too, or one row whole."""
    store = Store(store_dir())
    version = store.state(asked.at).version
    if asked.table is None:
        if asked.id is not None:
            raise UserError(f"id {asked.id!r} without a table: name one of {', '.join(store.tables)}")
        return Shown(version=version, tables=views.counts(store, version))
    if asked.id is None:
        listed = views.show(store, asked.table, version)
        rows = (ShownRow(id=r.id, status=r.status, applies_to=r.applies_to, says=views.headline(r)) for r in listed)
        return Shown(version=version, rows=tuple(rows))
    return Shown(version=version, row=views.show_row(store, asked.table, asked.id, version).model_dump(mode="json"))


TOOLS: tuple[AnyTool, ...] = (
    Tool("coverage", AskCoverage, CoverageTable, in_thread(coverage), READS),
    Tool("ckb_find", Find, Found, in_thread(find), READS),
    Tool("ckb_show", Show, Shown, in_thread(show), READS),
)
