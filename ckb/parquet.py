"""Data files: Parquet bytes of a few rows of one table, each row marked with the commit that wrote it."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

COMMIT = "_commit"
"""Hidden column: the id of the commit that wrote the row. It moves along when the row's file is rewritten."""
ROW_GROUP = 8_192
"""Rows that are read or passed over together: a condition decodes its own columns of each group, and the others only of
those groups that hold a row that meets it."""
CLUSTER = ("status", "kind")
"""Columns of few values by which merged files are sorted before the id."""


def encode(rows: pa.Table, commit: str) -> bytes:
    """Parquet bytes; rows that carry no commit yet get `commit`."""
    if COMMIT in rows.column_names:
        index = rows.column_names.index(COMMIT)
        rows = rows.set_column(index, COMMIT, pc.fill_null(rows[COMMIT], commit))
    else:
        rows = rows.append_column(COMMIT, pa.repeat(commit, rows.num_rows))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode(
    data: pa.Buffer, schema: pa.Schema, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """The rows of one file. A column of `schema` that the file lacks (older than the column) is null."""
    if columns is None and where is None:
        return whole(data)
    file = ds.ParquetFileFormat().make_fragment(data)
    stored = file.physical_schema
    full = pa.schema([*stored, *(field for field in schema if field.name not in stored.names)])
    names = full.names if columns is None else list(columns)
    if where is None:
        return file.to_table(schema=full, columns=names)
    groups = file.split_by_row_group(where, full)
    if len(groups) > 1:
        groups = [
            group
            for group in groups
            if group.scanner(schema=full, columns=[], filter=where, use_threads=False).count_rows()
        ]
    parts = [group.to_table(schema=full, columns=names, filter=where) for group in groups]
    return pa.concat_tables([pa.schema([full.field(name) for name in names]).empty_table(), *parts])


def clustered(rows: pa.Table) -> pa.Table:
    """The rows in an order in which those that are asked for together lie together, so that the statistics of the parts
    of a file tell which to pass over."""
    keys = [name for name in (*CLUSTER, "id") if name in rows.column_names]
    return rows.combine_chunks().sort_by([(name, "ascending") for name in keys])


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
