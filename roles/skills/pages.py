"""One file of a skill each: a contract, an example, a guide, a description of a model, the names of the facts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader

from ckb.audit_tables import ENGINE_LIBRARIES
from ckb.constants import CONSTANTS
from ckb.export import file_name, render_row
from ckb.facts import Frozen, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.frameworks import FRAMEWORKS, OPERATOR_LIBRARIES
from ckb.records import Contract, Fragment, Row
from ckb.schemas import Guide, TestContract
from ckb.views import headline
from roles.checks import ENGINE_MODULES
from roles.render import PROMPTS, environment

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_DESCRIPTION = 1024
"""Characters, by the format."""
ABOUT_FACTS: tuple[tuple[str, type[Frozen]], ...] = (
    ("model", ModelFacts),
    ("platform", PlatformFacts),
    ("workload", WorkloadFacts),
)


def line(text: object) -> str:
    """Words in one line."""
    return " ".join(str(text).split())


def cell(text: object) -> str:
    """Words as a cell of a table holds them."""
    return line(text).replace("|", "\\|")


def risen(text: str) -> str:
    """A section as a page of its own: its heading is the page's."""
    return re.sub(r"\A#+", "#", text.strip())


@cache
def templates() -> Environment:
    """The environment of the roles' prompts, with the skills' templates before theirs."""
    env = environment().overlay(loader=FileSystemLoader([TEMPLATES, PROMPTS]))
    env.filters = env.filters | {"line": line, "cell": cell, "risen": risen, "quote": quote, "headline": headline}
    return env


def page(template: str, version: str, **variables: object) -> str:
    """A Markdown file, with the version of the knowledge as its last line."""
    text = templates().get_template(template).render(variables)
    body = re.sub(r"\n{3,}", "\n\n", text.strip())
    return f"{body}\n\nKnowledge base of Enginesmith, {version}.\n"


def skill_page(name: str, description: str, version: str, template: str, **variables: object) -> str:
    """A SKILL.md: front matter, then what the template says."""
    assert len(description) <= LONGEST_DESCRIPTION, name
    front = {
        "name": name,
        "description": description,
        "license": "Apache-2.0",
        "metadata": {"knowledge-base": version},
    }
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=2 * LONGEST_DESCRIPTION)
    return f"---\n{head}---\n\n{page(template, version, **variables)}"


def contract_page(contract: Contract, examples: Iterable[Fragment], tests: Iterable[TestContract], version: str) -> str:
    links = [(example, f"../{example_path(example)}") for example in examples]
    return page("contract.md", version, c=contract, examples=links, tests=list(tests))


def guide_page(guide: Guide, version: str) -> str:
    return page("guide.md", version, g=guide)


def facts_page(version: str) -> str:
    """Every name that a condition may ask about, and the constants that examples use."""
    sections = [(name, list(facts_of(record))) for name, record in ABOUT_FACTS]
    return page("facts.md", version, sections=sections, constants=CONSTANTS)


def facts_of(record: type[Frozen]) -> Iterator[tuple[str, str, str]]:
    """(name, type, meaning) of each fact, those that follow from others last."""
    for name, field in record.model_fields.items():
        yield name, type_words(field.annotation), field.description or ""
    for name, member in vars(record).items():
        if isinstance(member, property):
            yield name, type_words(member.fget.__annotations__["return"]), member.__doc__ or ""


def type_words(annotation: object) -> str:
    """`int`, `tuple[str, ...]`, `float32 or bfloat16`."""
    if str(annotation).startswith("typing.Literal"):
        return " or ".join(map(str, get_args(annotation)))
    plain = isinstance(annotation, type) and not get_args(annotation)
    return annotation.__name__ if isinstance(annotation, type) and plain else str(annotation).replace("typing.", "")


def rules_page(version: str) -> str:
    operators = {name: parts for name, parts in OPERATOR_LIBRARIES.items() if name not in ENGINE_LIBRARIES}
    return page(
        "rules.md",
        version,
        modules=ENGINE_MODULES,
        libraries=sorted(ENGINE_LIBRARIES),
        operators=operators,
        frameworks=FRAMEWORKS,
    )


def data_page(table: str, row: Row, version: str) -> str:
    """A fragment or a row of YAML in its canonical form, which both begin a comment with the same sign."""
    return f"# Knowledge base of Enginesmith, {version}.\n{render_row(table, row)}"


def example_path(fragment: Fragment) -> str:
    return path_of("fragments", fragment)


def path_of(table: str, row: Row, folder: str = "") -> str:
    """Where a row's file lies in its skill. Raises UserError for an id that no file can have as its name."""
    return f"{folder or table}/{file_name(table, row.id)}"


def pages_of(table: str, rows: Iterable[Row], version: str) -> Mapping[str, str]:
    """Path in the skill -> file, of rows that are handed on in their canonical form."""
    return {path_of(table, row): data_page(table, row, version) for row in rows}
