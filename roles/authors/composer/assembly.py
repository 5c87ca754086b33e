"""Puts fragments together: one module per file name, imports merged, constants and parameters written above the code.

Every decision of layout is here, and none about engines: what a module does stands in its fragments.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping

from ckb.constants import constant
from ckb.facts import Facts
from ckb.records import Choice, Contract, Fragment
from roles.author import AuthorError
from roles.briefs import Span

WIDTH = 120
TITLES = {
    "kernels.py": "Numerical operators.",
    "cache.py": "Keys and values of past positions.",
    "weights.py": "From a checkpoint's tensors to packed weights.",
    "model.py": "The decoder.",
    "sampler.py": "From logits to a token.",
    "scheduler.py": "Admission and order of requests.",
    "engine.py": "From text and token ids to new ones.",
    "server.py": "An OpenAI-compatible API.",
}

Part = tuple[Contract, Fragment]


def compose(
    parts: Iterable[Part], facts: Facts, choices: Mapping[str, Choice]
) -> tuple[dict[str, str], tuple[Span, ...]]:
    """The files of a tree, and which lines came from which fragment."""
    modules: dict[str, list[Part]] = {}
    for contract, fragment in parts:
        modules.setdefault(contract.module, []).append((contract, fragment))
    files: dict[str, str] = {}
    spans: list[Span] = []
    for name in sorted(modules):
        ordered = sorted(modules[name], key=lambda part: (part[0].order, part[0].id))
        files[name] = _module(name, ordered, facts, choices, spans)
    return files, tuple(spans)


def _module(name: str, parts: list[Part], facts: Facts, choices: Mapping[str, Choice], spans: list[Span]) -> str:
    fragments = [fragment for _, fragment in parts]
    title = TITLES.get(name, f"{name.removesuffix('.py').capitalize()}.")
    head = [f'"""{title} Composed from contract knowledge for one Target."""']
    head += import_blocks(line for fragment in fragments for line in fragment.imports)
    head += [block for block in (_constants(fragments, facts), _parameters(name, fragments, choices)) if block]
    text = "\n\n".join(head)
    for index, (contract, fragment) in enumerate(parts):
        code = fragment.code.strip("\n")
        defines = code.startswith(("def ", "class ", "@", "async def "))
        text += "\n\n\n" if index or defines else "\n\n"
        first = text.count("\n") + 1
        text += code
        last = text.count("\n") + 1
        spans.append(Span(file=name, first=first, last=last, contract=contract.id, fragment=fragment.id))
    return text + "\n"


def _constants(fragments: list[Fragment], facts: Facts) -> str:
    names = dict.fromkeys(name for fragment in fragments for name in fragment.constants)
    return "\n".join(f"{name} = {constant(name, facts)}" for name in names)


def _parameters(module: str, fragments: list[Fragment], choices: Mapping[str, Choice]) -> str:
    """One line each, with its range above it: so that two branches that tune two parameters merge without conflict."""
    lines: dict[str, str] = {}
    for fragment in fragments:
        for name, values in fragment.parameters.items():
            if name in lines:
                raise AuthorError(f"two fragments of {module} have a parameter {name}; the second is {fragment.id}")
            given = ", ".join(map(repr, values))
            lines[name] = f"# {fragment.id}: {given}\n{name} = {choices[f'{fragment.id}.{name}']!r}"
    return "\n".join(lines.values())


# --- imports ----------------------------------------------------------------------------------------------------------


def import_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Import lines, merged and in the usual order: standard library, other packages, modules of the engine."""
    plain: set[str] = set()
    named: dict[str, set[str]] = {}
    for line in lines:
        for node in ast.parse(line).body:
            if isinstance(node, ast.Import):
                plain |= {_alias(alias) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = "." * node.level + (node.module or "")
                named.setdefault(source, set()).update(_alias(alias) for alias in node.names)
    for group in range(3):
        block = [f"import {name}" for name in sorted(plain) if _group(name) == group]
        block += [_import_from(source, named[source]) for source in sorted(named) if _group(source) == group]
        if block:
            yield "\n".join(block)


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _group(name: str) -> int:
    if name.startswith("."):
        return 2
    return 0 if name.split()[0].split(".")[0] in sys.stdlib_module_names else 1


def _import_from(source: str, names: set[str]) -> str:
    ordered = sorted(names, key=_kind)
    line = f"from {source} import {', '.join(ordered)}"
    return line if len(line) <= WIDTH else f"from {source} import (\n    " + ",\n    ".join(ordered) + ",\n)"


def _kind(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: the order of the usual import sorters."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)
