"""What follows from operators that were tried: the facts, the fallbacks, and what coverage says of them."""

from typing import Any

import pytest
from pydantic import ValidationError

from ckb.operators import describing, planned, settled
from ckb.predicate import PredicateError
from ckb.schemas import Platform
from ckb.schemas.platforms import Measurement, OperatorState, PlatformOperator, TriedOperator
from tests.unit.ckb.samples import PLATFORM, facts
from tests.unit.ckb.test_coverage import PLATFORM as ROW
from tests.unit.ckb.test_coverage import cover

SPEED = Measurement(what="w", value=20.0, unit="GB/s", source="s")
NOW = "2026-11-30T10:00:00+00:00"


def operator(name: str, state: OperatorState = "usable", **fields: Any) -> TriedOperator:
    shown = {"speeds": (SPEED,)} if state == "usable" else {"why": "its kernel failed"}
    tried = "" if state == "absent" else NOW
    return TriedOperator(name=name, device="cpu", state=state, **{"tried": tried, **shown, **fields})


def row(*operators: PlatformOperator, **fields: Any) -> Platform:
    return ROW.model_copy(update={"operators": operators, **fields})


TRITON = PlatformOperator(name="triton", state="absent", fallback="cpp: twice the time")


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "usable", "speeds": ()},
        {"state": "usable", "why": "it failed"},
        {"state": "usable", "tried": ""},
        {"state": "installed", "speeds": (SPEED,)},
        {"state": "installed", "why": ""},
        {"state": "installed", "tried": ""},
        {"state": "absent", "why": ""},
    ],
)
def test_a_record_that_contradicts_itself_can_not_be_made(fields: dict[str, Any]) -> None:
    state = fields.pop("state")
    with pytest.raises(ValidationError):
        operator("torch", state, **fields)


def test_facts_name_what_was_seen_to_work_and_no_compiler_whose_kernel_failed() -> None:
    works = settled(PLATFORM, (operator("torch"), operator("cpp"), operator("triton", "installed")))
    assert (works.operators, works.compiler) == (("torch", "cpp"), "g++")
    for state in ("installed", "absent"):
        broken = settled(PLATFORM, (operator("torch"), operator("cpp", state)))
        assert (broken.operators, broken.compiler) == (("torch",), None)
    assert settled(PLATFORM, ()) == PLATFORM, "what nobody tried stays as it was described"


def test_a_broken_operator_is_planned_with_the_fallback_of_the_first_row_that_names_one() -> None:
    other = PlatformOperator(name="triton", state="absent", fallback="something else")
    found = planned((operator("torch"), operator("triton", "installed")), [row(), row(TRITON), row(other)])
    assert [p.fallback for p in found] == ["", "cpp: twice the time"]
    assert found[0].words == "usable: 20 GB/s (w)"
    busy = operator("torch", foreign_cpu=0.4)
    assert busy.words == "usable: 20 GB/s (w, while others used 40% of the processors)"
    assert found[1].words == "installed, not usable: its kernel failed. Instead: cpp: twice the time"
    assert planned((operator("triton"),), [row(TRITON)])[0].fallback == "", "a usable one needs none"


def test_rows_are_found_by_the_machine_alone_and_deprecated_ones_are_not() -> None:
    rows = [
        row(id="a", applies_to="platform.capability >= 9.0"),
        row(id="b", applies_to="platform.architecture == 'x86_64'", status="draft"),
        row(id="c", applies_to="", status="deprecated"),
    ]
    assert [r.id for r in describing(PLATFORM.model_copy(update={"architecture": "x86_64"}), rows)] == ["b"]
    assert [r.id for r in describing(PLATFORM.model_copy(update={"capability": 9.0}), rows)] == ["a"]
    with pytest.raises(PredicateError, match="unknown fact"):
        describing(PLATFORM, [row(applies_to="model.heads == 1")])


def test_coverage_names_an_unusable_operator_with_its_fallback_and_stops_only_without_one() -> None:
    tried = (operator("torch"), operator("triton", "installed"))
    found = cover(facts(), tried=tried, platforms=[row(TRITON)])
    torch, triton = (need for need in found.needs if need.what == "operator")
    assert torch.note == "usable: 20 GB/s (w)"
    assert "its kernel failed. Instead: cpp: twice the time" in triton.note
    assert not found.gaps, "what a Target lists is a permission"
    assert {"subject": "triton", "note": triton.note}.items() <= dict(found.document()["needs"][4]).items()  # type: ignore[index]

    found = cover(facts(), tried=(operator("torch", "installed"),), platforms=[row(TRITON)])
    (gap,) = found.gaps
    assert (gap.kind, gap.subject) == ("operator", "torch")
    assert "its kernel failed. No platform row names a fallback" in gap.detail
