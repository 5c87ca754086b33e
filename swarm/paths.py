"""Where things are. Every relative path of a Target is below ENGINESMITH_HOME (default: the current checkout)."""

import os
from pathlib import Path

from ckb.errors import UserError


def home() -> Path:
    """The folder that holds models/, runs/, engines/, store/ and cache/.

    ENGINESMITH_HOME if set (it must exist), otherwise the checkout that this file is in, otherwise the current folder.
    """
    if value := os.environ.get("ENGINESMITH_HOME"):
        folder = Path(value).expanduser()
        if not folder.is_dir():
            raise UserError(f"ENGINESMITH_HOME is {value}, which is no folder on node {os.uname().nodename}")
        return folder.resolve()
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def resolve(path: str) -> Path:
    """An absolute path as it is, a relative one below home()."""
    return home() / Path(path).expanduser()


def store_dir() -> Path:
    return home() / "store"


def runs_dir() -> Path:
    return home() / "runs"


def engines_dir() -> Path:
    return home() / "engines"


def cache_dir() -> Path:
    return home() / "cache"
