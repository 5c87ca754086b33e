"""Arrow schemas derived from pydantic records, so that each field is written down once.

str, int, float, bool and a Literal of strings are plain columns; `tuple[X, ...]` is a list, `dict[str, X]` a map, a
nested record a struct. A union of scalars (a choice's value) is a struct with one column a type, of which one is set:
`1`, `1.0`, `True` and `"1"` stay apart. Every column is nullable, so that a field added later reads as its default.
"""

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from ckb.errors import UserError
from ckb.records import Row

M = TypeVar("M", bound=BaseModel)
SHOWN = 60
"""Characters of a value in a message."""

SCALARS: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True)
class Codec:
    """The Arrow type of one annotation, and the way to plain Python values that Arrow takes, and back."""

    arrow: pa.DataType
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    optional: bool = False


@cache
def schema_of(model: type[BaseModel]) -> pa.Schema:
    """The Arrow schema of a record class. Raises TypeError for an annotation that has no column type."""
    return pa.schema([(name, codec.arrow) for name, codec in _fields(model).items()])


UNSTORABLE = (ValueError, TypeError, OverflowError, StopIteration, RuntimeError, pa.ArrowException)
"""What comes of a value that its column or its record does not hold: pydantic checks a record that is made, not one
that is copied with other values."""


def to_arrow(model: type[M], records: Sequence[M]) -> pa.Table:
    """One row a record, in the order given. Raises UserError that names the row and the field for a value that can't be
    stored, or that would be read back as another one or not at all."""
    try:
        rows = pa.Table.from_pylist([_encode_record(model, record) for record in records], schema=schema_of(model))
        if from_arrow(model, rows) == list(records):
            return rows
    except UNSTORABLE as error:
        cause: Exception | None = error
    else:
        cause = None
    faults = (fault for record in records if (fault := _fault(model, record)))
    raise UserError(f"{model.__name__} can't be stored: {next(faults, cause)}") from cause


def _fault(model: type[BaseModel], record: BaseModel) -> str | None:
    """The id of a record, its first field that does not come back from its column, and why; None if all do."""
    row = f"row {ascii(getattr(record, 'id', ''))[:SHOWN]}"
    for field, codec in _fields(model).items():
        value = getattr(record, field)
        given = ascii(value)[:SHOWN]
        try:
            stored = pa.array([codec.encode(value)], codec.arrow).to_pylist()[0]
            read = codec.decode(stored) if stored is not None or codec.optional else None
            again = getattr(model.model_validate({**dict(record), field: read}), field)
        except ValidationError as error:
            first = error.errors()[0]
            given = ascii(first["input"])[:SHOWN]
            return f"{row}, {'.'.join(map(str, first['loc']))}: {first['msg']}; {given} was given"
        except UNSTORABLE as error:
            return f"{row}, {field}: {error}; {given} was given"
        if again != value:
            return f"{row}, {field}: {given} would be read back as {ascii(again)[:SHOWN]}"
    return None


def field_of(model: type[BaseModel], name: str, stored: Any) -> Any:
    """The value of a field as its record has it, from the one in its column; as it is for a column of no field."""
    codec = _fields(model).get(name)
    return stored if codec is None or stored is None else codec.decode(stored)


def from_arrow(model: type[M], table: pa.Table) -> list[M]:
    """The records of a table; columns that it lacks (written before the field existed) take their defaults."""
    return [model.model_validate(_decode_record(model, row)) for row in table.to_pylist()]


def unknown_columns(model: type[BaseModel], schema: pa.Schema) -> list[str]:
    """Columns of a stored schema that the record class has no field for: a newer release wrote them."""
    stored = pa.struct([field for field in schema if field.name not in _retired(model)])
    return list(_extra(stored, pa.struct(list(schema_of(model))), ""))


def _retired(model: type[BaseModel]) -> tuple[str, ...]:
    """Columns that older versions of the table had and the record turns into something else (ckb.records.Row)."""
    return model.retired if issubclass(model, Row) else ()


def _extra(stored: pa.DataType, known: pa.DataType, path: str) -> Iterable[str]:
    if pa.types.is_struct(stored) and pa.types.is_struct(known):
        for field in stored:
            index = known.get_field_index(field.name)
            name = f"{path}.{field.name}".lstrip(".")
            if index < 0:
                yield name
            else:
                yield from _extra(field.type, known.field(index).type, name)
    elif pa.types.is_list(stored) and pa.types.is_list(known):
        yield from _extra(stored.value_type, known.value_type, path)
    elif pa.types.is_map(stored) and pa.types.is_map(known):
        yield from _extra(stored.item_type, known.item_type, path)


@cache
def _fields(model: type[BaseModel]) -> dict[str, Codec]:
    return {name: codec_of(field.annotation) for name, field in model.model_fields.items()}


def _encode_record(model: type[BaseModel], record: BaseModel) -> dict[str, Any]:
    return {name: codec.encode(getattr(record, name)) for name, codec in _fields(model).items()}


def _decode_record(model: type[BaseModel], row: dict[str, Any]) -> dict[str, Any]:
    known = ((name, codec, row.get(name)) for name, codec in _fields(model).items())
    fields = {name: codec.decode(value) for name, codec, value in known if value is not None or codec.optional}
    retired = {name: row[name] for name in _retired(model) if row.get(name)}
    return model.from_older(fields, retired) if retired and issubclass(model, Row) else fields


def codec_of(annotation: Any) -> Codec:
    """The codec of one annotation. Raises TypeError for one that has no column type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _union(annotation, arguments)
    if annotation in SCALARS:
        return Codec(SCALARS[annotation], _same, _same)
    if origin is Literal and all(isinstance(value, str) for value in arguments):
        return Codec(pa.string(), _same, _same)
    if origin is tuple and len(set(arguments) - {Ellipsis}) == 1:
        return _list(codec_of(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _map(codec_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _struct(annotation)
    raise TypeError(f"{annotation!r} has no Arrow column type")


def _same(value: Any) -> Any:
    return value


def _union(annotation: Any, arguments: tuple[Any, ...]) -> Codec:
    members = [argument for argument in arguments if argument is not types.NoneType]
    optional = len(members) < len(arguments)
    if len(members) == 1:
        inner = codec_of(members[0])
    elif all(member in SCALARS for member in members):
        inner = _tagged(members)
    else:
        raise TypeError(f"{annotation!r} has no Arrow column type")
    return Codec(
        inner.arrow,
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
        optional,
    )


def _tagged(members: list[type]) -> Codec:
    arrow = pa.struct([(member.__name__, SCALARS[member]) for member in members])
    return Codec(
        arrow,
        lambda value: {type(value).__name__: value},
        lambda value: next(item for item in value.values() if item is not None),
    )


def _list(item: Codec) -> Codec:
    return Codec(
        pa.list_(item.arrow),
        lambda values: [item.encode(value) for value in values],
        lambda values: tuple(item.decode(value) for value in values),
    )


def _map(item: Codec) -> Codec:
    return Codec(
        pa.map_(pa.string(), item.arrow),
        lambda values: [(key, item.encode(value)) for key, value in values.items()],
        lambda pairs: {key: item.decode(value) for key, value in pairs},
    )


def _struct(model: type[BaseModel]) -> Codec:
    return Codec(
        pa.struct(list(schema_of(model))),
        lambda record: _encode_record(model, record),
        lambda row: _decode_record(model, row),
    )
