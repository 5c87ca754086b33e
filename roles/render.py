"""From a brief to the messages that a model reads.

A prompt is roles/prompts/<role>.md, a Jinja file with a `system` and a `user` block. A variable that it names and the
brief doesn't have is an error, never an empty string.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ckb.audit_tables import ENGINE_LIBRARIES
from ckb.constants import constants
from ckb.records import Contract, Fragment, Row
from ckb.search import FILING, Hit
from roles.author import AnyBrief
from roles.briefs import ImplementerBrief
from roles.checks import ENGINE_MODULES
from roles.completion import Message
from roles.table import ROLES

PROMPTS = Path(__file__).parent / "prompts"


def fence(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text, so that no content can end it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def numbered(text: str, first: int = 1) -> str:
    """Each line with its number, for those who must cite it."""
    return "\n".join(f"{number:4d}  {line}" for number, line in enumerate(text.splitlines(), first))


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def fields(row: Row) -> str:
    """What a row says, without where it is filed and who wrote it."""
    said = row.model_dump(mode="json", exclude=FILING, exclude_defaults=True)
    return json.dumps(said, ensure_ascii=False, indent=1)


@cache
def environment(folder: Path = PROMPTS) -> Environment:
    env = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    env.filters |= {"fence": fence, "numbered": numbered, "json": to_json, "fields": fields}
    env.globals["parts"] = env.get_template("_parts.md").module
    return env


def render_prompt(name: str, variables: Mapping[str, object], folder: Path = PROMPTS) -> tuple[Message, ...]:
    """The system and the user message of one prompt file. Raises jinja2.UndefinedError for a variable it lacks."""
    template = environment(folder).get_template(f"{name}.md")
    system, user = (
        "".join(template.blocks[block](template.new_context(dict(variables)))) for block in ("system", "user")
    )
    return Message(role="system", content=system.strip()), Message(role="user", content=user.strip())


def parts() -> Any:
    """The macros that prompts are made of."""
    return environment().globals["parts"]


def render_contract(contract: Contract) -> str:
    """One contract as a brief has it."""
    return str(parts().contract(contract)).strip()


def render_fragment(fragment: Fragment) -> str:
    """One fragment as a brief has it."""
    return str(parts().fragment(fragment)).strip()


def render_knowledge(version: int, hits: Sequence[Hit]) -> str:
    """Rows of the knowledge base as a role reads them."""
    return environment().get_template("_knowledge.md").render(version=version, hits=hits).strip()


def render(brief: AnyBrief, guides: Sequence[Row] = (), *, folder: bool = False) -> tuple[Message, ...]:
    """The first messages of a conversation about a brief. Guides are named in it, for the role to look up. `folder`:
    who reads it works in a folder of files (roles.authors.cli) and has no tools of ours."""
    operators = brief.operators if isinstance(brief, ImplementerBrief) else ()
    variables = {
        "brief": brief,
        "folder": folder,
        "guides": guides,
        "libraries": sorted({*ENGINE_LIBRARIES, *operators}),
        "modules": ENGINE_MODULES,
        "constants": "\n".join(f"{name} = {value}" for name, value in constants(brief.facts).items()),
        "schema": ROLES[brief.role].answer.model_json_schema(),
    }
    system, user = render_prompt(ROLES[brief.role].prompt, variables)
    if brief.notes:
        said = "\n".join(f"- {note}" for note in brief.notes)
        user = user.model_copy(update={"content": f"{user.content}\n\n# The person who watches the run says\n\n{said}"})
    return system, user
