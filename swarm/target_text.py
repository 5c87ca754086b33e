"""A Target as commented YAML: every key with its value and what it means, from the fields' own docstrings."""

import textwrap
from collections.abc import Iterator

import yaml

from ckb.facts import Frozen
from swarm.target import Target

WIDTH = 110


def render_target(target: Target, *, comments: bool = True) -> str:
    """YAML that `load_target` reads back as the same Target."""
    return "\n".join(_section(target, "", comments)) + "\n"


def _section(record: Frozen, indent: str, comments: bool) -> Iterator[str]:
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if comments and field.description:
            text = " ".join(field.description.split())
            yield from textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if isinstance(value, Frozen):
            yield f"{indent}{name}:"
            yield from _section(value, indent + "  ", comments)
        else:
            yield f"{indent}{name}: {_flow(record.model_dump(mode='json', include={name})[name])}"


def _flow(value: object) -> str:
    """One value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
