"""Looking after a store: removing what no readable version needs, and checking every file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from ckb import parquet
from ckb.errors import UserError
from ckb.hashing import sha256
from ckb.manifest import CHECKPOINT_EVERY, DataFile, Manifest, State, checksum_fits, decode_manifest
from ckb.store import Store
from ckb.versions import manifest_path, page_path

FOLDERS = ("data", "versions", "log", "tags")
LONGEST_COMMIT = timedelta(hours=1)
"""A younger file may belong to a commit that has not published its manifest yet, whatever the grace period."""


def vacuum(store: Store, grace: timedelta, *, by: str, now: datetime | None = None) -> list[str]:
    """Delete data files older than `grace`, and than any commit can take, that no kept version needs; their paths.

    Kept are all versions from the oldest tagged one on, and from the newest that is older than `grace` on: a reader
    that began within the grace period is never disturbed. The log keeps every version; the rows of versions below that
    horizon can't be read any more. Raises UserError for a negative grace period.
    """
    if grace < timedelta(0):
        raise UserError(f"the grace period of a vacuum can't be negative: {grace} was given")
    now = now or datetime.now(UTC)
    cutoff, old = now - grace, now - max(grace, LONGEST_COMMIT)
    newest = store.state()
    horizon = max(newest.horizon, _horizon(store, cutoff, newest))
    if horizon > newest.horizon and _needed(store, newest.horizon) != _needed(store, horizon):
        store.raise_horizon(horizon, message=f"versions below {horizon} are no longer kept", by=by)
    needed = _needed(store, min([horizon, *_tagged(store, newest.horizon)]))
    deleted = []
    for stored in (stored for folder in FOLDERS for stored in store.storage.list(folder)):
        temporary = "/." in stored.path
        unneeded = stored.path.startswith("data/") and stored.path not in needed
        if (temporary or unneeded) and datetime.fromtimestamp(stored.modified, UTC) < old:
            store.storage.delete(stored.path)
            deleted.append(stored.path)
    return deleted


def _horizon(store: Store, cutoff: datetime, newest: State) -> int:
    """The oldest version to keep: the newest older than `cutoff`, or the oldest tag if that is below."""
    old = (manifest.version for manifest in store.log() if datetime.fromisoformat(manifest.at) < cutoff)
    return min([next(old, 0), *_tagged(store, newest.horizon), newest.version])


def _tagged(store: Store, horizon: int) -> list[int]:
    """The tagged versions that can be read. A tagger that was killed when it found that a vacuum had come first has
    left a tag below the horizon, which must not hold every later vacuum up."""
    return [version for version in store.tags().values() if version >= horizon]


def _needed(store: Store, first: int) -> set[str]:
    """Paths of the data files that any version from `first` on needs."""
    needed = {file.path for file in _files(store.state(first))}
    for manifest in store.log():
        if manifest.version > first:
            needed |= {file.path for change in manifest.changes.values() for file in change.add}
    return needed


def _files(state: State) -> list[DataFile]:
    return [file for table in state.tables.values() for file in table.files]


def verify(store: Store) -> list[str]:
    """Every fault of the store, one line each: gaps in the versions, checksums of manifests and data files, pages
    of the log that differ from their manifests, tags of nothing, ids that a table holds twice."""
    faults: list[str] = []
    files: dict[str, DataFile] = {}
    state = State()
    page: list[Manifest] = []
    latest, horizon = store.latest, store.state().horizon
    for version in range(latest + 1):
        path = manifest_path(version)
        try:
            data = store.storage.read(path).to_pybytes()
            manifest = decode_manifest(data)
        except (FileNotFoundError, ValueError, UserError) as error:
            faults.append(f"{path}: {error}")
            continue
        if not checksum_fits(data):
            faults.append(f"{path}: the checksum does not fit the content")
        if manifest.version != version:
            faults.append(f"{path}: it says that it is version {manifest.version}")
        plain = manifest.model_copy(update={"checkpoint": None})
        page.append(plain)
        if version % CHECKPOINT_EVERY == 0:
            if version and not faults:
                faults += _check_checkpoint(store, version, state.after(plain), manifest, page)
            page = []
        state = state.after(manifest)
        if version == horizon:
            files = {file.path: file for file in _files(state)}
        files |= {file.path: file for change in manifest.changes.values() for file in change.add}
    damaged = [fault for file in files.values() if (fault := _check(store, file))]
    return [*faults, *damaged, *_check_tags(store, latest), *(() if damaged else _repeated(store))]


def _check_checkpoint(
    store: Store, version: int, replayed: State, manifest: Manifest, page: Sequence[Manifest]
) -> Iterator[str]:
    """Whether a checkpoint and the page that ends with it say what the manifests before them say."""
    if replayed.checkpoint() != manifest.checkpoint:
        yield f"{manifest_path(version)}: the checkpoint is not what the versions before it add up to"
    try:
        copied = store.versions.page(version)
    except UserError as error:
        yield str(error)
    else:
        if copied is not None and copied != page:
            yield f"{page_path(version)}: it is not what the manifests say"


def _check_tags(store: Store, latest: int) -> Iterator[str]:
    try:
        yield from (f"tags/{tag}.json: there is no version {n}" for tag, n in store.tags().items() if n > latest)
    except UserError as error:
        yield str(error)


def _repeated(store: Store) -> Iterator[str]:
    """Ids that more than one row of a table has: what wrote them is at fault, the files are whole."""
    for name, table in store.state().tables.items():
        ids = Counter(id for file in table.files for id in _ids(store, file))
        yield from (f"{name}: {count} rows have the id {id!r}" for id, count in ids.items() if count > 1)


def _ids(store: Store, file: DataFile) -> list[str]:
    ids: list[str] = parquet.decode(store.storage.read(file.path), pa.schema([]), ["id"])["id"].to_pylist()
    return ids


def _check(store: Store, file: DataFile) -> str | None:
    try:
        data = store.storage.read(file.path).to_pybytes()
    except FileNotFoundError:
        return f"{file.path}: missing, it had {file.rows} rows"
    if len(data) != file.bytes:
        return f"{file.path}: {len(data)} bytes, the manifest says {file.bytes}"
    return None if sha256(data) == file.sha256 else f"{file.path}: the checksum does not fit the content"
