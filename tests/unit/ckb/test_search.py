"""Queries for roles: what they find, in which order, at which version, and what they never show."""

from pathlib import Path
from typing import Any

import pytest

from ckb.build import ensure_store, read_knowledge_at
from ckb.errors import UserError
from ckb.predicate import PredicateError
from ckb.records import Contract, FailureMode, Fragment, Function, Row, Tensor
from ckb.schemas import Experience, Guide
from ckb.search import MOST_WORDS, SEARCHED, Query, QueryError, Search, query_of
from ckb.store import Store
from tests.unit.ckb.samples import FACTS, ROWS, experience, facts


def contract(id: str, title: str, text: str = "", **more: Any) -> Contract:
    interface = (Function(name=f"{id}_function", takes=(Tensor(name="x", dtype="compute"),), does="It."),)
    fields = {"layer": "contract", "stage": "model", "module": "model.py", "order": 1, "test": id, **more}
    return Contract(id=id, title=title, text=text, interface=interface, **fields)


def fragment(id: str, of: str, **more: Any) -> Fragment:
    fields = {"layer": "contract", "title": f"an example of {of}", "code": "x = 1\n", **more}
    return Fragment(id=id, contract=of, **fields)


CONTRACTS = [
    contract("rope", "Rotary embedding", "Two halves of each head."),
    contract(
        "paged-cache", "Pages of keys and values", "It holds pages. After the rotary embedding.", layer="framework"
    ),
    contract("scheduler", "Order of requests", decisions={"kv_layout": ("ring", "flat")}, layer="framework"),
    contract(
        "sampler", "From logits to a token", failures=(FailureMode(symptom="Nonsense", cause="a temperature below 0"),)
    ),
    contract("norms", "Root mean square", text="Epsilon stands under the root."),
]
FRAGMENTS = [
    fragment("rope-cpu", "rope", applies_to="platform.accelerator == 'cpu'", code="rotated = flipped(q)\n"),
    fragment("rope-cuda", "rope", applies_to="platform.accelerator == 'cuda'"),
    fragment("cache-ring", "paged-cache", applies_to="choice.kv_layout == 'ring'", imports=("import mmap",)),
]
LESSONS = [
    experience("barriers", title="Barriers cost", text="Threads spin at barriers.", signal="confirmed"),
    experience("hunch", title="Perhaps barriers help", signal="tentative"),
    experience("unfinished", title="Barriers, a draft", status="draft"),
    experience("past", title="Barriers, once", status="deprecated"),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "store")
    rows: dict[str, list[Row]] = {"contracts": [*CONTRACTS], "fragments": [*FRAGMENTS], "experience": [*LESSONS]}
    store.append(rows, message="m", by="t")
    return store


def found(store: Store, words: str = "", version: int | None = None, **more: Any) -> list[str]:
    return [hit.row.id for hit in Search(store, version).find(Query(words=words, **more))]


def test_a_row_about_a_thing_stands_before_one_that_mentions_it(store: Store) -> None:
    assert found(store, "rotary embedding") == ["rope", "paged-cache"]
    named = [(hit.row.id, hit.score) for hit in Search(store).find(Query(words="rope"))]
    assert [id for id, _ in named] == ["rope", "rope-cuda", "rope-cpu"]
    assert named[0][1] < named[1][1], "its fragments say the word more often, and the rule is about that"
    hits = Search(store).find(Query(words="rotary embedding"))
    assert hits[0].score > hits[1].score > 0
    assert [hit.table for hit in hits] == ["contracts", "contracts"]


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ("kv_layout", "scheduler"),  # the name of a decision
        ("ring", "scheduler"),  # one of its options
        ("sampler_function", "sampler"),  # a name of its interface
        ("temperature", "sampler"),  # an error boundary
        ("flipped", "rope-cpu"),  # code
        ("mmap", "cache-ring"),  # an import
        ("page", "paged-cache"),  # another form of the word
        ("EPSILON", "norms"),
        ("épsilon", "norms"),
        ("norms AND NOT", "norms"),  # words, not operators
        ('"norms" OR (', "norms"),
        ("title:norms*", "norms"),
    ],
)
def test_words_are_looked_for_in_all_that_a_row_says(store: Store, words: str, id: str) -> None:
    assert id in found(store, words)


@pytest.mark.parametrize("words", ["interface", "dtype", "framework", "verified", "provenance"])
def test_names_of_fields_and_where_a_row_is_filed_are_no_text(store: Store, words: str) -> None:
    assert found(store, words) == []


def test_papers_that_a_row_rests_on_are_found(store: Store) -> None:
    cited = contract("gqa", "Grouped heads", provenance={"source": "seed", "references": ["Ainslie et al. 2023"]})
    store.append({"contracts": [cited]}, message="m", by="t")
    assert found(store, "ainslie") == ["gqa"]


@pytest.mark.parametrize("query", [{}, {"words": "barriers hunch unfinished past"}, {"facts": FACTS}])
def test_tentative_and_draft_and_deprecated_rows_are_never_shown(store: Store, query: dict[str, Any]) -> None:
    shown = set(found(store, table="experience", **query))
    assert shown == {"barriers"}


def test_a_contract_brings_its_fragments(store: Store) -> None:
    assert found(store, contract="rope") == ["rope", "rope-cpu", "rope-cuda"]
    assert found(store, contract="rope", table="fragments") == ["rope-cpu", "rope-cuda"]
    assert found(store, contract="none") == []


