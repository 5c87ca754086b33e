"""Looking after a store: removing what no readable version needs, and checking every file."""

from datetime import UTC, datetime, timedelta

from ckb.errors import UserError
from ckb.hashing import sha256
from ckb.manifest import CHECKPOINT_EVERY, DataFile, State, checksum_fits, decode_manifest
from ckb.store import Store
from ckb.versions import manifest_path


def vacuum(store: Store, grace: timedelta, *, by: str, now: datetime | None = None) -> list[str]:
    """Delete data files older than `grace` that no kept version needs, and return their paths.

    Kept are all versions from the oldest tagged one on, and from the newest that is older than `grace` on: a reader
    that began within the grace period is never disturbed. The log keeps every version; the rows of versions below that
    horizon can't be read any more. `grace` must be longer than any commit takes.
    """
    cutoff = (now or datetime.now(UTC)) - grace
    newest = store.state()
    horizon = max(newest.horizon, _horizon(store, cutoff, newest))
    if horizon > newest.horizon and _needed(store, newest.horizon) != _needed(store, horizon):
        store.raise_horizon(horizon, message=f"versions below {horizon} are no longer kept", by=by)
    first = min([horizon, *(version for version in store.tags().values() if version >= newest.horizon)])
    needed = _needed(store, first)
    deleted = []
    for stored in [*store.storage.list("data"), *store.storage.list("versions"), *store.storage.list("tags")]:
        temporary = "/." in stored.path
        unneeded = stored.path.startswith("data/") and stored.path not in needed
        if (temporary or unneeded) and datetime.fromtimestamp(stored.modified, UTC) < cutoff:
            store.storage.delete(stored.path)
            deleted.append(stored.path)
    return deleted


def _horizon(store: Store, cutoff: datetime, newest: State) -> int:
    """The oldest version to keep: the newest older than `cutoff`, or the oldest tag if that is below."""
    old = (manifest.version for manifest in store.log() if datetime.fromisoformat(manifest.at) < cutoff)
    return min([next(old, 0), *store.tags().values(), newest.version])


def _needed(store: Store, first: int) -> set[str]:
    """Paths of the data files that any version from `first` on needs."""
    needed = {file.path for file in _files(store.state(first))}
    for version in range(first + 1, store.latest + 1):
        manifest = store.versions.manifest(version, checkpoint=False)
        if manifest is not None:
            needed |= {file.path for change in manifest.changes.values() for file in change.add}
    return needed


def _files(state: State) -> list[DataFile]:
    return [file for table in state.tables.values() for file in table.files]


def verify(store: Store) -> list[str]:
    """Every fault of the store, one line each: gaps in the versions, checksums of manifests and data files."""
    faults: list[str] = []
    files: dict[str, DataFile] = {}
    state = State()
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
        if version % CHECKPOINT_EVERY == 0 and version and not faults:
            replayed = state.after(manifest.model_copy(update={"checkpoint": None}))
            if replayed.checkpoint() != manifest.checkpoint:
                faults.append(f"{path}: the checkpoint is not what the versions before it add up to")
        state = state.after(manifest)
        if version == horizon:
            files = {file.path: file for file in _files(state)}
        files |= {file.path: file for change in manifest.changes.values() for file in change.add}
    return faults + [fault for file in files.values() if (fault := _check(store, file))]


def _check(store: Store, file: DataFile) -> str | None:
    try:
        data = store.storage.read(file.path).to_pybytes()
    except FileNotFoundError:
        return f"{file.path}: missing, it had {file.rows} rows"
    if len(data) != file.bytes:
        return f"{file.path}: {len(data)} bytes, the manifest says {file.bytes}"
    return None if sha256(data) == file.sha256 else f"{file.path}: the checksum does not fit the content"
