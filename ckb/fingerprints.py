"""The copied-span check: which spans of a tree are those of a pinned framework release, renamed and reformatted or not.

    found = copied_spans({"model.py": source, ...})     # [] or where a span stands and where it comes from

A module becomes normalised lines: the kinds of the nodes of each statement, without names, literals, annotations,
decorators, imports, comments and docstrings. Syntax trees instead of tokens, since brackets, line breaks, quotes and
semicolons aren't in them, and they are the same under every Python that we support. SHINGLE lines make a hash, and of
WINDOW hashes in a row the smallest is kept (winnowing: Schleimer, Wilkerson and Aiken 2003), so that each span of
SPAN lines that two modules share holds at least one kept hash of both, wherever the span stands in them. The window is
1: a wider one needs shorter shingles, and then spans of fewer than SPAN lines are reported as well. With a window of 3
most libraries of transformers by other hands held some: idioms of six lines, such as a residual block's.

The table keeps a release's winnowed hashes and where they come from, and no source (ckb.fingerprint_table makes it).
All hashes of a tree are looked up in it: a tree is small, and its spans are then seen in their full length.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SPAN = 8
"""Normalised lines of which a copy is always found."""
WINDOW = 1
SHINGLE = SPAN - WINDOW + 1
"""Normalised lines of one hash: no shorter span is ever reported."""
LINE_NODES = 12
"""A longer statement counts as several normalised lines, as it would when it is written in lines of 90 characters."""
TELLING_NODES = 26
"""Nodes that the different lines of a shingle must have. Below it is `self.a = a` again and again, which says nothing
of where it comes from. 26 is measured: it misses 2 of 205 functions of transformers that have 8 lines or more."""
HASH_BYTES = 6
"""A tree of 1,000 shingles meets one of 600,000 hashes by chance once in half a million trees."""
TABLE = Path(__file__).parent / "data" / "fingerprints.parquet"
SCHEMA = pa.schema([("hash", pa.int64()), ("project", pa.string()), ("release", pa.string()), ("file", pa.string())])
"""One row a hash and project; `file` is one of the release's files that hold it."""

BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
"""Fields of a statement that hold other statements, in reading order."""
DROPPED = frozenset({"ctx", "annotation", "returns", "decorator_list", "type_params"})
SILENT = (ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal)


class Line(NamedTuple):
    """A normalised line: kinds of nodes with a space between, how many, and the first and last physical line."""

    kinds: str
    nodes: int
    first: int
    last: int


@dataclass(frozen=True, order=True)
class Span:
    """A run of lines of a tree's file that a release holds too."""

    file: str
    first: int
    last: int
    project: str
    release: str
    source: str
    """The release's file that shares most of it."""

    def __str__(self) -> str:
        return f"{self.file}:{self.first}-{self.last} is in {self.project} {self.release}, {self.source}"


class Origin(NamedTuple):
    project: str
    release: str
    file: str


# --- normalised lines -------------------------------------------------------------------------------------------------


def normalised(source: str) -> list[Line]:
    """The normalised lines of a module. Raises SyntaxError or ValueError for source that does not parse."""
    lines = []
    for statement in _statements(ast.parse(source)):
        nodes = list(_nodes(statement))
        for start in range(0, len(nodes), LINE_NODES):
            part = nodes[start : start + LINE_NODES]
            numbers = [number for _, number in part]
            lines.append(Line(" ".join(kind for kind, _ in part), len(part), min(numbers), max(numbers)))
    return lines


def _statements(module: ast.Module) -> Iterator[ast.AST]:
    """Statements, handlers and cases in reading order, without those that compute nothing."""
    waiting: list[ast.AST] = [module]
    while waiting:  # and no recursion: a chain of a thousand elifs is a tree a thousand deep
        node = waiting.pop()
        if not (isinstance(node, ast.Module) or _says_nothing(node)):
            yield node
        blocks = (getattr(node, name, ()) for name in BLOCKS)
        waiting += reversed([child for block in blocks for child in block])


