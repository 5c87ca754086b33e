"""The tables' schemas: derived from the records, and nothing is lost on the way to Parquet and back."""

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError

from ckb.build import build
from ckb.records import Contract, Function, Row
from ckb.schemas import TABLES
from ckb.schemas.arrow import codec_of, from_arrow, schema_of, to_arrow, unknown_columns
from ckb.schemas.traces import Trace
from ckb.store import Store
from tests.unit.ckb.samples import ROWS


@pytest.mark.parametrize("table", TABLES)
def test_every_field_of_every_table_survives_the_store(table: str, tmp_path: Path) -> None:
    full = ROWS[table]
    optional = {name for name, field in type(full).model_fields.items() if not field.is_required()}
    assert full.model_fields_set == set(type(full).model_fields), "the sample must set every field"
    bare = type(full)(**full.model_dump(exclude=optional - {"correctness", "performance"}) | {"id": "b"})
    store = Store.create(tmp_path / "store")
    store.append({table: [full, bare]}, message="m", by="b")
    back = Store(tmp_path / "store").rows(TABLES[table])
    assert back == [full, bare]
    assert [repr(row) for row in back] == [repr(full), repr(bare)], "1, 1.0 and True are equal but not the same"


@pytest.mark.parametrize("table", TABLES)
def test_every_field_of_every_table_is_documented(table: str) -> None:
    own = {name: f.description for name, f in TABLES[table].model_fields.items() if name not in Row.model_fields}
    assert [name for name, text in own.items() if not text] == []
    assert all(field.description for field in Row.model_fields.values())


def test_what_a_contract_demands_is_in_typed_columns() -> None:
    schema = schema_of(TABLES["contracts"])
    for column, parts in (
        ("native", ["name", "takes", "returns", "does"]),
        ("transitions", ["subject", "before", "event", "after"]),
        ("error_cases", ["function", "condition", "exception", "message"]),
        ("failures", ["symptom", "cause"]),
    ):
        struct = schema.field(column).type.value_type
        assert [struct.field(i).name for i in range(struct.num_fields)] == parts
    function = schema.field("interface").type.value_type
    assert pa.types.is_struct(function)
    assert function.field("takes").type.value_type.field("shape").type == pa.list_(pa.string())
    assert pa.types.is_map(schema.field("decisions").type)
    assert not any(str(field.type) == "binary" for field in schema)


def test_an_annotation_without_a_column_type_is_refused() -> None:
    for annotation in (Any, dict[int, str], tuple[int, str], str | tuple[int, ...], Literal[1, 2], bytes):
        with pytest.raises(TypeError, match="no Arrow column type"):
            codec_of(annotation)


def test_a_column_that_a_file_lacks_takes_the_default_of_its_field() -> None:
    class Old(BaseModel):
        id: str

    class New(Old):
        rank: int = 7
        note: str | None = None
        names: tuple[str, ...] = ("x",)

    rows = to_arrow(Old, [Old(id="a")])
    assert from_arrow(New, rows) == [New(id="a", rank=7, note=None, names=("x",))]
    assert unknown_columns(Old, schema_of(New)) == ["rank", "note", "names"]
    assert unknown_columns(New, schema_of(Old)) == []


def test_a_trace_has_just_the_results_that_its_status_allows() -> None:
    passed = ROWS["traces"]
    assert isinstance(passed, Trace)
    fields = passed.model_dump()
    for evaluation, keep in (("PASSED", ()), ("PASSED", ("correctness",)), ("TIMEOUT", ("correctness",))):
        results = {name: fields[name] if name in keep else None for name in ("correctness", "performance")}
        with pytest.raises(ValidationError, match="correctness"):
            Trace.model_validate(fields | results | {"evaluation": evaluation})
    Trace.model_validate(fields | {"evaluation": "INCORRECT_NUMERICAL", "performance": None})


class OldContract(Row):
    """A contract as it was stored before error cases and failures were columns."""

    title: str
    stage: str
    module: str
    order: int
    interface: tuple[Function, ...]
    errors: tuple[str, ...] = ()
    failure_modes: tuple[str, ...] = ()
    test: str
    text: str


def test_a_store_from_before_a_column_was_retired_is_read_and_built_upon(tmp_path: Path) -> None:
    old: dict[str, Any] = {
        **{"id": "rope", "layer": "contract", "title": "t", "stage": "execution", "module": "kernels.py", "order": 7},
        **{"interface": (), "test": "rope", "text": "As it was.\n"},
        **{"errors": ("x raises ValueError",), "failure_modes": ("theta is wrong", "so are halves")},
    }
    quiet = {**old, "id": "quiet", "errors": (), "failure_modes": ()}
    before = Store.create(tmp_path / "store", {"contracts": OldContract})
    before.append({"contracts": [OldContract(**old), OldContract(**quiet)]}, message="m", by="b")
    assert build(tmp_path / "store").version == 2
    store = Store(tmp_path / "store")
    then = {row.id: row for row in store.rows(Contract, 1)}
    assert then["rope"].text == (
        "As it was.\n\nErrors:\n- x raises ValueError\n\nWhat goes wrong:\n- theta is wrong\n- so are halves\n"
    )
    assert then["quiet"].text == "As it was.\n"
    now = {row.id: row for row in store.rows(Contract)}
    assert now["rope"].failures
    assert "What goes wrong" not in now["rope"].text
    assert then["rope"].failures == ()


def test_a_column_that_nobody_retired_is_still_refused() -> None:
    assert unknown_columns(Contract, schema_of(OldContract)) == []
    assert unknown_columns(Row, schema_of(OldContract))[-4:] == ["errors", "failure_modes", "test", "text"]
