"""The criteria of an issue as gates of a verdict, and what a verdict says that could not be made."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from ckb.criteria import Criterion
from gpu_actors.blocked import Blocked, reference_bytes, require_memory
from gpu_actors.criteria import changed, judged
from gpu_actors.jobs import EvidenceFile, GateResult, Shortage, Verdict
from gpu_actors.verifier import Verifier
from tests.unit.gpu_actors import tiny

EVIDENCE = (EvidenceFile(sha256="0" * 64, what="x"),)


def criterion(command: str, metric: str, value: float, part: str = "activation") -> Criterion:
    return Criterion.model_validate(
        {"part": part, "command": command, "metric": metric, "comparison": ">", "value": value}
    )


def result(status: str, **fields: object) -> GateResult:
    named = {"gate": status.lower(), "level": "L1", "contract": "c", "summary": "s", "seconds": 0.0}
    return GateResult.model_validate(named | {"status": status, "evidence": EVIDENCE} | fields)


def verdict(*gates: GateResult) -> Verdict:
    return Verdict(candidate="c", tree="t", levels=("L1",), acceptance="none", gates=gates, sandbox="none")


def test_each_criterion_is_a_gate_of_its_own_with_what_was_found(tmp_path: Path) -> None:
    """A command line, two criteria on what it prints; two on the text; one that no metric answers."""
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    base = tiny.write_engine(tmp_path / "base")
    tree = tiny.write_engine(tmp_path / "engine", edits={"sampler.py": ("import torch", "import torch\n\n# another")})
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import json, pathlib, sys\n"
        "engine, checkpoint = map(pathlib.Path, sys.argv[1:])\n"
        "print(json.dumps({'metric': 'modules', 'value': len(list(engine.glob('*.py')))}))\n"
    )
    line = f"python {probe}"
    stated = (
        criterion(line, "modules", 5),
        criterion(line, "modules", 50, "acceptance"),
        criterion("tree", "changed_lines", 0),
        criterion("tree", "changed_files", 3),
        criterion(line, "launches", 0),
        criterion("benchmark", "effect", 0.0),
    )
    job = tiny.verify_job(
        tiny.engine_job(tree, checkpoint),
        stages=("execution",),
        levels=("L0", "L1"),
        criteria=stated,
        base_dir=str(base),
        evidence_dir=str(tmp_path / "evidence"),
    )
    made = Verifier(tmp_path / "cache").verify(job)
    rows = [g for g in made.gates if g.gate.endswith("_of_issue")]
    assert [(g.gate, g.status) for g in rows] == [
        ("activation_of_issue", "PASS"),
        ("acceptance_of_issue", "FAIL"),
        ("activation_of_issue", "FAIL"),
        ("activation_of_issue", "PASS"),
        ("activation_of_issue", "FAIL"),
    ], "the benchmark's is decided after it"
    assert rows[1].summary == f"acceptance: modules > 50 ({line}): found 10"
    assert rows[2].summary == f"activation: launches > 0 ({line}): {line!r} told modules"
    assert rows[3].summary == "activation: changed_lines > 0 (tree): found 2"
    assert not made.passed
    evidence = json.loads((tmp_path / "evidence" / f"{rows[0].evidence[0].sha256}.json").read_bytes())
    assert evidence["data"]["metrics"] == {"modules": 10.0}
    assert evidence["data"]["criterion"]["metric"] == "modules"


def test_a_change_is_counted_in_lines_and_files(tmp_path: Path) -> None:
    for name, files in {"base": {"a.py": "x\ny\n", "b.py": "z\n"}, "tree": {"a.py": "x\nw\n", "c.py": "n\n"}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert changed(tmp_path / "tree", tmp_path / "base") == {"lines": 3, "changed_lines": 4, "changed_files": 3}
    assert changed(tmp_path / "tree", tmp_path / "tree")["changed_lines"] == 0


def test_a_falsified_criterion_fails_with_the_number() -> None:
    stated = Criterion(part="falsification", command="benchmark", metric="effect", comparison="<=", value=0)
    assert judged(stated, {"effect": -0.02}).status == "FAIL"
    assert judged(stated, {"effect": 0.02}).status == "PASS"
    assert judged(stated, {"effect": -0.02}).summary == "falsification: effect <= 0 (benchmark): found -0.02"


def test_what_is_blocked_is_no_pass_and_no_failure() -> None:
    lacking = Shortage(asked=2.0, available=1.0, unit="seconds")
    held = verdict(result("PASS"), result("BLOCKED_BY_HARDWARE", blocked=lacking))
    assert not held.passed
    assert held.undecided
    assert held.failures == ()
    assert held.why == "blocked_by_hardware is blocked by hardware: s"
    failing = verdict(result("FAIL"), result("BLOCKED_BY_HARDWARE", blocked=lacking))
    assert not failing.undecided
    assert failing.why == "fail failed: s"


def test_a_blocked_gate_says_what_it_asked_for_and_no_other_does() -> None:
    with pytest.raises(ValidationError, match="only what is blocked says by what"):
        result("BLOCKED_BY_HARDWARE")
    with pytest.raises(ValidationError, match="only what is blocked says by what"):
        result("PASS", blocked=Shortage(asked=2.0, available=1.0, unit="bytes"))


def test_a_model_that_fits_nowhere_blocks_its_acceptance_with_the_bytes(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    tree = tiny.write_engine(tmp_path / "engine")
    job = tiny.engine_job(tree, checkpoint)
    huge = job.facts.model.model_copy(update={"parameters": 10**14})
    job = job.model_copy(update={"facts": job.facts.model_copy(update={"model": huge})})
    asked = tiny.verify_job(job, stages=("acceptance",), levels=("L3",))
    made = Verifier(tmp_path / "cache").verify(asked)
    held = [gate for gate in made.gates if gate.status == "BLOCKED_BY_HARDWARE"]
    assert held
    assert made.undecided
    needed = reference_bytes(huge, "float32", "float64")
    assert held[0].blocked
    assert held[0].blocked.asked == needed == 12 * 10**14 + (1 << 30)
    assert 0 < held[0].blocked.available < needed
    assert f"asks for {needed:,} bytes" in held[0].summary


def test_what_fits_is_not_blocked_and_a_device_s_memory_is_its_drivers_affair() -> None:
    facts = tiny.facts()
    require_memory("it", 1, facts)
    cuda = facts.model_copy(update={"platform": facts.platform.model_copy(update={"accelerator": "cuda"})})
    require_memory("it", 1 << 60, cuda)
    with pytest.raises(Blocked, match=r"it asks for 1,152,921,504,606,846,976 bytes, available are [\d,]+"):
        require_memory("it", 1 << 60, facts)