def test_layer_and_table_narrow(store: Store) -> None:
    assert found(store, layer="framework") == ["paged-cache", "scheduler"]
    assert found(store, "barriers", layer="contract") == []
    assert found(store, table="experience") == ["barriers"]


def test_only_conditions_that_are_known_to_hold_count(store: Store) -> None:
    assert found(store, facts=FACTS, table="fragments") == ["rope-cpu"]
    assert found(store, facts=facts(accelerator="cuda"), table="fragments") == ["rope-cuda"]
    assert found(store, facts=FACTS, table="fragments", choices={"kv_layout": "ring"}) == ["cache-ring", "rope-cpu"]
    assert found(store, facts=FACTS, table="fragments", choices={"kv_layout": "flat"}) == ["rope-cpu"]
    assert found(store, table="fragments") == ["cache-ring", "rope-cpu", "rope-cuda"]


def test_the_limit_counts_what_passed_the_filters(store: Store) -> None:
    """The best of three rows for `example` may be the one whose condition does not hold."""
    assert found(store, "example", facts=facts(accelerator="cuda"), limit=1) == ["rope-cuda"]
    assert len(found(store, limit=4)) == 4


def test_a_search_stays_at_its_version(store: Store) -> None:
    pinned = Search(store)
    store.overwrite({"contracts": [contract("rope", "Barriers")]}, parent=1, message="m", by="t")
    store.append({"experience": [experience("new", title="New barriers")]}, message="m", by="t")
    assert pinned.version == 1
    assert [hit.row.id for hit in pinned.find(Query(words="barriers"))] == ["barriers"]
    assert set(found(store, "barriers")) == {"rope", "barriers", "new"}
    assert found(store, "barriers", version=1) == ["barriers"]
    with pytest.raises(UserError, match="9"):
        Search(store, 9)


def test_every_searched_table_is_there_with_all_its_text(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store")
    rows = {table: ROWS[table].model_copy(update={"status": "verified"}) for table in SEARCHED}
    store.append({table: [row] for table, row in rows.items()}, message="m", by="t")
    hits = Search(store).find(Query())
    assert [(hit.table, hit.row) for hit in hits] == list(rows.items())
    for words, table in (("int8", ""), ("numpy", "platforms"), ("Größe", "contracts"), ("layer", "models")):
        assert {hit.table for hit in Search(store).find(Query(words=words))} == ({table} if table else set()), words


def test_words_that_cannot_be_looked_for_are_refused_with_the_numbers(store: Store) -> None:
    with pytest.raises(QueryError, match=r"'== \(\)' holds no word"):
        found(store, "== ()")
    many = " ".join(f"w{number}" for number in range(MOST_WORDS + 1))
    with pytest.raises(QueryError, match=f"{MOST_WORDS + 1} different words, at most {MOST_WORDS}"):
        found(store, many)
    assert found(store, "rope " * 1000, table="contracts") == ["rope"]


def test_a_query_that_is_written_down_wrongly_names_the_field(store: Store) -> None:
    with pytest.raises(QueryError, match=r"table: Input should be 'contracts'.*not 'runs'"):
        query_of(words="x", table="runs")
    with pytest.raises(QueryError, match=r"layer: .*not 'kernel'"):
        query_of(layer="kernel")
    with pytest.raises(QueryError, match=r"limit: .*not 0"):
        query_of(limit=0)


def test_a_condition_that_cannot_be_read_surfaces(store: Store) -> None:
    """It is a defect of the knowledge, which lint names: to leave the row out would hide it."""
    store.append({"contracts": [contract("bad", "Bad", applies_to="model.colour == 'red'")]}, message="m", by="t")
    with pytest.raises(PredicateError, match=r"contracts 'bad' of the knowledge base: .*model\.colour"):
        found(store, facts=FACTS)
    assert "bad" in found(store), "without facts nothing is asked of it"


@pytest.mark.parametrize(
    "condition", ["-model.model_type == 1", "not " * 5000 + "True", "model.heads == 2,", "model.heads > 'x'"]
)
def test_a_row_that_breaks_the_language_is_named(store: Store, condition: str) -> None:
    store.append({"experience": [experience("odd", applies_to=condition)]}, message="m", by="t")
    with pytest.raises(PredicateError, match="experience 'odd' of the knowledge base: predicate "):
        found(store, facts=FACTS)


def test_a_row_about_a_part_that_the_model_lacks_does_not_apply_and_ends_no_query(store: Store) -> None:
    store.append({"experience": [experience("w", applies_to="model.sliding_window > 8")]}, message="m", by="t")
    assert "w" not in found(store, facts=FACTS)
    assert "w" in found(store, facts=facts(sliding_window=9))


def test_the_seed_is_found_by_what_its_titles_say(tmp_path: Path) -> None:
    store = ensure_store(tmp_path / "store")
    search = Search(store)
    missed = [
        row.id
        for row in read_knowledge_at(store).contracts.values()
        if row.id not in [h.row.id for h in search.find(Query(words=row.title, table="contracts", limit=3))]
    ]
    assert missed == []
    titles = {row.id: row.title for row in store.rows(Guide)}
    assert titles
    for id, title in titles.items():
        assert id in [hit.row.id for hit in search.find(Query(words=title, table="guides", limit=3))]
    assert store.rows(Experience)
    for lesson in store.rows(Experience):
        assert lesson.id in [h.row.id for h in search.find(Query(words=lesson.title))]
