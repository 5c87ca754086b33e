"""Files that are there whole or not at all, also where several write the same one at once: the last one's stands."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory


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


def write_files(out: Path, files: Mapping[str, str]) -> None:
    """Writes texts (path below `out` -> UTF-8 text) into a folder, which is made if it isn't there. All are written
    elsewhere in `out` first and then take their places, so that none is ever there in part. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".export-", dir=out) as beside:
        for name, content in files.items():
            new = Path(beside) / name
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(content, encoding="utf-8", newline="\n")
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(beside) / name).replace(out / name)
