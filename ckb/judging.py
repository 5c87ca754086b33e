"""A person's word on a row: whether it may be used. What a run made of it comes after that, never above it."""

import pyarrow.compute as pc

from ckb.errors import UserError
from ckb.records import Status
from ckb.store import Store


def judge(store: Store, table: str, id: str, status: Status, *, why: str, by: str) -> int:
    """Give a row that a run or a person wrote another status, and return the version that holds it.

    Raises UserError for a row that isn't there, one that has the status already, and one of the seed (its file says
    what it is); Conflict when somebody else committed meanwhile.
    """
    base = store.latest
    rows = store.rows(table, base, where=pc.field("id") == id)
    if not rows:
        raise UserError(f"table {table!r} has no row {id!r} at version {base}")
    row = rows[0]
    if row.provenance.source == "seed":
        raise UserError(f"{id!r} is a row of the seed: change its file in ckb/knowledge/{table} and build")
    if row.status == status:
        raise UserError(f"{id!r} is {status} already")
    message = f"{table} {id}: {row.status} -> {status}: {why}"
    return store.overwrite({table: [row.model_copy(update={"status": status})]}, parent=base, message=message, by=by)
