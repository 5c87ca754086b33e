"""Command lines that a user writes into a Target, an option or an issue."""

import shlex

from ckb.errors import UserError


def words_of(line: str, where: str, *, empty: str = "it is empty") -> list[str]:
    """At least one. `where`: the field or option that holds the line; `empty`: what is said of one without words.
    Raises UserError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{where}: {line!r} is no command line: {error}") from error
    if not words:
        raise UserError(f"{where}: {line!r} is no command line: {empty}")
    if "\0" in line:
        raise UserError(f"{where}: {line!r} is no command line: it holds a NUL character")
    return words