def _says_nothing(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring, or `...`
            return True
        case ast.AnnAssign(value=None):
            return True
    return isinstance(node, SILENT)


def _nodes(statement: ast.AST) -> Iterator[tuple[str, int]]:
    """Kind and physical line of each node of a statement, in reading order, without the statements inside of it."""
    start = statement.pattern.lineno if isinstance(statement, ast.match_case) else 0
    waiting = [(statement, start)]
    while waiting:
        node, line = waiting.pop()
        line = getattr(node, "lineno", line)  # operators have none of their own
        yield _kind(node), line
        if isinstance(node, ast.JoinedStr):
            continue
        children = []
        for name in node._fields:
            if name in DROPPED or (node is statement and name in BLOCKS):
                continue
            value = getattr(node, name, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST):
                    children.append((child, line))
        waiting += reversed(children)


def _kind(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=value):
            return "number" if isinstance(value, int | float | complex) else type(value).__name__
        case ast.JoinedStr():
            return "str"
        case ast.AnnAssign():
            return "Assign"
    return type(node).__name__


# --- hashes -----------------------------------------------------------------------------------------------------------


def shingles(lines: Sequence[Line]) -> list[int | None]:
    """A hash for each run of SHINGLE lines, by its first line; None for one that tells nothing."""
    return [_hash(lines[start : start + SHINGLE]) for start in range(len(lines) - SHINGLE + 1)]


def _hash(part: Sequence[Line]) -> int | None:
    if sum({line.kinds: line.nodes for line in part}.values()) < TELLING_NODES:
        return None
    text = "\n".join(line.kinds for line in part)
    return int.from_bytes(blake2b(text.encode(), digest_size=HASH_BYTES).digest(), "big")


def winnowed(hashes: Sequence[int | None], width: int = WINDOW) -> list[int]:
    """The smallest hash of each `width` hashes in a row, the last one of equals; each place once."""
    kept: list[int] = []
    for start in range(max(1, len(hashes) - width + 1)):
        window = [(value, -at) for at, value in enumerate(hashes[start : start + width], start) if value is not None]
        if window and (not kept or kept[-1] != -min(window)[1]):
            kept.append(-min(window)[1])
    return [value for at in kept if (value := hashes[at]) is not None]


# --- the check --------------------------------------------------------------------------------------------------------


@cache
def committed() -> pa.Table:
    """The table that ships with the package."""
    return read_table(TABLE)


def read_table(path: Path) -> pa.Table:
    """A table of fingerprints. Raises ValueError for one without rows, against which every tree would pass."""
    table = pq.ParquetFile(path).read()
    if not table.num_rows:
        raise ValueError(f"{path} holds no fingerprints: no copy could be found with it")
    return table


def copied_spans(files: Mapping[str, str], table: pa.Table | None = None) -> list[Span]:
    """The spans that a tree shares with a release, by file and line. `files`: path -> source text of each module.

    `table`: SCHEMA; the committed one if None. A file that does not parse has no spans: another check must refuse it.
    """
    lines = {file: found for file, source in files.items() if (found := _parsed(source))}
    hashes = {file: shingles(found) for file, found in lines.items()}
    wanted = {value for found in hashes.values() for value in found if value is not None}
    origins = _origins(committed() if table is None else table, wanted)
    return sorted(span for file in lines for span in _spans(file, lines[file], hashes[file], origins))


def _parsed(source: str) -> list[Line]:
    try:
        return normalised(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two for brackets nested too deep
        return []


def _origins(table: pa.Table, wanted: Collection[int]) -> dict[int, list[Origin]]:
    rows = table.filter(pc.is_in(table["hash"], pa.array(sorted(wanted), pa.int64())))
    found: dict[int, list[Origin]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["hash"], []).append(Origin(row["project"], row["release"], row["file"]))
    return found


def _spans(
    file: str, lines: Sequence[Line], hashes: Sequence[int | None], origins: Mapping[int, list[Origin]]
) -> list[Span]:
    """The spans of one file. What two releases hold is said of the one that shares the longer span."""
    hits: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for at, value in enumerate(hashes):
        for origin in origins.get(value, ()) if value is not None else ():
            hits.setdefault((origin.project, origin.release), []).append((at, origin.file))
    found = []
    for (project, release), places in hits.items():
        for run in _runs(places):
            part = lines[run[0][0] : run[-1][0] + SHINGLE]
            source = Counter(name for _, name in run).most_common(1)[0][0]
            first, last = min(line.first for line in part), max(line.last for line in part)
            found.append(Span(file, first, last, project, release, source))
    kept: list[Span] = []
    for span in sorted(found, key=lambda span: (span.first - span.last, span)):
        if not any(other.first <= span.first and span.last <= other.last for other in kept):
            kept.append(span)
    return kept


def _runs(places: Sequence[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Hits whose shingles overlap or touch, together."""
    runs: list[list[tuple[int, str]]] = []
    for place in places:
        if runs and place[0] <= runs[-1][-1][0] + SHINGLE:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs
