"""The composer: a tree from a brief alone, and a rule for every other role."""

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig, Qwen3Config

import roles.authors.composer
from ckb.audit import violations
from ckb.knowledge_files import Knowledge
from ckb.space import affects, complete, open_space
from roles import briefs as b
from roles.author import AuthorError
from roles.authors.composer import Composer
from roles.authors.composer.assembly import import_blocks
from roles.checks import faults
from tests.unit.roles.composed import KNOWLEDGE, brief_of, compose, facts_of

LLAMA = facts_of(LlamaConfig(architectures=["LlamaForCausalLM"], tie_word_embeddings=True), isa=("avx2", "avx512f"))
QWEN3 = facts_of(Qwen3Config(architectures=["Qwen3ForCausalLM"], tie_word_embeddings=False), "fp32", "bfloat16")
H200 = {"accelerator": "cuda", "name": "NVIDIA H200", "architecture": "sm_90", "capability": 9.0}
DEVICE = QWEN3.model_copy(update={"platform": QWEN3.platform.model_copy(update=H200)})
COMPILED = {"step": "compiled"}
PLAIN = {"linear": "torch"}
DESIGNS = [
    (LLAMA, PLAIN),
    (LLAMA, {**COMPILED, "weight_fusion": "fused"}),
    (LLAMA, {"attention": "native", "linear": "native", "kv_layout": "token_major"}),
    (QWEN3, COMPILED),
    (DEVICE, {}),
    (DEVICE, {"kv_layout": "token_major", "weight_fusion": "fused"}),
]


# --- implementer ------------------------------------------------------------------------------------------------------


def test_the_composer_holds_no_engine_code() -> None:
    for path in Path(roles.authors.composer.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "torch" not in node.value, f"{path.name}:{node.lineno}"


def test_a_tree_is_deterministic_small_and_passes_the_audit(tmp_path: Path) -> None:
    for index, (facts, change) in enumerate(DESIGNS):
        answer = compose(brief_of(facts, change))
        assert answer == compose(brief_of(facts, change))
        assert answer.missing_contract is None
        assert not faults(brief_of(facts, change), answer)
        assert sum(text.count("\n") for text in answer.files.values()) <= 1_200
        folder = tmp_path / str(index)
        folder.mkdir()
        for file, text in answer.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        assert violations(folder, ("torch",)) == []


def test_composed_files_are_formatted_and_clean(tmp_path: Path) -> None:
    for index, (facts, change) in enumerate(DESIGNS):
        (tmp_path / f"e{index}").mkdir()
        for file, text in compose(brief_of(facts, change)).files.items():
            (tmp_path / f"e{index}" / file).write_text(text, encoding="utf-8")
    for command in (["format", "--diff"], ["check", "--select", "E,F,I,UP,B,C4,SIM"]):
        options = ["--line-length", "120", "--target-version", "py311", "--no-cache", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_spans_are_the_bill_of_materials() -> None:
    answer = compose(brief_of(LLAMA, COMPILED))
    for span in answer.spans:
        lines = answer.files[span.file].splitlines()[span.first - 1 : span.last]
        assert "\n".join(lines) == KNOWLEDGE.fragments[span.fragment].code.strip("\n")
        assert KNOWLEDGE.fragments[span.fragment].contract == span.contract


def test_every_name_in_a_tree_is_defined() -> None:
    """Free names of fragments are constants, parameters, imports or what other fragments of the module define."""
    for facts, change in DESIGNS:
        for file, text in compose(brief_of(facts, change)).files.items():
            tree = ast.parse(text)
            stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
            stored |= {
                n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            }
            stored |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
            imported = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
            stored |= {(alias.asname or alias.name).split(".")[0] for node in imported for alias in node.names}
            stored |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and n.name}
            used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            builtin = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set(__builtins__)
            assert used <= stored | builtin | {"__file__", "__name__"}, f"{file}: {used - stored - builtin}"


def test_every_fragment_is_short_names_no_target_and_is_used_by_some_assignment() -> None:
    folder = Path(roles.__file__).parent.parent / "ckb" / "knowledge" / "fragments"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 80, f"{path.name} has {text.count(chr(10))} lines"
        assert not [word for word in ("smollm", "llama", "qwen", "135m") if word in text.lower().replace("'llama'", "")]
    sampling = [
        (facts.model_copy(update={"workload": facts.workload.model_copy(update={"decoding": "sample"})}), {})
        for facts in (LLAMA, DEVICE)
    ]
    designs = [*DESIGNS, *sampling, (facts_of(LlamaConfig(), "fp32"), COMPILED)]
    used = {span.fragment for facts, change in designs for span in compose(brief_of(facts, change)).spans}
    assert used == set(KNOWLEDGE.fragments)


def test_without_a_needed_fragment_the_contract_is_named_as_missing() -> None:
    for facts, change in DESIGNS:
        whole = compose(brief_of(facts, change))
        decided = {name: value for name, value in whole.choices.items() if "." not in name}
        for span in whole.spans:
            fewer = {id: f for id, f in KNOWLEDGE.fragments.items() if id != span.fragment}
            answer = compose(brief_of(facts, decided, knowledge=Knowledge(KNOWLEDGE.contracts, fewer)))
            assert answer.missing_contract == span.contract, span.fragment
            assert span.contract in answer.summary


@pytest.mark.parametrize("stage", ["execution", "model", "integration", "acceptance"])
def test_seeds_give_different_valid_designs_at_every_stage(stage: str) -> None:
    answers = [compose(brief_of(LLAMA, seed=seed, stage=stage)) for seed in range(4)]
    assert len({tuple(sorted(a.files.items())) for a in answers}) == 4
    assert answers[0].choices["step"] == "compiled"  # what `mode.step: graph` asks for, tried first
    assert all(
        "kernels.py" in a.files and ("engine.py" in a.files) == (stage in ("integration", "acceptance"))
        for a in answers
    )


def test_a_later_stage_keeps_the_design_and_a_retry_draws_another() -> None:
    first = compose(brief_of(LLAMA, seed=3, stage="execution"))
    later = compose(brief_of(LLAMA, stage="model", choices=first.choices))
    assert later.choices.items() >= first.choices.items()
    assert later.files["kernels.py"] == first.files["kernels.py"]
    evidence = b.Evidence(gate="linear", contract="linear", summary="wrong")
    assert compose(brief_of(LLAMA, seed=3, stage="execution", failures=(evidence,))).choices != first.choices


def test_a_hypothesis_changes_what_it_names_and_what_must_go_with_it() -> None:
    incumbent = compose(brief_of(LLAMA, PLAIN)).choices
    answer = compose(brief_of(LLAMA, COMPILED, seed=5, choices=incumbent))
    decided = {name: value for name, value in answer.choices.items() if "." not in name}
    assert decided == {**{n: v for n, v in incumbent.items() if "." not in n}, "step": "compiled", "linear": "native"}
    with pytest.raises(AuthorError, match="can't be made together"):
        compose(brief_of(LLAMA, {"step": "compiled", "linear": "torch"}))
    with pytest.raises(AuthorError, match=r"cpp-vectors.LANES is one of \[8\]"):
        compose(brief_of(QWEN3, {**COMPILED, "cpp-vectors.LANES": 16}))


def test_two_tuned_parameters_merge_without_conflict(tmp_path: Path) -> None:
    base = compose(brief_of(LLAMA, COMPILED))
    texts = {"base": base.files["kernels.py"]}
    for name, change in (("ours", {"cpp-products.STREAMS": 4}), ("theirs", {"cpp-products.PREFETCH": 512})):
        texts[name] = compose(brief_of(LLAMA, change, choices=base.choices)).files["kernels.py"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = ["git", "merge-file", "-p", "ours", "base", "theirs"]
    merged = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    both = compose(brief_of(LLAMA, {"cpp-products.STREAMS": 4, "cpp-products.PREFETCH": 512}, choices=base.choices))
    assert (merged.returncode, merged.stdout) == (0, both.files["kernels.py"])


def test_imports_are_merged_in_three_groups() -> None:
    lines = [
        "import torch",
        "from .kernels import b, A, C_D",
        "import os",
        "from os import path",
        "from .kernels import a",
    ]
    assert list(import_blocks(lines)) == [
        "import os\nfrom os import path",
        "import torch",
        "from .kernels import C_D, A, a, b",
    ]


# --- reviewer and judge -----------------------------------------------------------------------------------------------


def review(change: dict[str, str], file: str, old: str, new: str) -> tuple[b.Finding, ...]:
    """Findings on a composed tree in which one text is replaced."""
    answer = compose(brief_of(LLAMA, change))
    assert old in answer.files[file], f"{old!r} is not in {file}"
    files = {**answer.files, file: answer.files[file].replace(old, new)}
    contracts = tuple(KNOWLEDGE.contracts.values())
    brief = b.ReviewerBrief(
        run="r", facts=LLAMA, choices=answer.choices, issue="i", contracts=contracts, files=files, operators=()
    )
    found, _ = Composer().answer(brief)
    assert isinstance(found, b.ReviewerAnswer)
    assert not faults(brief, found)
    return found.findings


def test_composed_trees_have_no_findings() -> None:
    assert review(PLAIN, "kernels.py", "DTYPE", "DTYPE") == ()
    assert review(COMPILED, "kernels.py", "DTYPE", "DTYPE") == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "contract", "found"),
    [
        ("kernels.py", "def rope(x: torch.Tensor, start", "def rope(x: torch.Tensor, begin", "rope", "(x, begin)"),
        ("kernels.py", "def silu_mul", "def silu_times", "silu-mul", "no such definition"),
        ("kernels.py", "DTYPE = torch.float32", "DTYPE = torch.float16", "setup", "DTYPE = torch.float16"),
        ("cache.py", "def append(self, layer", "def append(self, index", "kv-cache", "(index, k, v, start)"),
        ("cache.py", "import torch\n", "import torch\nimport transformers\n", "kv-cache", "an inference framework"),
        ("model.py", "from .cache", "from .store", "qkv", "from .store"),
        ("model.py", "class Decoder:", "class Decoder:\n    exec('1')\n", "qkv", "exec"),
        ("sampler.py", "class Sampler", "class Sampler(", "sampler", "invalid syntax"),
    ],
)
def test_the_reviewer_finds_deviations(file: str, old: str, new: str, contract: str, found: str) -> None:
    findings = review(PLAIN, file, old, new)
    assert [(f.contract, f.file) for f in findings if found in f.found] == [(contract, file)], findings


def test_a_missing_file_is_a_finding() -> None:
    contracts = tuple(KNOWLEDGE.contracts.values())
    brief = b.ReviewerBrief(run="r", facts=LLAMA, issue="i", contracts=contracts, files={})
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.ReviewerAnswer)
    assert {"kernels.py", "engine.py", "server.py"} <= {f.file for f in answer.findings}


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        (
            "engine.py",
            "class E:\n    def generate(self, prompts):\n        self.seen[tuple(prompts)] = 1\n",
            "stored under",
        ),
        ("model.py", "from functools import cache\n@cache\ndef answer(prompt):\n    return 1\n", "memoised"),
        ("engine.py", "def stream(prompt):\n    return open('answers').read()\n", "reads a file"),
        ("engine.py", "from pathlib import Path\ndef step(t):\n    return Path('a').read_text()\n", "reads a file"),
        ("kernels.py", "import time\ntime.perf_counter = lambda: 0.0\n", "a clock is patched"),
        ("kernels.py", "import sys\nsys.modules['x'] = None\n", "the module sys is patched"),
        ("kernels.py", "import time\nsetattr(time, 'time', None)\n", "the module time is patched"),
        ("kernels.py", "import torch\ntorch.backends = None\n", "the module torch is patched"),
    ],
)
def test_the_judge_objects_to_dishonest_code(file: str, text: str, what: str) -> None:
    answer, _ = Composer().answer(b.JudgeBrief(run="r", facts=LLAMA, issue="i", files={file: text}, gates=()))
    assert isinstance(answer, b.JudgeAnswer)
    assert [what in objection for objection in answer.objections] == [True], answer.objections


def test_the_judge_has_nothing_against_composed_trees() -> None:
    for facts, change in DESIGNS:
        files = compose(brief_of(facts, change)).files
        answer, _ = Composer().answer(b.JudgeBrief(run="r", facts=facts, issue="i", files=files, gates=()))
        assert answer == b.JudgeAnswer()


# --- evaluator and orchestrator ---------------------------------------------------------------------------------------


def evaluate(
    choices: dict[str, b.Choice], tried: tuple[dict[str, b.Choice], ...] = (), **more: object
) -> b.EvaluatorAnswer:
    contracts, fragments = KNOWLEDGE.contracts.values(), KNOWLEDGE.fragments.values()
    given: dict[str, object] = {"metric": "tpot_ms", "current": 80.0, "bound": 12.0, "wanted": 4} | more
    given["shares"] = given.get("shares", {"linear": 0.8, "attention": 0.1, "rest": 0.1})
    brief = b.EvaluatorBrief.model_validate(
        {"run": "r", "facts": LLAMA, "choices": choices, "tried": tried, **given}
        | {"space": open_space(contracts, fragments, LLAMA), "affects": affects(contracts, fragments)}
    )
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.EvaluatorAnswer)
    assert not faults(brief, answer)
    return answer


def test_the_evaluator_starts_with_the_change_of_the_largest_reach() -> None:
    hypotheses = evaluate(compose(brief_of(LLAMA, PLAIN)).choices).hypotheses
    assert hypotheses[0].change == COMPILED
    assert hypotheses[0].expected_effect == pytest.approx(0.85 * 0.5)
    changed = [next(iter(h.change)) for h in hypotheses]
    assert len(set(changed)) == 4, "one round tries different things"
    effects = [h.expected_effect for h in hypotheses]
    assert effects == sorted(effects, reverse=True)


def learned(change: dict[str, b.Choice], effect: float | None, high: float = 0.0, **more: object) -> b.Lesson:
    given: dict[str, object] = {"id": "x", "title": "x", "kind": "optimisation", "applies_to": "", "text": ""}
    interval = None if effect is None else (effect - 0.1, high or effect + 0.01)
    return b.Lesson.model_validate(
        given | {"change": change, "effect": effect, "interval": interval, "signal": "probable"} | more
    )


def test_the_evaluator_starts_with_what_helped_elsewhere_and_leaves_out_what_hurt() -> None:
    choices = compose(brief_of(LLAMA, COMPILED)).choices
    streams: dict[str, b.Choice] = {"cpp-products.STREAMS": 4, "cpp-products.PREFETCH": 1024}
    known = (
        learned({"step": "eager"}, -0.6),
        learned({"linear": "torch"}, -0.3, high=0.1),  # not clear of zero: worth a try
        learned(streams, None),
        learned({"weight_fusion": "fused"}, 0.2),
        learned({"cpp-vectors.LANES": 7}, 0.9),  # not open here
        learned({"kv_layout": choices["kv_layout"]}, 0.9),  # so already
        learned({"kv_layout": "token_major"}, 0.5, kind="debugging"),
    )
    found = evaluate(choices, known=known, shares={"rest": 1.0}, wanted=50).hypotheses
    changes = [h.change for h in found]
    assert changes[:2] == [{"weight_fusion": "fused"}, streams]
    assert {"step": "eager"} not in changes
    assert {"linear": "torch"} in changes
    assert changes.count({"weight_fusion": "fused"}) == 1
    again = evaluate(choices, ({**choices, "weight_fusion": "fused"},), known=known).hypotheses
    assert {"weight_fusion": "fused"} not in [h.change for h in again]


def test_the_evaluator_tunes_what_the_incumbent_uses_and_never_repeats_itself() -> None:
    choices = compose(brief_of(LLAMA, COMPILED)).choices
    shares = {"head": 0.1, "rest": 0.9}  # a compiled step hides its parts
    tried: list[dict[str, b.Choice]] = [choices]
    for _ in itertools.count():
        hypotheses = evaluate(choices, tuple(tried), shares=shares).hypotheses
        if not hypotheses:
            break
        assert all(h.expected_effect >= 0 for h in hypotheses)
        tried += [choices | h.change for h in hypotheses]
    names = {name for change in tried for name in change if change[name] != choices[name]}
    assert {"cpp-products.STREAMS", "cpp-products.PREFETCH", "cpp-vectors.LANES"} <= names
    plain = compose(brief_of(LLAMA, PLAIN)).choices
    assert not [h for h in evaluate(plain, wanted=50).hypotheses if next(iter(h.change)).startswith("cpp-")]


