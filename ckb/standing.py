"""Whether a fragment stands on what its contract says it builds on: each name that its code uses must be given to it.

Python names come from the fragment itself, its imports, constants and parameters, or, within its module, from the
interface of a contract that its own `requires`; a relative import names something that a required contract offers; C++
names of other contracts come from required ones. What a fragment happens to find in a module because another one needs
it too is no knowledge: the next Target composes without that one.
"""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from ckb import native, syntax
from ckb.records import Contract, Fragment


def unfounded(
    fragment: Fragment,
    contract: Contract,
    contracts: Mapping[str, Contract],
    fragments: Collection[Fragment],
) -> list[str]:
    """What the code uses and nothing gives, in words. `contracts`: those that this one may require; `fragments`: all
    that are filed; whether one of them serves a required contract here is that contract's own question."""
    required = [contracts[name] for name in contract.requires if name in contracts]
    by_contract: dict[str, list[frozenset[str]]] = {}
    for other_fragment in fragments:
        by_contract.setdefault(other_fragment.contract, []).append(defined(other_fragment.code))
    if len(required) < len(contract.requires) or not by_contract.keys() >= {c.id for c in required if c.module}:
        return []  # something required isn't there at all, which is a gap of its own
    beside = {c.id for c in required if c.module == contract.module}
    offers = {other.id: _offers(other, by_contract.get(other.id, [])) for other in required}
    given = {name for id in beside for name in offers[id]}
    own = {*fragment.constants, *fragment.parameters, *defined(fragment.code), *imported(fragment.imports)}
    missing = sorted(used(fragment.code) - own - given - set(dir(builtins)))
    found = [f"the name {name}" for name in missing]
    offered: dict[str, set[str]] = {}
    for other in required:
        offered.setdefault(Path(other.module).stem, set()).update(offers[other.id])
    for module, name in relative(fragment.imports):
        if name not in offered.get(module, ()):
            found.append(f"{name} of {module}.py")
    found += [f"the C++ name {name}" for name in sorted(_foreign(fragment, contract, contracts))]
    return found


def _offers(contract: Contract, definitions: Collection[frozenset[str]]) -> set[str]:
    """The names that others may use of a contract: its interface's; and what some of its fragments define and others
    don't, the means of one way to serve it, which go with a choice."""
    interface = {function.name.partition(".")[0] for function in contract.interface}
    own = {name for names in definitions for name in names if not all(name in others for others in definitions)}
    return interface | own


def _foreign(fragment: Fragment, contract: Contract, contracts: Mapping[str, Contract]) -> Iterator[str]:
    words = cpp_words(fragment.code)
    own = {f.name.partition("<")[0] for c in (contract, *(contracts[n] for n in contract.requires if n in contracts))
           for f in c.native}  # fmt: skip
    for other in contracts.values():
        for function in other.native:
            name = function.name.partition("<")[0]
            if name in words and name not in own:
                yield name


@lru_cache(maxsize=4096)
def cpp_words(code: str) -> frozenset[str]:
    return frozenset(native.WORD.findall(native.source(ast.parse(code)))) if "SOURCES" in code else frozenset()


@lru_cache(maxsize=4096)
def defined(code: str) -> frozenset[str]:
    """What a fragment's code defines at its top."""
    return frozenset(syntax.members(ast.parse(code)))


@lru_cache(maxsize=4096)
def used(code: str) -> frozenset[str]:
    """Names that the code reads and does not bind itself, wherever in it that happens."""
    tree = ast.parse(code)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and n.name}
    bound |= {alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree)
              if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, syntax.Definition)}
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return frozenset(read - bound - {"__file__", "__name__"})


def imported(lines: Iterable[str]) -> set[str]:
    """The names that import lines bind."""
    nodes = [node for line in lines for node in ast.parse(line).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in node.names}


def relative(lines: Iterable[str]) -> list[tuple[str, str]]:
    """(module, name) of each import of the engine's own modules."""
    nodes = [node for line in lines for node in ast.parse(line).body if isinstance(node, ast.ImportFrom)]
    return [(node.module or "", alias.name) for node in nodes if node.level == 1 for alias in node.names]
