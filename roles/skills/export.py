"""Writes the knowledge base and the procedures as Agent Skills: folders that a coding agent reads without us.

The format is that of agentskills.io: a folder a skill, in it a SKILL.md whose front matter holds `name` (the folder's)
and `description`, and beside it files that SKILL.md names and that are read when they are needed. The same knowledge
gives the same bytes.
"""

from collections.abc import Collection
from pathlib import Path

from ckb.errors import UserError
from ckb.whole_files import write_files
from roles.skills.layout import flat, skills
from roles.skills.shelf import Shelf


def export_skills(shelf: Shelf, out: Path) -> list[Path]:
    """Writes the skills below `out` and returns their files, in order.

    Raises UserError for knowledge without any verified contract, when `out` holds other files (those of an export of
    other knowledge too: an agent would read both), and when there is no room. Then nothing is written.
    """
    if not shelf.contracts:
        raise UserError(f"{shelf.version} holds no verified contract: there is nothing to hand on")
    files = flat(skills(shelf))
    try:
        refuse_strangers(out, files)
        write_files(out, files)
    except OSError as error:
        raise UserError(f"{out}: the {len(files)} files of the skills can't be written: {error}") from error
    return [out / name for name in sorted(files)]


def refuse_strangers(out: Path, files: Collection[str]) -> None:
    """Raises UserError unless all that lies below `out` is to be replaced."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UserError(f"{out} is no folder: name one that is empty or not there")
    folders = {str(folder) for name in files for folder in Path(name).parents}
    for place in sorted(out.rglob("*")):
        name = str(place.relative_to(out))
        expected = folders if place.is_dir() and not place.is_symlink() else set(files)
        if name not in expected or place.is_symlink():
            raise UserError(
                f"{out} holds {name}, which is none of the {len(files)} files of these skills: name an empty folder, "
                "or remove what an earlier export left"
            )
