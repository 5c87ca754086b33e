"""Lint of guides: each fault of a guide and of its compatibility table is found, beside the platforms of the seed."""

import re
from typing import Any

import pytest

from ckb.build import read_seed
from ckb.lint import lint
from ckb.records import Provenance, Row
from ckb.schemas import Guide, Platform
from ckb.schemas.guides import Compatibility, Step

PLATFORMS = [
    Platform(
        id=id,
        title=id,
        accelerator=accelerator,
        dtypes=("float32",),
        operators=tuple({"name": n, "state": s, "fallback": "f"} for n, s in operators.items()),
    )
    for id, accelerator, operators in (
        ("p1", "cpu", {"torch": "usable", "triton": "absent", "avx2": "installed"}),
        ("g1", "cuda", {"torch": "usable", "triton": "untried", "flash": "untried"}),
        ("g2", "cuda", {"torch": "untried", "triton": "untried"}),
    )
]
SOURCE = Provenance(source="seed", references=("a paper",))


def entry(backend: str, *platforms: str, state: str = "yes", **more: Any) -> Compatibility:
    fields = {"why": "w", "source": "" if state == "untried" else "s", **more}
    return Compatibility.model_validate({"backend": backend, "platforms": platforms, "state": state, **fields})


TABLE = (entry("torch", "p1", "g1", "g2"), entry("triton", "g1", "g2"), entry("triton", "p1", state="no"))


def guide(**fields: Any) -> Guide:
    defaults: dict[str, Any] = {
        **{"id": "a", "title": "t", "kind": "algorithm", "roles": ("judge",), "text": "x", "provenance": SOURCE},
        "compatibility": TABLE,
    }
    return Guide.model_validate(defaults | fields)


def problems(*guides: Guide) -> list[str]:
    rows: dict[str, list[Row]] = {"guides": [*guides], "platforms": [*PLATFORMS], "contracts": []}
    found = lint(rows)
    assert all((problem.table, problem.id) == ("guides", "a") for problem in found)
    return [problem.what for problem in found]


def step(role: str = "judge") -> Step:
    return Step.model_validate({"role": role, "does": "d", "hands_over": "h", "ends_when": "e"})


def test_a_whole_table_has_no_problem() -> None:
    assert problems(guide()) == []
    flash = (entry("flash", "g1"), entry("flash", "g2", state="untried"))
    assert problems(guide(compatibility=(*TABLE, *flash))) == [], "a row that does not list it may be untried"
    assert problems(guide(compatibility=(*TABLE, entry("avx2", "p1", state="partial")))) == []


@pytest.mark.parametrize(
    ("compatibility", "what"),
    [
        ((), "is an algorithm without a compatibility table"),
        ((*TABLE, entry("torch", "p2")), "torch on the unknown platform 'p2'"),
        ((*TABLE, entry("torch", "g2", state="no")), "says 2 times what torch does on g2"),
        (
            (entry("torch", "g1", "g1", "g2"), *TABLE[1:]),
            "says 2 times what torch does on g1; says nothing of p1 but what is absent there",
        ),
        ((TABLE[0], entry("triton", "g1"), TABLE[2]), "says what triton does on other platforms of cuda and not on g2"),
        (TABLE[1:2], "says nothing of p1"),
        ((*TABLE, entry("tritn", "p1", state="no")), "no platform of cpu lists an operator 'tritn'"),
        ((*TABLE, entry("flash", "g1", "g2")), "flash is 'yes' on g2, whose row says that it is not listed"),
        ((*TABLE[:2], entry("triton", "p1")), "triton is 'yes' on p1, whose row says that it is absent"),
        ((*TABLE[:2], entry("triton", "p1", state="untried")), "triton is 'untried' on p1, whose row says .* absent"),
        ((*TABLE, entry("avx2", "p1")), "avx2 is 'yes' on p1, whose row says that it is installed"),
        ((*TABLE, entry("avx2")), "avx2 is yes on no platform at all"),
        ((*TABLE, entry("avx2", "p1", state="no", source="")), "avx2 on p1 is no, and nobody is named for it"),
        ((*TABLE, entry("avx2", "p1", state="untried", source="s")), "is untried, and somebody has tried it"),
        ((*TABLE, entry("avx2", "p1", state="no", condition="model.x")), "of avx2 on p1: names the fact model.x"),
        ((*TABLE, entry("avx2", "p1", state="no", condition="model.heads ==")), "does not parse"),
        ((*TABLE, entry("avx2", "p1", state="no", condition="model.heads < 1 and model.heads > 1")), "can never hold"),
    ],
)
def test_a_fault_of_a_compatibility_table_is_found(compatibility: tuple[Compatibility, ...], what: str) -> None:
    found = problems(guide(compatibility=compatibility))
    for part in what.split("; "):
        assert any(re.search(part, problem) for problem in found), found


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"contracts": ("nothing",)}, "speaks of the unknown contract 'nothing'"),
        ({"roles": ()}, "is written for no role, so no brief names it"),
        ({"provenance": Provenance(source="seed")}, "names no source"),
        ({"kind": "library"}, "is a library that offers nothing to call"),
        ({"kind": "procedure"}, "is a procedure without steps"),
        ({"steps": (step(),)}, "has steps, and is no procedure"),
        (
            {"kind": "procedure", "steps": (step(),), "roles": ("judge", "analyst")},
            "one procedure for 2 roles: judge, an",
        ),
    ],
)
def test_a_guide_that_lacks_what_its_kind_asks_for_is_found(fields: dict[str, Any], what: str) -> None:
    (problem,) = problems(guide(**fields))
    assert what in problem


def test_a_role_has_one_procedure() -> None:
    own = guide(kind="procedure", steps=(step(),), compatibility=())
    rows: dict[str, list[Row]] = {"guides": [own, own.model_copy(update={"id": "b"})], "platforms": [*PLATFORMS]}
    assert [(p.id, p.what) for p in lint(rows)] == [
        ("a", "is one of 2 procedures for the role judge"),
        ("b", "is one of 2 procedures for the role judge"),
    ]


def test_a_changed_platform_is_held_against_every_guide_of_the_seed() -> None:
    """What the platforms table says of an operator is what the guides may build on."""
    rows = read_seed()
    (hopper,) = (row for row in rows["platforms"] if row.id == "nvidia-hopper")
    assert isinstance(hopper, Platform)
    gone = tuple(o.model_copy(update={"state": "absent"}) if o.name == "triton" else o for o in hopper.operators)
    rows["platforms"] = [
        row.model_copy(update={"operators": gone}) if row.id == hopper.id else row for row in rows["platforms"]
    ]
    algorithms = {row.id for row in rows["guides"] if isinstance(row, Guide) and row.kind == "algorithm"}
    found = [problem for problem in lint(rows) if problem.what.startswith("triton is")]
    assert algorithms
    assert algorithms <= {problem.id for problem in found}
