"""What a run hands to the consolidator: the gates that it mended, and each finding as a rule and as a fact."""

from gpu_actors.jobs import EvidenceFile, GateResult, Verdict
from swarm import events as e
from swarm.lessons import mended
from swarm.state import Candidate


def verdict(**gates: str) -> Verdict:
    results = tuple(
        GateResult(
            gate=name,
            level="L1",
            contract="kv-cache",
            status="PASS" if outcome == "PASS" else "FAIL",
            summary=outcome,
            seconds=0.1,
            evidence=(EvidenceFile(sha256="0" * 64, what="log"),),
        )
        for name, outcome in gates.items()
    )
    return Verdict(candidate="c", tree="0" * 64, levels=("L1",), acceptance="none", gates=results, sandbox="namespaces")


def attempt(number: int, before: Candidate | None, **gates: str) -> Candidate:
    submitted = e.CandidateSubmitted(
        candidate="s1-c0",
        issue="s1",
        attempt=number,
        branch="candidate/s1-c0",
        commit="0" * 40,
        tree="0" * 64,
        author="somebody",
        choices={},
        summary=f"attempt {number}",
        lines=10,
    )
    return Candidate(submitted, verdicts={"gates": verdict(**gates)}, before=before, attempts=number)


def test_a_gate_is_mended_when_a_later_attempt_passes_it() -> None:
    first = attempt(1, None, rope="expected 0.5, found 0.4", kv_cache="position 4 is missing", linear="PASS")
    second = attempt(2, first, rope="PASS", kv_cache="position 5 is missing", linear="PASS")
    assert [(m.id, m.evidence.summary, m.notes) for m in mended(second)] == [
        ("s1/rope", "expected 0.5, found 0.4", "attempt 2")
    ]
    third = attempt(3, second, rope="PASS", kv_cache="PASS", linear="PASS")
    assert {m.id for m in mended(third)} == {"s1/rope", "s1/kv_cache"}
    assert not mended(first)
    assert not mended(attempt(1, None, rope="PASS"))
