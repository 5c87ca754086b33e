"""Content hashes. A tree's hash names what was judged, measured and released."""

import hashlib
import json
from pathlib import Path
from typing import Any


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: Any) -> str:
    """Hash of the canonical JSON of a value: sorted keys, no spaces, UTF-8."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


TREE_SUFFIXES = (".py",)
"""An engine's tree is its Python files: manifest.json and report.html are written about it and can't be part of it."""


def tree_files(root: Path) -> list[Path]:
    """The files that make up an engine tree, sorted by their path below `root`. Links are never followed."""
    return sorted(p for p in root.rglob("*") if p.suffix in TREE_SUFFIXES and p.is_file() and not p.is_symlink())


def tree_sha256(root: Path) -> str:
    """Hash of an engine tree: the (relative path, sha256) of each of its files."""
    return sha256_json([[p.relative_to(root).as_posix(), sha256_file(p)] for p in tree_files(root)])
