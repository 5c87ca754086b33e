"""Looking after a store: removing what no readable version needs, and checking every file.

What a vacuum may delete, and what a tag or a late commit still needs, is settled in the chain of versions, where of two
that go on at once one comes first:

- Before it raises the horizon it says so in a version of its own (`closing`), and looks at the tags after that. A
  tagger that was there before is seen; one that comes later sees the version, and takes its tag back. Only the vacuum
  that spoke last may raise the horizon, so that one which was killed or stands still does no harm.
- Before it deletes files of no version it says in a version how old they are (`floor`), and looks at the versions up to
  that one. A commit that came before is seen; one that comes later sees the floor, and is not published if its files
  are below it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from ckb import parquet
from ckb.commit import Conflict
from ckb.errors import Damaged, PlaceError, UserError
from ckb.manifest import CHECKPOINT_EVERY, DataFile, Manifest, State, decode_manifest
from ckb.storage import Stored, clock
from ckb.store import Store
from ckb.versions import MANIFEST_NAME, in_a_line, manifest_path, page_path

FOLDERS = ("data", "versions", "log", "tags")
LONGEST_COMMIT = timedelta(hours=1)
"""A younger file may belong to a commit that has not published its manifest yet, whatever the grace period. One that
takes longer is refused (ckb.commit)."""


def vacuum(store: Store, grace: timedelta, *, by: str, now: datetime | None = None) -> list[str]:
    """Delete data files older than `grace`, and than any commit can take, that no kept version needs; their paths.

    Kept are all versions from the oldest tagged one on, and from the newest that is older than `grace` on: a reader
    that began within the grace period is never disturbed. The log keeps every version; the rows of versions below that
    horizon can't be read any more. Ages are those of the storage's clock. Raises UserError for a negative grace period
    and for a damaged version: only whole ones say what is needed.
    """
    if grace < timedelta(0):
        raise UserError(f"the grace period of a vacuum can't be negative: {grace} was given")
    now = now or datetime.fromtimestamp(clock(store.storage), UTC)
    old = (now - max(grace, LONGEST_COMMIT)).timestamp()
    newest = store.state()
    horizon = max(newest.horizon, _horizon(store, (now - grace).timestamp(), newest))
    raises = horizon > newest.horizon and _needed(store, newest.horizon) != _needed(store, horizon)
    if raises or newest.closing is not None:
        _raise_horizon(store, horizon, old, by)
    elif any(_unneeded(store, old)):
        message = "files of no version are deleted"
        store.raise_horizon(newest.horizon, old, message=message, by=by)
    deleted = []
    for stored in [*_unneeded(store, min(old, store.state().floor or 0.0)), *_temporary(store, old)]:
        store.storage.delete(stored.path)
        deleted.append(stored.path)
    return deleted


def _raise_horizon(store: Store, horizon: int, floor: float, by: str) -> None:
    """In two versions, with a look at the tags in between. Another vacuum that begins meanwhile takes it over."""
    closing = store.close_below(horizon, message=f"versions below {horizon} are about to go", by=by)
    kept = min([horizon, *_tagged(store)])
    message = f"versions below {kept} are no longer kept"
    with suppress(Conflict):
        store.raise_horizon(kept, floor, message=message, by=by, parent=closing)


def _horizon(store: Store, cutoff: float, newest: State) -> int:
    """The oldest version to keep: the newest that is older than `cutoff`, or the oldest tag if that is below.

    A version is as old as the storage says of its manifest, and no older than one before it: the clock of one writer
    among many may be years behind.
    """
    old, latest = 0, 0.0
    for stored in store.storage.list("versions"):
        if match := MANIFEST_NAME.fullmatch(stored.path):
            latest = max(latest, stored.modified)
            old = int(match[1]) if latest < cutoff else old
    return min([old, *_tagged(store), newest.version])


def _tagged(store: Store) -> list[int]:
    """The tagged versions that can be read. A tagger that was killed when it found that a vacuum had come first has
    left a tag below the horizon, which must not hold every later vacuum up."""
    horizon = store.state().horizon
    return [version for version in store.tags().values() if version >= horizon]


def _unneeded(store: Store, old: float) -> Iterator[Stored]:
    """Data files older than `old`, in seconds since the epoch, that no version from the horizon on needs."""
    needed = _needed(store, store.state().horizon)
    for stored in store.storage.list("data"):
        if stored.path not in needed and not _is_temporary(stored) and stored.modified < old:
            yield stored


def _temporary(store: Store, old: float) -> Iterator[Stored]:
    """What writers that were killed left beside their files."""
    for folder in FOLDERS:
        yield from (s for s in store.storage.list(folder) if _is_temporary(s) and s.modified < old)


def _is_temporary(stored: Stored) -> bool:
    return "/." in stored.path


def _needed(store: Store, first: int) -> set[str]:
    """Paths of the data files that any version from `first` on needs, as their manifests say: a page of the log is but
    a copy. That another vacuum may have raised the horizon above `first` meanwhile does not matter here."""
    needed = {file.path for file in _files(store.versions.load(first))}
    for manifest in store.versions.manifests(first + 1, store.latest):
        needed |= {file.path for change in manifest.changes.values() for file in change.add}
    return needed


def _files(state: State) -> list[DataFile]:
    return [file for table in state.tables.values() for file in table.files]


def verify(store: Store) -> list[str]:
    """Every fault of the store, one line each: gaps in the versions, checksums of manifests and data files, pages
    of the log that differ from their manifests, tags of nothing, ids that a table holds twice.

    It needs no version to be whole: what is behind a damaged one is looked at as far as it can be known.
    """
    chain = _Chain(store)
    for version in range(chain.end):
        chain.follow(version)
    damaged = [fault for file in chain.files.values() if (fault := _check(store, file))]
    repeated = () if damaged or chain.state is None else _repeated(store, chain.state)
    return [*chain.faults, *damaged, *_check_tags(store, chain.end - 1, chain.horizon), *repeated]


class _Chain:
    """The versions one after another, with what is wrong with them and the data files that they need."""

    def __init__(self, store: Store):
        self.store = store
        self.faults: list[str] = []
        self.files: dict[str, DataFile] = {}
        """Path -> a file that a version from the horizon on needs."""
        self.state: State | None = State()
        """At the version that was looked at last; None behind a damaged one, up to the next checkpoint."""
        self._page: list[Manifest] = []
        self._pages = {stored.path for stored in store.storage.list("log")}
        self.end = self._end()
        self.horizon = self._newest_horizon()

    def _end(self) -> int:
        """One more than the highest number that there is; a folder that stands for a manifest is not among the files
        that are listed."""
        end = self.store.versions.highest() + 1
        return end if isinstance(self._read(end), FileNotFoundError) else end + 1

    def _newest_horizon(self) -> int:
        """The horizon as the newest manifest that can be read says it."""
        read = (self._read(version) for version in reversed(range(self.end)))
        return next((manifest.horizon for manifest in read if isinstance(manifest, Manifest)), 0)

    def _read(self, version: int) -> Manifest | Exception:
        try:
            return decode_manifest(self.store.storage.read(manifest_path(version)).to_pybytes())
        except (FileNotFoundError, ValueError, UserError) as error:
            return error

    def follow(self, version: int) -> None:
        """Look at the next version."""
        path = manifest_path(version)
        manifest = self._read(version)
        if isinstance(manifest, Exception):
            self.faults.append(f"{path}: {in_a_line(manifest)}")
            self.state = None
            return
        if manifest.version != version:
            self.faults.append(f"{path}: it says that it is version {manifest.version}")
        plain = manifest.model_copy(update={"checkpoint": None})
        self._page.append(plain)
        replayed = self._after(plain) if self.state is not None and version else None
        if manifest.checkpoint is not None:
            if replayed is not None and replayed.checkpoint() != manifest.checkpoint:
                self.faults.append(f"{path}: the checkpoint is not what the versions before it add up to")
            replayed = self._after(manifest)
        self.state = replayed
        if version % CHECKPOINT_EVERY == 0:
            self._check_page(version)
        self._collect(manifest)

    def _after(self, manifest: Manifest) -> State | None:
        try:
            return (self.state or State()).after(manifest)
        except ValueError as error:
            self.faults.append(f"{manifest_path(manifest.version)}: {in_a_line(error)}")
            return None

    def _check_page(self, version: int) -> None:
        page, self._page = self._page, []
        whole = version > 0 and len(page) == CHECKPOINT_EVERY
        if whole and page_path(version) in self._pages and self.store.versions.page(version) != page:
            self.faults.append(f"{page_path(version)}: it is not what the manifests say")

    def _collect(self, manifest: Manifest) -> None:
        """The files of the state at the horizon, of each checkpoint after it, and those that were added since."""
        if manifest.version < self.horizon:
            return
        if self.state is not None and (manifest.version == self.horizon or manifest.checkpoint is not None):
            self.files |= {file.path: file for file in _files(self.state)}
        self.files |= {file.path: file for change in manifest.changes.values() for file in change.add}


def _check_tags(store: Store, latest: int, horizon: int) -> Iterator[str]:
    for stored in store.storage.list("tags"):
        if not stored.path.endswith(".json"):
            continue
        try:
            version = store.tagged(stored.path)
        except Damaged as error:
            yield str(error)
            continue
        if version > latest:
            yield f"{stored.path}: there is no version {version}"
        elif version < horizon:
            yield (
                f"{stored.path}: version {version} was vacuumed away, the oldest that can be read is {horizon}; its "
                "tagger was killed before it took the tag back: delete the file"
            )


def _repeated(store: Store, state: State) -> Iterator[str]:
    """Ids that more than one row of a table has: what wrote them is at fault, the files are whole."""
    for name, table in state.tables.items():
        ids = Counter(id for file in table.files for id in _ids(store, file))
        yield from (f"{name}: {count} rows have the id {id!r}" for id, count in ids.items() if count > 1)


def _ids(store: Store, file: DataFile) -> Sequence[str]:
    ids: list[str] = parquet.decode(store.data(file), pa.schema([]), ["id"])["id"].to_pylist()
    return ids


def _check(store: Store, file: DataFile) -> str | None:
    try:
        store.data(file)
    except (Damaged, PlaceError) as error:
        return str(error)
    return None
