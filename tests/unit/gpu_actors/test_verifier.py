"""The verifier on right engines and on wrong ones: each wrong one is rejected by the gate that should."""

import http.server
import json
import random
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from gpu_actors.child import ENGINE, Child
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates.base import Subject, failed, passed
from gpu_actors.gates.cases import Plan
from gpu_actors.gates.listed import listed
from gpu_actors.gates.registry import STAGE_GATES
from gpu_actors.jobs import Verdict, VerifyJob
from gpu_actors.reference import Reference
from gpu_actors.sandbox import UNTIMED
from gpu_actors.verifier import Verifier, check, comparable, compared
from tests.unit.ckb.planted import chosen, disguised
from tests.unit.gpu_actors import tiny

STAGED = ("L0", "L1", "L2")
BUILT = ("execution", "model", "integration")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama and a Qwen3 checkpoint, and a cache of the reference's answers."""
    folder = tmp_path_factory.mktemp("work")
    for family in ("llama", "qwen3"):
        tiny.write_checkpoint(folder / family, family)
    return folder


def verify(work: Path, name: str, family: str, edits: dict[str, tuple[str, str]], **fields: object) -> Verdict:
    tree = tiny.write_engine(work / "trees" / name, family, edits)
    job = tiny.verify_job(tiny.engine_job(tree, work / family, family), **fields)
    return Verifier(work / "cache").verify(job)


def lines(verdict: Verdict) -> list[str]:
    return [f"{gate.level} {gate.gate} {gate.status}: {gate.summary}" for gate in verdict.gates]


def test_a_right_engine_passes_every_gate_and_leaves_evidence_named_by_its_hash(work: Path, tmp_path: Path) -> None:
    verdict = verify(work, "right_qwen3", "qwen3", {}, evidence_dir=str(tmp_path))
    assert verdict.passed, lines(verdict)
    assert verdict.levels == ("L0", "L1", "L2", "L3")
    assert {gate.gate for gate in verdict.gates if gate.level == "L2"} >= {"linear", "forward"}
    assert {gate.gate for gate in verdict.gates if gate.level == "L1"} >= {"agreement", "server"}
    assert verdict.gates[-1].gate == "run_again"
    order = [row.id for row in listed()]
    ran = [gate.gate for gate in verdict.gates]
    assert ran == [name for name in order if name in ran], "the page on gates has another order"
    assert {"float32_execution", "float32_model"}.isdisjoint(ran), "they apply to bfloat16 Targets alone"
    for gate in verdict.gates:
        stored = json.loads((tmp_path / f"{gate.evidence[0].sha256}.json").read_text())
        assert stored["gate"] == gate.gate
        assert stored["tree"] == verdict.tree


@pytest.mark.slow
def test_every_gate_may_be_asked_again_after_all_others(work: Path, tmp_path: Path) -> None:
    """The one that `run_again` draws must not fail for what ran in between: a right engine would be rejected."""
    tree = tiny.write_engine(work / "trees" / "asked_again", "llama", {})
    job = tiny.verify_job(tiny.engine_job(tree, work / "llama", "llama"))
    engine, copies = job.engine, tmp_path
    with (
        Reference(work / "cache", Path(engine.checkpoint), engine.facts) as reference,
        Child(ENGINE, confinement(engine, work / "cache", also_read=(copies,), environment=UNTIMED)) as child,
    ):
        subject = Subject(job, child, reference, time.monotonic() + 300, copies)
        open_tree(child, engine, 60.0, served=True)
        asked = [gate for gate in STAGE_GATES if gate.applies(engine.facts)]
        first = {gate.id: check(subject, gate) for gate in asked}
        assert [(name, f.summary) for name, f in first.items() if f.status != "PASS"] == []
        for gate in comparable(first):
            again = compared(gate, first[gate.id], check(subject, gate))
            assert again.status == "PASS", (gate.id, again.summary)


def test_what_passes_twice_with_other_numbers_fails_and_says_which() -> None:
    gate = next(gate for gate in STAGE_GATES if gate.id == "setup")
    first, second = passed("x", dtype="float32"), passed("x", dtype="bfloat16")
    assert compared(gate, first, first).status == "PASS"
    assert compared(gate, first, second).summary == "setup passed twice on the same inputs, with other numbers: dtype"
    assert "not the second time: it broke" in compared(gate, first, failed("it broke")).summary


