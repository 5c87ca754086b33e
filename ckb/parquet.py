"""Data files: Parquet bytes of a few rows of one table, each row marked with the commit that wrote it."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COMMIT = "_commit"
"""Hidden column: the id of the commit that wrote the row. It moves along when the row's file is rewritten."""


def encode(rows: pa.Table, commit: str) -> bytes:
    """Parquet bytes; rows that carry no commit yet get `commit`."""
    if COMMIT in rows.column_names:
        index = rows.column_names.index(COMMIT)
        rows = rows.set_column(index, COMMIT, pc.fill_null(rows[COMMIT], commit))
    else:
        rows = rows.append_column(COMMIT, pa.repeat(commit, rows.num_rows))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode(
    data: pa.Buffer, schema: pa.Schema, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """The rows of one file. A column of `schema` that the file lacks (older than the column) is null."""
    if columns is None and where is None:
        return whole(data)
    stored = pq.read_schema(pa.BufferReader(data))
    missing = [field for field in schema if field.name not in stored.names]
    full = pa.schema([*stored, *missing])
    names = None if columns is None else list(columns)
    return pq.read_table(pa.BufferReader(data), columns=names, filters=where, schema=full)


def whole(data: pa.Buffer) -> pa.Table:
    """All rows and columns of one file, the hidden one included."""
    return pq.ParquetFile(pa.BufferReader(data)).read()


def concat(parts: Sequence[pa.Table]) -> pa.Table:
    """All rows under one schema that holds every column of the parts, null where a part lacks it."""
    return pa.concat_tables(parts, promote_options="permissive")


def visible(rows: pa.Table) -> pa.Table:
    """The rows without the hidden column."""
    return rows.drop_columns([COMMIT]) if COMMIT in rows.column_names else rows


def unmarked(rows: pa.Table) -> int:
    """How many rows carry no commit yet."""
    return int(rows[COMMIT].null_count) if COMMIT in rows.column_names else int(rows.num_rows)


def split(rows: pa.Table, ids: Sequence[str]) -> tuple[pa.Table, bool]:
    """The rows whose id is none of `ids`, and whether there were any others."""
    hit = pc.is_in(rows["id"], pa.array(ids, pa.string()))
    kept = rows.filter(pc.invert(hit))
    return kept, kept.num_rows < rows.num_rows