def test_at_the_bound_nothing_is_expected() -> None:
    answer = evaluate(compose(brief_of(LLAMA)).choices, current=12.0)
    assert all(h.expected_effect == 0 for h in answer.hypotheses)


@pytest.mark.parametrize("unknown", ["current", "bound"])
def test_without_a_measurement_or_a_bound_there_is_room_for_everything(unknown: str) -> None:
    hypotheses = evaluate(compose(brief_of(LLAMA, PLAIN)).choices, **{unknown: None}).hypotheses
    assert hypotheses[0].expected_effect == pytest.approx(0.5)


def test_the_orchestrator_dispatches_by_effect_remembers_and_stops() -> None:
    made = [
        b.Hypothesis(title=str(e), change={"x": i}, expected_effect=e, acceptance="", falsification="")
        for i, e in enumerate((0.1, 0.3, 0.2))
    ]
    brief = b.OrchestratorBrief(
        run="r",
        facts=LLAMA,
        hypotheses=tuple(made),
        parallel=2,
        memory="",
        last_round=(b.Outcome(line="r1-1-c0 step: kept, +60%", meaning="gain"),),
    )
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.OrchestratorAnswer)
    assert (answer.dispatch, answer.stop) == ((1, 2), False)
    assert answer.memory.splitlines()[-1] == "- r1-1-c0 step: kept, +60%"
    again, _ = Composer().answer(brief.model_copy(update={"hypotheses": (), "memory": answer.memory}))
    assert again == b.OrchestratorAnswer(dispatch=(), memory=answer.memory, stop=True)


def test_the_memory_keeps_failed_implementations_apart_from_wrong_directions() -> None:
    ends: list[tuple[str, b.Meaning]] = [
        ("a paid", "gain"),
        ("b did nothing", "no gain"),
        ("c crashed", "failed implementation"),
        ("d met a busy machine", "not found out"),
    ]
    memory = "# Notes\n\nWritten by somebody else.\n"
    for number in (1, 2):
        outcomes = tuple(b.Outcome(line=f"{number}{line}", meaning=meaning) for line, meaning in ends)
        brief = b.OrchestratorBrief(run="r", facts=LLAMA, hypotheses=(), parallel=2, memory=memory, last_round=outcomes)
        answer, _ = Composer().answer(brief)
        assert isinstance(answer, b.OrchestratorAnswer)
        memory = answer.memory
    assert "Written by somebody else." in memory
    sections = {part.splitlines()[0]: part.splitlines()[1:] for part in memory.split("## ")[1:]}
    held = [[line for line in lines if line] for lines in sections.values()]
    assert held == [[f"- 1{line}", f"- 2{line}"] for line, _ in ends]
    against, failed = (next(s for s in sections if word in s) for word in ("speaks against", "failed"))
    assert "crashed" in "".join(sections[failed])
    assert "crashed" not in "".join(sections[against])


def test_a_free_hand_changes_one_thing_of_the_incumbent_and_other_seeds_other_things() -> None:
    plain = compose(brief_of(LLAMA, PLAIN)).choices
    brief = brief_of(LLAMA, PLAIN).model_copy(update={"choices": plain, "change": {}, "free": True})
    found = []
    for seed in range(1, 9):
        answer, _ = Composer().answer(brief.model_copy(update={"seed": seed}))
        again, _ = Composer().answer(brief.model_copy(update={"seed": seed}))
        assert isinstance(answer, b.ImplementerAnswer)
        assert answer == again
        changed = {name for name, value in answer.choices.items() if name in plain and plain[name] != value}
        alone = [
            complete({name: answer.choices[name]}, brief.contracts, brief.fragments, brief.facts, prefer=plain)
            for name in changed
        ]
        assert answer.choices in alone, "one change, with what it brings"
        assert answer.summary.startswith("changed ")
        found.append(answer.choices)
    assert len({str(sorted(choices.items())) for choices in found}) > 3


# --- analyst and consolidator -----------------------------------------------------------------------------------------