@pytest.mark.slow
def test_full_acceptance_judges_fresh_prompts_by_the_engine_s_own_words(work: Path) -> None:
    """An engine that is right on the prompts that never change and wrong on all others."""
    last: dict[str, object] = {"stages": ("acceptance",), "levels": ("L3",)}
    right = verify(work, "right_full", "llama", {}, acceptance="full", **last)
    assert right.passed, lines(right)
    greedy = next(gate.summary for gate in right.gates if gate.gate == "acceptance_greedy")
    asked = Plan(work / "llama", tiny.facts("llama"), which="screen", seed=0)
    assert f" of {2 * sum(map(asked.count, asked.fixed()))} greedy tokens equal" in greedy, greedy
    known = [prompt[-2:] for prompt in asked.fixed()]
    cheat = f"token if prompt[-2:] in {known} else (token + 1) % 384"
    wrong = verify(work, "learnt", "llama", {"engine.py": ("yield token\n", f"yield {cheat}\n")}, acceptance="full",
                   **last)  # fmt: skip
    assert [gate.gate for gate in wrong.failures] == ["acceptance_greedy", "lasting", "permuted_weights"], lines(wrong)
    screened = verify(work, "learnt_screened", "llama", {"engine.py": ("yield token\n", f"yield {cheat}\n")}, **last)
    learnt = "the fixed prompts of a screen can be learnt by heart; its other gates draw prompts that nobody knows"
    assert [gate.gate for gate in screened.failures] == ["lasting", "permuted_weights"], learnt


class Wrong(NamedTuple):
    """An engine that must be rejected."""

    gate: str
    edits: dict[str, tuple[str, str]]
    says: str = ""
    """Part of the failed gate's summary."""
    fields: dict[str, object] = {}


def setup_that(code: str) -> dict[str, tuple[str, str]]:
    return {"kernels.py": ("    torch.set_num_threads(THREADS)", f"    {code}")}


FORWARD = "return x + linear(silu_mul(gate_up)"
RUBBISH = """import os
    for fd in range(3, 256):
        try:
            os.write(fd, bytes([255, 254, 10]))
        except OSError:
            pass"""
READS = """from pathlib import Path
    try:
        next(Path("/usr").rglob("*.py")).read_text()
    except PermissionError:
        pass"""
ENVIRONMENT = "import os; print(os.environ['ENGINESMITH_SECRET'])"
DOWNLOAD = "from urllib.request import urlopen; urlopen('http://127.0.0.1:PORT/', timeout=5)"
ONE_STAGE: dict[str, object] = {"stages": ("execution",)}
TWO_STAGES: dict[str, object] = {"stages": ("execution", "model")}
WRONG = {
    "theta": Wrong("rope", {"facts.py": ("ROPE_THETA = 50000.0", "ROPE_THETA = 10000.0")}, fields=ONE_STAGE),
    "eps": Wrong("rms_norm", {"facts.py": ("NORM_EPS = 1e-05", "NORM_EPS = 1e-04")}, fields=ONE_STAGE),
    "zeros": Wrong("linear", {"kernels.py": ("F.linear(x, packed)", "0 * F.linear(x, packed)")}, fields=ONE_STAGE),
    "groups": Wrong("attention", {"kernels.py": ("repeat_interleave(HEADS // KV_HEADS, dim=0)",
                                                 "repeat(HEADS // KV_HEADS, 1, 1)")}, fields=ONE_STAGE),
    "append": Wrong("kv_cache", {"cache.py": ("self.held[1, layer, :, start : start + len(v)]",
                                              "self.held[1, layer, :, : len(v)]")}, fields=ONE_STAGE),
    "rubbish": Wrong("setup", setup_that(RUBBISH), "PROTOCOL", ONE_STAGE),
    "exit 0": Wrong("setup", setup_that("import os; os._exit(0)"), "CRASHED", ONE_STAGE),
    "secret": Wrong("setup", setup_that(ENVIRONMENT), "KeyError", ONE_STAGE),
    "network": Wrong("setup", setup_that(DOWNLOAD), "RAISED", ONE_STAGE),
    "framework": Wrong("audit", setup_that("import transformers"), "transformers", ONE_STAGE),
    "residual": Wrong("forward", {"model.py": (FORWARD, FORWARD.replace("x + ", ""))}, fields=TWO_STAGES),
    "position": Wrong("step", {"model.py": ("([token]), cache, position)", "([token]), cache, position - 1)")},
                      fields=TWO_STAGES),
    "order": Wrong("batch", {"engine.py": ("for prompt in prompts", "for prompt in sorted(prompts, key=len)")},
                   fields={"stages": BUILT}),
    "symlink": Wrong("forward", {
        "kernels.py": ("    torch.set_num_threads(THREADS)",
                       "    import os\n    os.path.lexists(h := os.environ['HOME'] + '/truncated') or "
                       "os.symlink('/nowhere', h)\n    torch.set_num_threads(THREADS)"),
        "model.py": (FORWARD, FORWARD.replace("x + ", ""))}, fields=TWO_STAGES),
    "ignored": Wrong("weights", {"weights.py": ("return Weights(tensors, tuple(stored))",
                                                "return Weights(tensors, tuple(stored)[1:])")}, fields=TWO_STAGES),
    "last token": Wrong("agreement", {"engine.py": ("+ count):", "+ count - 1):")}, "generate gave 7",
                        {"stages": BUILT}),
    "end": Wrong("refusals", {"engine.py": ("if not 1 <= len(prompt) <= limit:", "if len(prompt) > limit:")},
                 fields={"stages": BUILT}),
}  # fmt: skip


