"""Files that are there whole or not at all, also where several write the same one at once: the last one's stands."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a new file beside `path`, which takes its place when the block ends and is removed when it raises. It
    is nobody else's: one made of a process's number would be shared by that process's threads."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