def test_the_analyst_blames_the_earliest_contract() -> None:
    failures = (
        b.Evidence(gate="step", contract="model", summary="3 logits differ"),
        b.Evidence(gate="rope", contract="rope", summary="expected 0.5, found 0.7"),
    )
    contracts = tuple(KNOWLEDGE.contracts[name] for name in ("linear", "rope", "model"))
    brief = b.AnalystBrief(run="r", facts=LLAMA, issue="i", failures=failures, contracts=contracts)
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.AnalystAnswer)
    assert (answer.contract, answer.cause) == ("rope", "implementation")
    assert "expected 0.5" in answer.explanation
    with pytest.raises(AuthorError, match="no evidence"):
        Composer().answer(brief.model_copy(update={"failures": ()}))


def measured(candidate: str, effect: float, low: float, high: float) -> b.Lesson:
    return b.Lesson(
        id=candidate,
        title="compiled step",
        kind="optimisation",
        applies_to="platform.accelerator == 'cpu'",
        change=dict(COMPILED),
        effect=effect,
        interval=(low, high),
        signal="tentative",
        text="A compiled step.",
    )


@pytest.mark.parametrize(
    ("rows", "signal", "effect"),
    [
        ([("a", 0.5, 0.4, 0.6), ("b", 0.6, 0.5, 0.7)], "confirmed", 0.5),
        ([("a", 0.5, 0.4, 0.6)], "probable", 0.5),
        ([("a", -0.1, -0.2, -0.05), ("b", -0.2, -0.3, -0.1)], "confirmed", -0.1),
        ([("a", 0.5, 0.4, 0.6), ("b", -0.2, -0.3, -0.1)], "tentative", -0.2),
        ([("a", 0.02, -0.1, 0.2)], "tentative", 0.02),
    ],
)
def test_the_consolidator_generalises_what_agrees(
    rows: list[tuple[str, float, float, float]], signal: str, effect: float
) -> None:
    brief = b.ConsolidatorBrief(run="r", facts=LLAMA, measured=tuple(measured(*row) for row in rows))
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.ConsolidatorAnswer)
    assert not faults(brief, answer)
    assert [(e.signal, e.effect) for e in answer.experience] == [(signal, effect)]
    assert f"on {len(rows)} candidate" in answer.experience[0].text


def test_a_gate_that_was_mended_is_remembered_for_whoever_meets_it_again() -> None:
    evidence = b.Evidence(gate="kv_cache", contract="kv-cache", summary="expected 5 positions, found 4.")
    mended = b.Mended(id="s1/kv_cache", evidence=evidence, author="somebody", notes="appends before it reads")
    brief = b.ConsolidatorBrief(run="r", facts=LLAMA, measured=(), mended=(mended,))
    answer, _ = Composer().answer(brief)
    assert isinstance(answer, b.ConsolidatorAnswer)
    assert not faults(brief, answer)
    (row,) = answer.experience
    assert (row.kind, row.fixed, row.effect, row.signal) == ("failure_mode", "s1/kv_cache", None, "probable")
    assert row.text == "It found: expected 5 positions, found 4. The attempt that passed: appends before it reads"


# --- the space --------------------------------------------------------------------------------------------------------


def test_the_space_follows_the_facts() -> None:
    contracts, fragments = tuple(KNOWLEDGE.contracts.values()), tuple(KNOWLEDGE.fragments.values())
    wide = open_space(contracts, fragments, LLAMA)
    assert wide["cpp-vectors.LANES"] == (8, 16)
    assert "cpp-vectors.LANES" not in open_space(contracts, fragments, QWEN3)
    bare = LLAMA.model_copy(update={"platform": LLAMA.platform.model_copy(update={"compiler": None})})
    assert set(open_space(contracts, fragments, bare)) == {"kv_layout", "weight_fusion", "engine.PREFILL_CHUNK"}
    eager = LLAMA.model_copy(update={"workload": LLAMA.workload.model_copy(update={"step": "eager"})})
    assert "step" not in open_space(contracts, fragments, eager)
    assert complete({"cpp-products.STREAMS": 4}, contracts, fragments, eager)["linear"] == "native"