SLOW = {"eps", "append", "secret", "exit 0", "ignored", "end"}
"""Wrong in a way whose gate or failure has another example here, or a quicker test elsewhere."""
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WRONG]


@pytest.fixture(scope="module")
def verdicts(work: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Verdict]]:
    """The wrong engines that are asked for, judged two at a time: starting their processes takes most of the time."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    host = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=host.serve_forever, daemon=True).start()

    def judge(item: tuple[str, Wrong]) -> tuple[str, Verdict]:
        name, wrong = item
        edits = {f: (old, new.replace("PORT", str(host.server_port))) for f, (old, new) in wrong.edits.items()}
        without = tuple(c for c in tiny.CONTRACTS if c != "server")  # its start takes as long as all the rest
        fields = {"levels": ("L0", "L1", "L2"), "contracts": without} | wrong.fields
        return name, verify(work, name.replace(" ", "_"), "llama", edits, **fields)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("ENGINESMITH_SECRET", "x")
        yield dict(pool.map(judge, [(name, wrong) for name, wrong in WRONG.items() if name in chosen]))
    host.shutdown()
    host.server_close()
    assert not asked, "an engine reached the host's network"


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_engine_is_rejected_by_the_gate_that_should(verdicts: dict[str, Verdict], name: str) -> None:
    verdict, wrong = verdicts[name], WRONG[name]
    assert not verdict.passed
    first = verdict.failures[0]
    assert first.gate == wrong.gate, lines(verdict)
    assert wrong.says in first.summary


@pytest.mark.parametrize(
    ("name", "edits", "gates"),
    [
        (
            "slightly",
            {"model.py": ("linear(hidden, table).float()", "linear(hidden, table).float() * 1.0001")},
            ["acceptance_logits", "acceptance_divergence", "changed_weights"],
        ),
        pytest.param(
            "one_token",
            {"engine.py": ("token = sampler(logits)", "token = sampler(logits) ^ (position == 40)")},
            ["acceptance_greedy"],
            marks=pytest.mark.slow,  # Hugging Face is started to judge what differs
        ),
    ],
)
def test_acceptance_rejects_what_the_stages_let_through(
    work: Path, name: str, edits: dict[str, tuple[str, str]], gates: list[str]
) -> None:
    verdict = verify(work, name, "qwen3", edits, levels=("L3",))
    assert [g.gate for g in verdict.failures] == gates, lines(verdict)


def test_the_server_gate_hears_a_truncated_stream(work: Path) -> None:
    fields: dict[str, object] = {"stages": ("integration",), "levels": ("L0", "L1"), "contracts": ("server",)}
    cut = {"server.py": ("                sent = text\n", "                sent = text + 'x'\n")}
    wrong = verify(work, "served_wrong", "llama", cut, **fields)
    assert [gate.gate for gate in wrong.failures] == ["server"]
    assert "the streamed completion is" in wrong.failures[0].summary


def test_the_server_s_own_process_is_watched_too(work: Path) -> None:
    fields: dict[str, object] = {"stages": ("integration",), "levels": ("L0", "L1"), "contracts": ("server",)}
    reads = {"server.py": ("import argparse\n", f"import argparse\n{READS.replace(chr(10) + '    ', chr(10))}\n")}
    wrong = verify(work, "served_reading", "llama", reads, **fields)
    assert [gate.gate for gate in wrong.failures] == ["watched"], lines(wrong)
    assert [(row.kind, row.file) for row in wrong.violations] == [("read", "server.py")]


def test_a_tree_that_hangs_is_ended_at_the_deadline(work: Path) -> None:
    verdict = verify(work, "hangs", "llama", setup_that("while True: pass"), stages=("execution",), levels=STAGED,
                     deadline_s=4.0)  # fmt: skip
    assert [gate.status for gate in verdict.gates] == ["PASS", "PASS", "PASS", "FAIL"]
    assert verdict.gates[-1].summary.startswith("TIMEOUT: no answer within the deadline")


def test_nothing_of_another_tree_is_run(work: Path) -> None:
    tree = tiny.write_engine(work / "trees" / "changed", "llama")
    job = tiny.verify_job(tiny.engine_job(tree, work / "llama"), stages=("execution",), levels=("L0", "L1"))
    (tree / "kernels.py").write_text("raise SystemExit('this must not run')")
    verdict = Verifier(work / "cache").verify(job)
    assert [gate.gate for gate in verdict.failures] == ["tree"]
    assert [gate.gate for gate in verdict.gates] == ["tree", "audit", "copied"]


def test_a_file_that_the_trees_hash_does_not_cover_fails_the_tree(work: Path) -> None:
    """Two trees that differ only in a table of data would share one hash, and one verdict."""
    tree = tiny.write_engine(work / "trees" / "with_data", "llama", {})
    (tree / "answers.json").write_text("{}")
    (tree / "link.py").symlink_to("/etc/hostname")
    job = tiny.verify_job(tiny.engine_job(tree, work / "llama", "llama"), levels=("L0",))
    verdict = Verifier(work / "cache").verify(job)
    assert verdict.failures[0].gate == "tree"
    assert "answers.json" in verdict.failures[0].summary
    assert "link.py" in verdict.failures[0].summary


def test_a_tower_of_brackets_fails_the_tree_and_not_the_verifier(work: Path) -> None:
    tree = tiny.write_engine(work / "trees" / "tower", "llama", {})
    (tree / "deep.py").write_text("-" * 100_000 + "1\n")
    verdict = Verifier(work / "cache").verify(tiny.verify_job(tiny.engine_job(tree, work / "llama"), levels=("L0",)))
    assert [gate.gate for gate in verdict.failures] == ["tree", "audit"], lines(verdict)


def test_a_tree_with_a_copied_function_is_rejected_unread_with_each_span_named(work: Path) -> None:
    tree = tiny.write_engine(work / "trees" / "copied", "llama", {})
    text = (tree / "model.py").read_text()
    copies = [function for _, function in chosen(2, 16, seed=4)]
    kept = "\n".join(f"WIDTH_{n} = {n} * HIDDEN" for n in range(8))  # nothing of theirs, so that the spans stay apart
    first, second = (disguised([copy], random.Random(4)) for copy in copies)
    (tree / "model.py").write_text(f"{text}\n{first}\n{kept}\n{second}")
    job = tiny.verify_job(tiny.engine_job(tree, work / "llama", "llama"), stages=("execution",), levels=STAGED)
    verdict = Verifier(work / "cache").verify(job)
    assert [gate.gate for gate in verdict.gates if gate.status == "FAIL"] == ["copied"], lines(verdict)
    assert verdict.gates[-1].gate == "copied", "nothing of the tree is run"
    spans = [int(line) for line in re.findall(r"model\.py:(\d+)-\d+ is in transformers", verdict.failures[0].summary)]
    assert len(spans) >= 2
    assert min(spans) > text.count("\n")
    assert [(row.kind, row.line) for row in verdict.violations] == [("copied", line) for line in spans]


@pytest.mark.parametrize(
    ("name", "code", "gate", "kind", "fields"),
    [
        ("listed", "import transformers", "audit", "static", ONE_STAGE),
        ("reads", READS, "watched", "read", ONE_STAGE),
        pytest.param(
            "reads_at_last",
            READS,
            "watched",
            "read",
            {"stages": ("acceptance",), "levels": ("L3",)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_each_violation_is_a_row_of_the_verdict_whatever_level_was_asked_for(
    work: Path, name: str, code: str, gate: str, kind: str, fields: dict[str, object]
) -> None:
    """What a tree tries and gets over is a violation too: nothing else of it fails."""
    verdict = verify(work, name, "llama", setup_that(code), **({"levels": ("L0", "L1")} | fields))
    assert not verdict.passed
    assert [(row.candidate, row.gate, row.kind, row.file) for row in verdict.violations] == [
        ("c", gate, kind, "kernels.py")
    ], lines(verdict)
    assert verdict.violations[0].line > 1


def test_a_stage_whose_gates_would_all_fall_away_is_our_fault_and_raises(work: Path) -> None:
    tree = tiny.write_engine(work / "trees" / "unnamed", "llama")
    job: VerifyJob = tiny.verify_job(
        tiny.engine_job(tree, work / "llama"), stages=("execution",), contracts=("mlp",), levels=STAGED
    )
    with pytest.raises(ValueError, match="the job names none of them"):
        Verifier(work / "cache").verify(job)
