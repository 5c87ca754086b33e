"""Finds what is wrong with knowledge before a run does: dangling references, bad predicates, code that won't parse."""

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ckb.export import render_row
from ckb.knowledge_files import KNOWLEDGE, NO_PYTHON, SUFFIXES, KnowledgeFileError, read_row
from ckb.lint_guides import guide_problems
from ckb.lint_predicates import predicate_problems
from ckb.predicate import PredicateError, predicate
from ckb.problems import Problem, Rows, of
from ckb.records import Choice, Contract, Fragment, Row
from ckb.schemas import TestContract
from ckb.store import Store, Version

MAX_FRAGMENT_LINES = 80
"""Of a fragment's file in its canonical form, with front matter and imports."""


def lint_files(root: Path = KNOWLEDGE) -> list[Problem]:
    """Problems of the seed files: those that can't be read, and those of all others as if these were not there."""
    rows: dict[str, list[Row]] = {table: [] for table in SUFFIXES}
    unread = []
    for table, suffix in SUFFIXES.items():
        for path in sorted((root / table).glob(f"*{suffix}")):
            try:
                rows[table].append(read_row(table, path))
            except KnowledgeFileError as error:
                unread.append(Problem(table, path.stem, str(error)))
    return [*unread, *lint(rows)]


def lint_store(store: Store, version: Version = None) -> list[Problem]:
    """Problems of all tables at a version."""
    return lint({table: store.rows(table, version) for table in store.tables})


def lint(rows: Rows) -> list[Problem]:
    """Problems of the rows that aren't deprecated, by table and id."""
    live = {table: [row for row in found if row.status != "deprecated"] for table, found in rows.items()}
    own = [*_doubles(live), *_references(live), *_cycles(live), *_code(live), *_machines(live), *_options(live)]
    found = [*own, *predicate_problems(live), *guide_problems(live)]
    return sorted(found, key=lambda problem: (problem.table, problem.id, problem.what))


def _doubles(rows: Rows) -> Iterator[Problem]:
    for table, found in rows.items():
        for id, count in Counter(row.id for row in found).items():
            if count > 1:
                yield Problem(table, id, f"there are {count} rows with this id")


def _references(rows: Rows) -> Iterator[Problem]:
    contracts = {contract.id for contract in of(rows, "contracts", Contract)}
    tests = {test.id for test in of(rows, "test_contracts", TestContract)}
    for contract in of(rows, "contracts", Contract):
        for name in set(contract.requires) - contracts:
            yield Problem("contracts", contract.id, f"requires the unknown contract {name!r}")
        if contract.test not in tests:
            yield Problem("contracts", contract.id, f"has no test: there is no test contract {contract.test!r}")
    for fragment in of(rows, "fragments", Fragment):
        if fragment.contract not in contracts:
            yield Problem("fragments", fragment.id, f"is filed under the unknown contract {fragment.contract!r}")
    for test in of(rows, "test_contracts", TestContract):
        if test.contract not in contracts:
            yield Problem("test_contracts", test.id, f"checks the unknown contract {test.contract!r}")


def _cycles(rows: Rows) -> Iterator[Problem]:
    """Contracts that require each other, or themselves: none of them can be built first."""
    requires = {contract.id: sorted(contract.requires) for contract in of(rows, "contracts", Contract)}
    while True:
        try:
            TopologicalSorter(requires).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]  # each of them is required by the one that follows
            first = cycle.index(min(cycle))
            way = [*reversed((*cycle[first + 1 :], *cycle[: first + 1])), cycle[first]]
            yield Problem("contracts", way[0], f"requires itself: {' -> '.join(way)}")
            requires[way[0]] = [name for name in requires[way[0]] if name != way[1]]
        else:
            return


def _code(rows: Rows) -> Iterator[Problem]:
    for fragment in of(rows, "fragments", Fragment):
        try:
            ast.parse("\n".join([*fragment.imports, fragment.code]))
        except NO_PYTHON as error:
            yield Problem("fragments", fragment.id, f"does not parse: {error}")
        lines = render_row("fragments", fragment).count("\n")
        if lines > MAX_FRAGMENT_LINES:
            yield Problem("fragments", fragment.id, f"has {lines} lines, at most {MAX_FRAGMENT_LINES} are allowed")


def _machines(rows: Rows) -> Iterator[Problem]:
    """What is about a machine must hold whatever model runs there: `doctor` asks without one."""
    for row in rows.get("platforms", ()):
        with suppress(PredicateError):  # that it does not parse is another problem
            for name in sorted(predicate(row.applies_to).names()):
                if not name.startswith("platform."):
                    yield Problem("platforms", row.id, f"applies_to asks about {name}; only platform facts can be")


def _spaces(rows: Rows) -> dict[tuple[str, str], tuple[dict[str, tuple[Choice, ...]], dict[str, str]]]:
    """(table, id) -> the options that the row declares, and their conditions."""
    contracts = {("contracts", c.id): (c.decisions, c.decision_requires) for c in of(rows, "contracts", Contract)}
    return contracts | {
        ("fragments", f.id): (f.parameters, f.parameter_requires) for f in of(rows, "fragments", Fragment)
    }


def _options(rows: Rows) -> Iterator[Problem]:
    for (table, id), (options, requires) in _spaces(rows).items():
        known = {f"{name}={option}" for name, values in options.items() for option in values}
        for name in sorted(requires.keys() - known):
            yield Problem(table, id, f"there is a condition for {name}, which is no option")
        for name, values in options.items():
            if not values or len(set(map(repr, values))) < len(values):
                yield Problem(table, id, f"{name} has no options, or one twice: {values}")
