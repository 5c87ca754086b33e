"""Guides reach who they are written for: a line in the brief, the text by query, procedures that fit the answers."""

import typing
from pathlib import Path

import pytest

from ckb.build import ensure_store
from ckb.records import Reader, Row
from ckb.schemas import TABLES, Guide
from ckb.search import Query, Search
from ckb.store import Store
from roles.author import NoAnswer
from roles.authors.litellm_author import MOST_FAULTS, LitellmAuthor
from roles.briefs import RoleName
from roles.budget import Unlimited
from roles.desk import Means
from roles.library import GUIDES, guides_for
from roles.render import render, render_knowledge
from roles.settings import LitellmSettings
from roles.table import ROLES
from tests.unit.roles.example_briefs import BRIEFS, IMPLEMENTER, LINEAR
from tests.unit.roles.scripted_gateway import Script, query

LINE = 160
"""Characters of the longest line that a guide may add to a brief."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return ensure_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def library(store: Store) -> Search:
    return Search(store)


def first_message(library: Search | None, role: str) -> str:
    script = Script(*[(("no_such_tool", {}),)] * MOST_FAULTS)
    author = LitellmAuthor(LitellmSettings(model="m"), script, Unlimited(), means=Means(library=library))
    with pytest.raises(NoAnswer):
        author.answer(BRIEFS[role])
    return "\n".join(message.content for message in script.requests[0].messages)


@pytest.mark.parametrize("role", BRIEFS)
def test_a_brief_names_the_guides_of_its_role_and_target_and_no_others(
    library: Search, store: Store, role: str
) -> None:
    told, without = first_message(library, role), first_message(None, role)
    named = [f"`{guide.id}`" for guide in guides_for(library, BRIEFS[role])]
    assert f"`procedure-{role}` (procedure)" in told
    assert named[0] == f"`procedure-{role}`", "how to work comes first"
    assert len(named) == len(set(named)) < GUIDES
    assert all(name in told for name in named)
    others = [row for row in store.rows(Guide) if f"`{row.id}`" not in named]
    assert {row.kind for row in others} >= {"procedure", "library"}
    assert not [row.id for row in others if f"`{row.id}`" in told]
    assert len(told.splitlines()) <= len(without.splitlines()) + len(named) + 6, "a line each, the text by query"
    assert "Guides for your work" in told
    assert "Guides for your work" not in without
    lines = [line for line in told.splitlines() if line.startswith(tuple(f"- {name}" for name in named))]
    assert len(lines) == len(named)
    assert max(map(len, lines)) <= LINE


def test_a_guide_for_other_machines_is_not_named(library: Search) -> None:
    """The example's machine is a CPU."""
    ids = {guide.id for guide in guides_for(library, IMPLEMENTER)}
    assert {"cpp-openmp-avx", "pytorch", "numerics"} <= ids
    assert not ids & {"triton", "mlx", "flashinfer", "flash-attention", "triton-attention", "nsight"}
    platform = IMPLEMENTER.facts.platform.model_copy(update={"accelerator": "cuda", "name": "NVIDIA H200"})
    there = IMPLEMENTER.model_copy(update={"facts": IMPLEMENTER.facts.model_copy(update={"platform": platform})})
    elsewhere = {guide.id for guide in guides_for(library, there)}
    assert {"triton", "flashinfer", "triton-attention"} <= elsewhere
    assert "cpp-openmp-avx" not in elsewhere


def test_a_guide_is_told_in_full_by_its_name(library: Search) -> None:
    submit = (("write_file", {"path": "cache.py", "text": "x = 1\n"}), ("submit", {"summary": "s"}))
    script = Script(query(words="procedure-implementer"), submit)
    LitellmAuthor(LitellmSettings(model="m"), script, Unlimited(), means=Means(library=library)).answer(IMPLEMENTER)
    told = script.told[0].split("### ")[1]
    assert told.startswith("Guide `procedure-implementer` (procedure): Procedure of the implementer")
    for part in (
        "Steps:",
        "1. implementer: Reads the issue",
        "Limits:",
        "What goes wrong:",
        "Sources: MetaInfer, table 7",
    ):
        assert part in told


def test_every_column_of_a_guide_is_rendered(library: Search) -> None:
    """A table of calls and one of platforms are read as tables; no field is left as JSON."""
    [hit] = library.find(Query(words="flashinfer", table="guides", limit=1))
    told = render_knowledge(1, [hit])
    assert isinstance(hit.row, Guide)
    for call in hit.row.calls:
        assert f"| `{call.name}` |" in told
    for entry in hit.row.compatibility:
        assert (
            f"| {entry.backend} | {', '.join(entry.platforms)} | {entry.state} | {entry.why} | {entry.source} |" in told
        )
    for line in (*hit.row.limits, *(f"- seen: {f.symptom}; cause: {f.cause}" for f in hit.row.failures)):
        assert line in told
    assert hit.row.text.strip() in told
    assert "Holds where: platform.accelerator == 'cuda'" in told
    assert "Contracts that it speaks of: attention, kv-cache" in told
    assert "{" not in told


def test_every_role_has_one_procedure_that_ends_in_its_answer(store: Store) -> None:
    procedures = {row.roles: row for row in store.rows(Guide) if row.kind == "procedure"}
    assert {role for roles in procedures for role in roles} == set(typing.get_args(Reader))
    assert set(typing.get_args(RoleName)) <= set(typing.get_args(Reader))
    for role in typing.get_args(RoleName):
        guide = procedures[(role,)]
        assert {step.role for step in guide.steps} == {role}
        handed = " ".join(step.hands_over for step in guide.steps)
        missing = [name for name in ROLES[role].answer.model_fields if f"`{name}`" not in handed]
        assert missing == [], f"{guide.id} does not say when its answer's fields are made"


def test_what_a_procedure_forbids_its_prompt_forbids_too(store: Store) -> None:
    """Both are rules for one role: a sentence of one that the other contradicts would be a coin's toss."""
    rows = {row.id: row for row in store.rows(Guide)}
    for role, said, told in (
        ("implementer", "runs nothing", "You run nothing"),
        ("implementer", "1,200 lines", "1,200 lines"),
        ("reviewer", "replaces no test", "replace no test"),
        ("judge", "never pass one", "you can never pass it"),
        ("evaluator", "measures nothing", "You measure nothing"),
        ("orchestrator", "200 lines", "200 lines"),
        ("analyst", "writes no code", "You write no code"),
        ("consolidator", "measured one or null", "or null"),
    ):
        guide = rows[f"procedure-{role}"]
        assert said in " ".join((*guide.limits, *(step.does for step in guide.steps))), role
        assert told in render(BRIEFS[role])[0].content, role


def test_the_readers_that_are_no_author_are_those_that_the_table_names() -> None:
    assert set(typing.get_args(Reader)) - set(ROLES) == {"verifier", "explorer", "summariser"}


def test_queries_for_a_role_hold_guides_alone(library: Search) -> None:
    hits = library.find(Query(role="judge", limit=100))
    assert {hit.table for hit in hits} == {"guides"}
    assert "procedure-judge" in {hit.row.id for hit in hits}
    assert "procedure-analyst" not in {hit.row.id for hit in hits}


def test_a_version_from_before_there_were_guides_has_none(tmp_path: Path) -> None:
    old: dict[str, type[Row]] = {name: kind for name, kind in TABLES.items() if name != "guides"}
    Store.create(tmp_path / "store", old).append({"contracts": [LINEAR]}, message="m", by="t")
    assert guides_for(Search(Store(tmp_path / "store")), IMPLEMENTER) == []
