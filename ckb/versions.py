"""The chain of versions: one manifest file each, and the state that they add up to. Knows nothing of Parquet."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from ckb.errors import Damaged, PlaceError, UserError
from ckb.manifest import (
    CHECKPOINT_EVERY,
    Manifest,
    State,
    decode_manifest,
    decode_page,
    encode_manifest,
    encode_page,
    with_checkpoint,
)
from ckb.storage import Storage, put_recognised

MANIFEST_NAME = re.compile(r"versions/(\d{10})\.json")


class NoStore(UserError):
    """There is no store where one was to be opened."""


class Versions:
    """The versions of one store. The newest state and the last other one that was asked for are kept, so that following
    the newest costs one look ahead, and reading on at a pinned version nothing."""

    def __init__(self, storage: Storage):
        """Raises NoStore if nothing is there, UserError if it is in a format that this release doesn't know.

        A damaged newest version is no obstacle here: what is below it can be read, and verify can look at it.
        """
        self.storage = storage
        self._loaded: dict[int, State] = {}
        self._state: State | None = None
        with suppress(Damaged):
            self._state = self.load(self.highest())

    @staticmethod
    def create(storage: Storage, first: Manifest) -> bool:
        """Write version 0, and say whether it was not there yet."""
        return put_recognised(storage, manifest_path(0), encode_manifest(with_checkpoint(first, State())))

    def newest(self) -> State:
        """The newest state: forward from the last one known, checkpoint by checkpoint, then one by one."""
        state = self._state
        if state is None:
            state = self.load(self.highest())
        while checkpoint := self.manifest(state.version - state.version % CHECKPOINT_EVERY + CHECKPOINT_EVERY):
            state = _after(state, checkpoint, self.storage)
        while manifest := self.manifest(state.version + 1):
            state = _after(state, manifest, self.storage)
        self._state = state
        return state

    def highest(self) -> int:
        """The highest number among the files. Raises NoStore if there is none."""
        numbers = [int(match[1]) for s in self.storage.list("versions") if (match := MANIFEST_NAME.fullmatch(s.path))]
        if not numbers:
            raise NoStore(f"there is no knowledge base at {self.storage}: make one with `enginesmith ckb build`")
        return max(numbers)

    def at(self, number: int | None) -> State:
        """The state at a version, None is the newest. Raises UserError for one that isn't there or can't be read.

        A version below a damaged one can be read.
        """
        if number is None:
            return self.newest()
        try:
            newest = self.newest()
        except Damaged:
            newest = State(self.highest())  # all that is known of it; its horizon is not
        else:
            if number == newest.version:
                return newest
        if not 0 <= number <= newest.version:
            raise UserError(f"{self.storage} has the versions 0 to {newest.version}; version {number} was asked for")
        if number < newest.horizon:
            raise UserError(f"version {number} was vacuumed away; the oldest that can be read is {newest.horizon}")
        if number not in self._loaded:
            self._loaded = {number: self.load(number)}  # a run reads one version, again and again
        return self._loaded[number]

    def manifest(self, version: int, *, checkpoint: bool = True) -> Manifest | None:
        """One version's manifest, or None if there is no such version. Raises Damaged for one that isn't as it was
        written, and UserError for one in an unknown format."""
        path = manifest_path(version)
        try:
            manifest = decode_manifest(self.storage.read(path).to_pybytes(), checkpoint=checkpoint)
            if manifest.version != version:
                raise ValueError(f"it says that it is version {manifest.version}")
        except FileNotFoundError:
            return None
        except (ValueError, PlaceError) as error:
            raise Damaged(f"{self.storage}/{path} is damaged: {in_a_line(error)}") from error
        return manifest

    def log(self) -> list[Manifest]:
        """Every version's manifest, newest first, without the checkpoints."""
        return list(self.history())

    def history(self) -> Iterator[Manifest]:
        """As `log`, read a page at a time."""
        newest = self.newest().version
        for first in reversed(range(1, newest + 1, CHECKPOINT_EVERY)):
            last = first + CHECKPOINT_EVERY - 1
            page = self.page(last) if last <= newest else None
            yield from reversed(page or list(self.manifests(first, min(last, newest))))
        yield from self.manifests(0, 0)

    def page(self, last: int) -> list[Manifest] | None:
        """The page of the log that ends with version `last`; None if its writer was killed before it wrote it, or if
        it isn't as it was written: it is a copy, and whoever finds none reads the manifests."""
        try:
            return decode_page(self.storage.read(page_path(last)).to_pybytes(), last)
        except (FileNotFoundError, ValueError, PlaceError):
            return None

    def publish(self, manifest: Manifest) -> bool:
        """Try to create a version. True when it is ours, also if the reply to our own write was lost."""
        return put_recognised(self.storage, manifest_path(manifest.version), encode_manifest(manifest))

    def write_page(self, last: int) -> None:
        """After a checkpoint: copy the manifests since the one before it into one file, for whoever reads the log.

        What fails here fails nobody: the version stands, and a log without the page reads the manifests themselves.
        """
        if last == 0 or last % CHECKPOINT_EVERY:
            return
        try:
            page = encode_page(list(self.manifests(last - CHECKPOINT_EVERY + 1, last)))
            self.storage.put_if_absent(page_path(last), page)
        except (OSError, UserError):
            return

    def manifests(self, first: int, last: int, *, checkpoint: bool = False) -> Iterator[Manifest]:
        """The manifests of the versions `first` to `last`, from their own files. Raises Damaged for one that isn't
        there: a version is never deleted."""
        for version in range(first, last + 1):
            manifest = self.manifest(version, checkpoint=checkpoint)
            if manifest is None:
                raise Damaged(f"{self.storage} is damaged: {manifest_path(version)} is missing")
            yield manifest

    def load(self, version: int) -> State:
        """The state at a version, from the checkpoint at or below it, whether a vacuum left its rows or not."""
        state = State()
        for manifest in self.manifests(version - version % CHECKPOINT_EVERY, version, checkpoint=True):
            state = _after(state, manifest, self.storage)
        return state


def _after(state: State, manifest: Manifest, storage: Storage) -> State:
    try:
        return state.after(manifest)
    except ValueError as error:
        raise Damaged(f"{storage}/{manifest_path(manifest.version)} is damaged: {in_a_line(error)}") from error


def in_a_line(error: Exception) -> str:
    """What an error says: a record that does not fit is described over many lines."""
    return " ".join(str(error).split())


def manifest_path(version: int) -> str:
    return f"versions/{version:010d}.json"


def page_path(last: int) -> str:
    return f"log/{last:010d}.json"


def now() -> str:
    """The time of a commit: ISO 8601, UTC, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
