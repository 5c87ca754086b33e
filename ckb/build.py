"""Brings the seed knowledge (readable files) into the store, and reads from it what generation works from.

    contracts/*.md  experience/*.md  guides/*.md  test_contracts/*.md
                                                         YAML front matter between lines of ---, then `text`
    fragments/*.py                                       front matter in comments, imports, code
    models/*.yaml  platforms/*.yaml  parallelism/*.yaml  one mapping of fields

The file's name is the row's id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ckb.errors import UserError
from ckb.knowledge_files import (
    KNOWLEDGE,
    Knowledge,
    of_status,
    read_contract,
    read_fragment,
    read_text_row,
    read_yaml_row,
)
from ckb.records import Contract, Fragment, Row
from ckb.schemas import Experience, Guide, ModelFamily, Parallelism, Platform, TestContract
from ckb.storage import Place
from ckb.store import Conflict, Store, Version
from ckb.versions import NoStore

Ids = dict[str, tuple[str, ...]]
"""Table -> ids of rows."""


@dataclass(frozen=True)
class Build:
    """What importing the seed did."""

    version: int
    """The version that holds the seed now."""
    added: Ids = field(default_factory=dict)
    changed: Ids = field(default_factory=dict)
    deprecated: Ids = field(default_factory=dict)
    """Seed rows whose file is gone: their status says so, the rows stay."""

    @property
    def unchanged(self) -> bool:
        return not (self.added or self.changed or self.deprecated)


def read_seed(root: Path = KNOWLEDGE) -> dict[str, list[Row]]:
    """Table -> the rows of the seed files. Raises KnowledgeFileError for a file that can't be read."""
    text: dict[str, type[Row]] = {"experience": Experience, "guides": Guide, "test_contracts": TestContract}
    mappings: dict[str, type[Row]] = {"models": ModelFamily, "platforms": Platform, "parallelism": Parallelism}
    return {
        "contracts": [read_contract(path) for path in sorted((root / "contracts").glob("*.md"))],
        "fragments": [read_fragment(path) for path in sorted((root / "fragments").glob("*.py"))],
        **{t: [read_text_row(p, kind) for p in sorted((root / t).glob("*.md"))] for t, kind in text.items()},
        **{t: [read_yaml_row(p, kind) for p in sorted((root / t).glob("*.yaml"))] for t, kind in mappings.items()},
    }


def build(root: Place, knowledge: Path = KNOWLEDGE, *, by: str = "build", today: str = "") -> Build:
    """Import the seed: version 1 of a new store, or one new version with what differs, or nothing.

    Only rows that came from the seed are compared; what runs and people added stays as it is. When others commit
    meanwhile, the seed is compared anew with what is there then.
    """
    seed = read_seed(knowledge)
    store = open_or_create(root)
    while True:
        try:
            return _import(store, seed, by, today or datetime.now(UTC).date().isoformat())
        except Conflict:
            continue


def _import(store: Store, seed: Mapping[str, Sequence[Row]], by: str, today: str) -> Build:
    base = store.latest
    stored = {table: {row.id: row for row in store.rows(table, base)} for table in seed}
    added = {t: [r for r in rows if r.id not in stored[t]] for t, rows in seed.items()}
    changed = {t: list(_changed(rows, stored[t])) for t, rows in seed.items()}
    gone = {t: list(_gone(stored[t], {r.id for r in rows})) for t, rows in seed.items()}
    dated = {t: [r.model_copy(update={"created": r.created or today}) for r in rows] for t, rows in added.items()}
    rows = {t: dated[t] + changed[t] + gone[t] for t in seed}
    if not any(rows.values()):
        return Build(base)
    message = f"seed: {_count(added)} added, {_count(changed)} changed, {_count(gone)} deprecated"
    if any(changed.values()) or any(gone.values()):
        version = store.overwrite(rows, parent=base, message=message, by=by)
    else:
        version = store.append(rows, parent=base, message=message, by=by)
    return Build(version, _ids(added), _ids(changed), _ids(gone))


def open_or_create(root: Place) -> Store:
    """The store at `root`, made if there is none."""
    try:
        return Store(root)
    except NoStore:
        return Store.create(root, exist_ok=True)


def ensure_store(root: Place, knowledge: Path = KNOWLEDGE) -> Store:
    """The store at `root` with the seed of this release in it."""
    build(root, knowledge)
    return Store(root)


def read_knowledge_at(store: Store, version: Version = None) -> Knowledge:
    """What generation may use, from the store at one pinned version: the verified rows; and the drafts beside them."""
    number = store.state(version).version
    contracts = {c.id: c for c in store.rows(Contract, number)}
    fragments = {f.id: f for f in store.rows(Fragment, number)}
    experience = tuple(e for e in store.rows(Experience, number) if e.usable)
    verified, drafts = of_status(contracts, "verified"), of_status(contracts, "draft")
    return Knowledge(verified, of_status(fragments, "verified"), number, experience, drafts)


def _changed(rows: Sequence[Row], stored: Mapping[str, Row]) -> Iterator[Row]:
    """The rows whose stored form differs in anything but its date; the date of a row is kept."""
    for row in rows:
        old = stored.get(row.id)
        if old is not None and old.provenance.source != "seed":
            raise UserError(f"the seed's {row.id!r} is the id of a row that a {old.provenance.source} wrote: rename it")
        if old is not None and row.model_copy(update={"created": old.created}) != old:
            yield row.model_copy(update={"created": old.created})


def _gone(stored: Mapping[str, Row], ids: set[str]) -> Iterator[Row]:
    """The seed rows that no file holds any more, as deprecated ones."""
    for row in stored.values():
        if row.id not in ids and row.provenance.source == "seed" and row.status != "deprecated":
            yield row.model_copy(update={"status": "deprecated"})


def _ids(rows: Mapping[str, Sequence[Row]]) -> Ids:
    return {table: tuple(row.id for row in found) for table, found in rows.items() if found}


def _count(rows: Mapping[str, Sequence[Row]]) -> int:
    return sum(map(len, rows.values()))
