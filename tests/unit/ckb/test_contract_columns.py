"""The typed columns of the seed's contracts against the fragments filed under them: neither may say what the other
does not."""

import re
from collections.abc import Iterator

import pytest

from ckb.knowledge_files import read_knowledge
from ckb.records import Contract, Fragment, Tensor

KNOWLEDGE = read_knowledge()
CONTRACTS = list(KNOWLEDGE.contracts.values())
COMPUTED = {"compute", "Packed"}
"""What the processor that computes holds."""
BY_LIBRARIES = {("setup", "RuntimeError")}
"""Refusals that no fragment words: torch's builder hands on what the compiler says."""


def fragments(contract: Contract) -> list[Fragment]:
    return [f for f in KNOWLEDGE.fragments.values() if f.contract == contract.id]


def foundations(contract: Contract) -> Iterator[Contract]:
    """A contract and all that it builds on."""
    yield contract
    for name in contract.requires:
        yield from foundations(KNOWLEDGE.contracts[name])


def tensors(contract: Contract) -> list[Tensor]:
    functions = (*contract.interface, *contract.native)
    return [tensor for function in functions for tensor in (*function.takes, *function.returns)]


def parameters(function: str, code: str) -> list[str] | None:
    """The last word of each parameter of a C++ function's definition."""
    for found in re.finditer(rf"\b{re.escape(function.split('<')[0])}\(([^()]*)\)\s*\{{", code):
        return [re.findall(r"\w+|[*&]", part)[-1] for part in found[1].split(",")]
    return None


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.native], ids=lambda c: str(c.id))
def test_every_fragment_offers_the_cpp_that_its_contract_demands(contract: Contract) -> None:
    for fragment in fragments(contract):
        for function in contract.native:
            assert re.search(rf"\b{re.escape(function.name.split('<')[0])}\b", fragment.code), function.name
            if not function.takes:
                continue
            given = parameters(function.name, fragment.code)
            wanted = [tensor.name for tensor in function.takes]
            assert given is not None, f"{fragment.id} does not define {function.name}"
            assert len(given) == len(wanted), (fragment.id, function.name)
            fitting = zip(given, wanted, strict=True)
            named = [(g, w) for g, w in fitting if g not in ("*", "&", "float", "long")]  # others have no name
            assert all(g == w for g, w in named) or function.name == "weights", (fragment.id, named)


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.error_cases], ids=lambda c: str(c.id))
def test_what_a_contract_refuses_with_is_raised_by_its_fragments_or_by_what_they_stand_on(contract: Contract) -> None:
    below = {c.id for c in foundations(contract)}
    code = "\n".join(f.code for f in KNOWLEDGE.fragments.values() if f.contract in below)
    for case in contract.error_cases:
        if (contract.id, case.exception) in BY_LIBRARIES:
            continue
        if classes := re.findall(r"\b[A-Z]\w*[a-z]\b", case.exception):
            assert any(re.search(rf"raise {name}\b", code) for name in classes), case
        elif numbers := re.findall(r"\d+", case.exception):
            assert re.search(rf"\w+\({numbers[0]},", code), case
        else:
            assert case.exception == "an exception of any class", case


def test_every_contract_says_what_goes_wrong() -> None:
    assert [c.id for c in CONTRACTS if not c.failures] == []


def test_what_is_computed_with_lies_on_the_device_and_objects_on_the_host() -> None:
    for contract in CONTRACTS:
        for tensor in tensors(contract):
            if tensor.dtype in COMPUTED:
                assert tensor.shape is not None, f"{contract.id}: {tensor.name} has no shape"
                assert tensor.placement == "device", f"{contract.id}: {tensor.name}"
            if tensor.shape is None:
                assert tensor.placement == "host", f"{contract.id}: {tensor.name}"


def test_states_of_transitions_are_reached_and_final_ones_are_never_left() -> None:
    moves = [t for t in KNOWLEDGE.contracts["request"].transitions if t.subject == "Request.state"]
    assert {(t.before, t.after) for t in moves} == {
        ("waiting", "running"),
        ("waiting", "cancelled"),
        ("running", "finished"),
        ("running", "cancelled"),
        ("running", "failed"),
    }
    (request,) = fragments(KNOWLEDGE.contracts["request"])
    states = re.search(r"State = Literal\[(.*)\]", request.code)
    assert states
    assert {word for t in moves for word in (t.before, t.after)} == set(re.findall(r"\w+", states[1]))
