"""The Agent Skills format, as agentskills.io states it: what is wrong with a folder of skills."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import yaml

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
MOST_LINES = 500
"""Of a SKILL.md, which is read whole."""


def faults(folder: Path) -> list[str]:
    """One line for each fault; none of a folder that agents can read."""
    skills = sorted(place for place in folder.iterdir())
    return [fault for skill in skills for fault in faults_of(skill)]


def faults_of(skill: Path) -> Iterator[str]:
    file = skill / "SKILL.md"
    if not file.is_file():
        yield f"{skill.name}: there is no SKILL.md"
        return
    text = file.read_text(encoding="utf-8")
    parts = re.fullmatch(r"---\n(.*?)^---\n(.*)", text, re.DOTALL | re.MULTILINE)
    if not parts:
        yield f"{skill.name}: SKILL.md has no front matter"
        return
    yield from (f"{skill.name}: {fault}" for fault in front_matter(yaml.safe_load(parts[1]), skill.name))
    if not parts[2].strip() or len(text.splitlines()) > MOST_LINES:
        yield f"{skill.name}: SKILL.md has {len(text.splitlines())} lines, 1 to {MOST_LINES} are allowed"
    yield from (f"{skill.name}: {fault}" for fault in links(skill))


def front_matter(front: object, folder: str) -> Iterator[str]:
    if not isinstance(front, dict):
        yield "the front matter is no mapping"
        return
    if unknown := front.keys() - KEYS:
        yield f"unknown keys {sorted(map(str, unknown))}"
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 64 or name != folder:
        yield f"the name is {name!r}"
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= len(description) <= 1024:
        yield f"the description is {description!r}"
    metadata = front.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(part, str) for pair in metadata.items() for part in pair):
        yield f"the metadata is {metadata!r}"


def links(skill: Path) -> Iterator[str]:
    """Links that lead nowhere or out of the skill, and files that SKILL.md doesn't name: nobody would open them."""
    named = {skill / "SKILL.md"}
    for page in sorted(skill.rglob("*.md")):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            place = (page.parent / unquote(link)).resolve()
            if not place.is_file() or not place.is_relative_to(skill.resolve()):
                yield f"{page.relative_to(skill)} links to {link}, which is no file of the skill"
            elif page.name == "SKILL.md":
                named.add(skill / place.relative_to(skill.resolve()))
    for file in sorted({place for place in skill.rglob("*") if place.is_file()} - named):
        yield f"SKILL.md does not name {file.relative_to(skill)}"
