"""Which skills there are, and what goes into each.

A skill is read in three steps: its name and description always, its SKILL.md when it is needed, one of its files when
that is. So a stage is a skill, whose SKILL.md is the table of its contracts, and each contract is a file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml

from ckb.records import Contract, Fragment, Reader, Stage
from ckb.schemas import Guide, TestContract
from roles.skills.pages import (
    TEMPLATES,
    contract_page,
    example_path,
    facts_page,
    guide_page,
    page,
    pages_of,
    path_of,
    rules_page,
    skill_page,
)
from roles.skills.shelf import Shelf

Files = dict[str, str]
"""Path below the skill's folder -> text."""

READERS: dict[str, tuple[Reader, ...]] = {
    "enginesmith-engine": ("implementer",),
    "enginesmith-check": ("reviewer", "judge", "verifier", "analyst"),
    "enginesmith-tune": ("evaluator", "orchestrator"),
    "enginesmith-gaps": ("explorer", "consolidator", "summariser"),
}
"""Skill -> the roles whose procedures it holds."""

DESCRIPTIONS: dict[str, str] = yaml.safe_load((TEMPLATES / "descriptions.yaml").read_text(encoding="utf-8"))
"""Skill -> what a coding agent always sees of it."""


def skills(shelf: Shelf) -> dict[str, Files]:
    """Skill -> its files."""
    made: dict[str, Callable[[Shelf], Files]] = {
        "enginesmith-engine": engine_skill,
        "enginesmith-execution": lambda shelf: stage_skill(shelf, "execution"),
        "enginesmith-model": lambda shelf: stage_skill(shelf, "model"),
        "enginesmith-integration": lambda shelf: stage_skill(shelf, "integration"),
        "enginesmith-check": check_skill,
        "enginesmith-tune": tune_skill,
        "enginesmith-gaps": gaps_skill,
    }
    return {name: make(shelf) for name, make in made.items()}


def engine_skill(shelf: Shelf) -> Files:
    name = "enginesmith-engine"
    platforms, parallelism = shelf.platforms("verified"), shelf.parallelism("verified")
    files = {
        "references/facts.md": facts_page(shelf.version),
        "references/rules.md": rules_page(shelf.version),
        **pages_of("models", shelf.models, shelf.version),
        **pages_of("platforms", platforms, shelf.version),
        **pages_of("parallelism", parallelism, shelf.version),
        **procedures(shelf, name),
    }
    known = {"models": shelf.models, "platforms": platforms, "parallelism": parallelism}
    return files | front(shelf, name, "engine.md", **known)


def stage_skill(shelf: Shelf, stage: Stage) -> Files:
    contracts = shelf.stage(stage)
    rows = named(shelf, contracts)
    return contract_files(shelf, contracts) | front(shelf, f"enginesmith-{stage}", "stage.md", stage=stage, rows=rows)


def check_skill(shelf: Shelf) -> Files:
    name = "enginesmith-check"
    contracts = shelf.stage("acceptance")
    tests = shelf.of(TestContract, "test_contracts")
    files = {"references/tests.md": page("tests.md", shelf.version, tests=tests)}
    files |= contract_files(shelf, contracts) | procedures(shelf, name)
    rows = named(shelf, contracts)
    return files | front(shelf, name, "check.md", rows=rows, tests=tests, manifest=shelf.manifest)


def tune_skill(shelf: Shelf) -> Files:
    name = "enginesmith-tune"
    guides = [guide for guide in shelf.guides if guide.kind != "procedure"]
    decisions = [c for c in shelf.contracts if c.decisions]
    parameters = [f for f in shelf.fragments if f.parameters]
    files = {
        "references/experience.md": page("experience.md", shelf.version, rows=shelf.experience),
        "references/space.md": page("space.md", shelf.version, contracts=decisions, fragments=parameters),
        **guide_files(guides, "guides", shelf.version),
        **procedures(shelf, name),
    }
    return files | front(shelf, name, "tune.md", guides=[(g, path_of("guides", g)) for g in guides])


def gaps_skill(shelf: Shelf) -> Files:
    name = "enginesmith-gaps"
    platforms, parallelism = shelf.platforms("draft"), shelf.parallelism("draft")
    files = {
        **contract_files(shelf, shelf.drafts),
        **pages_of("platforms", platforms, shelf.version),
        **pages_of("parallelism", parallelism, shelf.version),
        **procedures(shelf, name),
    }
    rows = named(shelf, shelf.drafts)
    return files | front(shelf, name, "gaps.md", rows=rows, platforms=platforms, parallelism=parallelism)


def front(shelf: Shelf, name: str, template: str, **variables: object) -> Files:
    """The SKILL.md, which names every other file of the skill."""
    own = [(guide, path_of("guides", guide, "procedures")) for guide in procedures_of(shelf, name)]
    text = skill_page(name, DESCRIPTIONS[name], shelf.version, template, procedures=own, **variables)
    return {"SKILL.md": text}


def contract_files(shelf: Shelf, contracts: Iterable[Contract]) -> Files:
    """The contracts, and the examples that they link to."""
    files: Files = {}
    for contract in contracts:
        examples = shelf.examples(contract)
        text = contract_page(contract, examples, shelf.tests(contract), shelf.version)
        files |= {path_of("contracts", contract): text, **pages_of("fragments", examples, shelf.version)}
    return files


def named(shelf: Shelf, contracts: Sequence[Contract]) -> list[tuple[Contract, str, list[tuple[Fragment, str]]]]:
    """What the table of contracts in a SKILL.md links to: each with its examples."""
    examples = {c.id: [(f, example_path(f)) for f in shelf.examples(c)] for c in contracts}
    return [(c, path_of("contracts", c), examples[c.id]) for c in contracts]


def procedures(shelf: Shelf, name: str) -> Files:
    return guide_files(procedures_of(shelf, name), "procedures", shelf.version)


def procedures_of(shelf: Shelf, name: str) -> list[Guide]:
    readers = READERS.get(name, ())
    return [guide for guide in shelf.guides if guide.kind == "procedure" and set(guide.roles) & set(readers)]


def guide_files(guides: Iterable[Guide], folder: str, version: str) -> Files:
    return {path_of("guides", guide, folder): guide_page(guide, version) for guide in guides}


def flat(made: Mapping[str, Files]) -> Files:
    """Path below the folder of all skills -> text."""
    return {f"{name}/{path}": text for name, files in made.items() for path, text in files.items()}
