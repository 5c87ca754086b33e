"""Lint of guides: what they refer to, what their kind asks for, their compatibility tables against the platforms."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ckb.problems import Problem, Rows, of
from ckb.records import Contract
from ckb.schemas import Guide, Platform
from ckb.schemas.guides import Compatibility

ALLOWED: Mapping[str, frozenset[str]] = {
    "usable": frozenset(("yes", "partial", "no", "untried")),
    "untried": frozenset(("yes", "partial", "no", "untried")),  # others may have shown what no run of ours has
    "installed": frozenset(("partial", "no", "untried")),
    "absent": frozenset(("no",)),
    "not listed": frozenset(("no", "untried")),
}
"""What a platform says of an operator -> what a guide may say of the operator as a backend there."""


def guide_problems(rows: Rows) -> Iterator[Problem]:
    """Problems of the guides."""
    guides = of(rows, "guides", Guide)
    contracts = {contract.id for contract in of(rows, "contracts", Contract)}
    platforms = {platform.id: platform for platform in of(rows, "platforms", Platform)}
    for guide in guides:
        dangling = (f"speaks of the unknown contract {name!r}" for name in guide.contracts if name not in contracts)
        for what in (*dangling, *_lacking(guide), *_table(guide, platforms)):
            yield Problem("guides", guide.id, what)
    yield from _procedures(guides)


def _lacking(guide: Guide) -> Iterator[str]:
    """What a guide of its kind must have."""
    if guide.kind == "algorithm" and not guide.compatibility:
        yield "is an algorithm without a compatibility table"
    if guide.kind == "library" and not guide.calls:
        yield "is a library that offers nothing to call"
    if (guide.kind == "procedure") != bool(guide.steps):
        yield "is a procedure without steps" if guide.kind == "procedure" else "has steps, and is no procedure"
    if not guide.roles:
        yield "is written for no role, so no brief names it"
    if guide.kind != "procedure" and not guide.provenance.references:
        yield "names no source"


def _procedures(guides: Iterable[Guide]) -> Iterator[Problem]:
    """A procedure is one role's, and a role has one."""
    procedures = [guide for guide in guides if guide.kind == "procedure"]
    holders = Counter(role for guide in procedures for role in guide.roles)
    for guide in procedures:
        if len(guide.roles) > 1:
            yield Problem(
                "guides", guide.id, f"is one procedure for {len(guide.roles)} roles: {', '.join(guide.roles)}"
            )
        for role in guide.roles:
            if holders[role] > 1:
                yield Problem("guides", guide.id, f"is one of {holders[role]} procedures for the role {role}")


def _table(guide: Guide, platforms: Mapping[str, Platform]) -> Iterator[str]:
    """Faults of a compatibility table."""
    for entry in guide.compatibility:
        yield from _entry(entry, platforms)
    told = Counter((entry.backend, id) for entry in guide.compatibility for id in entry.platforms)
    for (backend, id), count in sorted(told.items()):
        if count > 1:
            yield f"says {count} times what {backend} does on {id}"
    spoken = {(backend, platforms[id].accelerator) for backend, id in told if id in platforms}
    for id, platform in sorted(platforms.items()):
        backends = sorted(backend for backend, accelerator in spoken if accelerator == platform.accelerator)
        for backend in backends:
            if (backend, id) not in told:
                yield f"says what {backend} does on other platforms of {platform.accelerator} and not on {id}"
        absent = {operator.name for operator in platform.operators if operator.state == "absent"}
        if guide.kind == "algorithm" and guide.compatibility and not set(backends) - absent:
            yield f"says nothing of {id} but what is absent there"


def _entry(entry: Compatibility, platforms: Mapping[str, Platform]) -> Iterator[str]:
    where = f"{entry.backend} on {', '.join(entry.platforms)}"
    if not entry.platforms:
        yield f"{entry.backend} is {entry.state} on no platform at all"
    if (entry.state == "untried") == bool(entry.source):
        yield f"{where} is {entry.state}, and {'somebody has tried it' if entry.source else 'nobody is named for it'}"
    listed = {(operator.name, p.accelerator) for p in platforms.values() for operator in p.operators}
    for id in entry.platforms:
        if id not in platforms:
            yield f"{entry.backend} on the unknown platform {id!r}"
            continue
        if (entry.backend, platforms[id].accelerator) not in listed:
            yield f"no platform of {platforms[id].accelerator} lists an operator {entry.backend!r}"
            continue
        states: list[str] = [operator.state for operator in platforms[id].operators if operator.name == entry.backend]
        for state in states or ["not listed"]:
            if entry.state not in ALLOWED[state]:
                yield f"{entry.backend} is {entry.state!r} on {id}, whose row says that it is {state}"
