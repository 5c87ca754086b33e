"""The chain of versions: one manifest file each, and the state that they add up to. Knows nothing of Parquet."""

import re
from datetime import UTC, datetime

from ckb.errors import UserError
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
        """Raises NoStore if nothing is there, UserError if it is in a format that this release doesn't know."""
        self.storage = storage
        numbers = [int(match[1]) for s in storage.list("versions") if (match := MANIFEST_NAME.fullmatch(s.path))]
        if not numbers:
            raise NoStore(f"there is no knowledge base at {storage}: make one with `enginesmith ckb build`")
        self._loaded: dict[int, State] = {}
        self._state = self._load(max(numbers))

    @staticmethod
    def create(storage: Storage, first: Manifest) -> bool:
        """Write version 0, and say whether it was not there yet."""
        return put_recognised(storage, manifest_path(0), encode_manifest(with_checkpoint(first, State())))

    def newest(self) -> State:
        """The newest state: forward from the last one known, checkpoint by checkpoint, then one by one."""
        state = self._state
        while checkpoint := self.manifest(state.version - state.version % CHECKPOINT_EVERY + CHECKPOINT_EVERY):
            state = state.after(checkpoint)
        while manifest := self.manifest(state.version + 1):
            state = state.after(manifest)
        self._state = state
        return state

    def at(self, number: int | None) -> State:
        """The state at a version, None is the newest. Raises UserError for one that isn't there or can't be read."""
        newest = self.newest()
        if number is None or number == newest.version:
            return newest
        if not 0 <= number < newest.version:
            raise UserError(f"{self.storage} has the versions 0 to {newest.version}; version {number} was asked for")
        if number < newest.horizon:
            raise UserError(f"version {number} was vacuumed away; the oldest that can be read is {newest.horizon}")
        if number not in self._loaded:
            self._loaded = {number: self._load(number)}  # a run reads one version, again and again
        return self._loaded[number]

    def manifest(self, version: int, *, checkpoint: bool = True) -> Manifest | None:
        """One version's manifest, or None if there is no such version."""
        path = manifest_path(version)
        try:
            data = self.storage.read(path).to_pybytes()
        except FileNotFoundError:
            return None
        try:
            return decode_manifest(data, checkpoint=checkpoint)
        except ValueError as error:
            raise UserError(f"{self.storage}/{path} is damaged: {error}") from error

    def log(self) -> list[Manifest]:
        """Every version's manifest, newest first, without the checkpoints."""
        newest = self.newest().version
        found = self._manifests(0, 0)
        for first in range(1, newest + 1, CHECKPOINT_EVERY):
            last = first + CHECKPOINT_EVERY - 1
            page = self.page(last) if last <= newest else None
            found += page or self._manifests(first, min(last, newest))
        return found[::-1]

    def page(self, last: int) -> list[Manifest] | None:
        """The page of the log that ends with version `last`, or None if its writer was killed before it wrote it."""
        try:
            data = self.storage.read(page_path(last)).to_pybytes()
        except FileNotFoundError:
            return None
        try:
            return decode_page(data)
        except ValueError as error:
            raise UserError(f"{self.storage}/{page_path(last)} is damaged: {error}") from error

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
            page = encode_page(self._manifests(last - CHECKPOINT_EVERY + 1, last))
            self.storage.put_if_absent(page_path(last), page)
        except OSError:
            return

    def _manifests(self, first: int, last: int) -> list[Manifest]:
        found = (self.manifest(version, checkpoint=False) for version in range(first, last + 1))
        return [manifest for manifest in found if manifest is not None]

    def _load(self, version: int) -> State:
        """The state at a version, from the checkpoint at or below it."""
        state = State()
        for number in range(version - version % CHECKPOINT_EVERY, version + 1):
            manifest = self.manifest(number)
            if manifest is None:
                raise UserError(f"{self.storage} is damaged: {manifest_path(number)} is missing")
            state = state.after(manifest)
        return state


def manifest_path(version: int) -> str:
    return f"versions/{version:010d}.json"


def page_path(last: int) -> str:
    return f"log/{last:010d}.json"


def now() -> str:
    """The time of a commit: ISO 8601, UTC, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
