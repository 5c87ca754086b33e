"""Lint of predicates, in a copy of the seed: what asks for nothing, what can never hold, what contradicts."""

import re
import shutil
from pathlib import Path

import pytest

from ckb.build import read_seed
from ckb.knowledge_files import KNOWLEDGE
from ckb.lint import Problem, lint, lint_files
from ckb.predicate import MOST_DEPTH
from ckb.records import Fragment
from tests.unit.ckb.samples import experience

CONTRACT = "---\ntitle: t\nstage: model\nmodule: model.py\norder: 1\ninterface: []\ntest: model\n{more}---\n"
FRAGMENT = "# ---\n# contract: {contract}\n# title: t\n{more}# ---\nx = 1\n"
MODEL = "title: t\nmodel_type: m\narchitectures: [M]\nconfig: {{}}\ntensors: {tensors}\n{more}"
FEATURE = "features:\n- {{name: f, text: t, when: {when}}}\n"


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        (
            "contracts/new.md",
            CONTRACT.format(more="applies_to: model.heads == 1 and model.heads == 2\n"),
            "never hold$",
        ),
        (
            "contracts/new.md",
            CONTRACT.format(more="applies_to: choice.step == 'traced'\n"),
            "'traced'\" can never hold",
        ),
        ("contracts/new.md", CONTRACT.format(more="applies_to: \"'sink' in model.features\"\n"), "can never hold"),
        ("contracts/new.md", CONTRACT.format(more="applies_to: platform.accelerator == 'gpu'\n"), "can never hold"),
        (
            "contracts/new.md",
            CONTRACT.format(more="applies_to: layer.mlp == 'dense'\n"),
            "fact layer.mlp, .*asked here",
        ),
        (
            "contracts/new.md",
            CONTRACT.format(more="decisions: {a: [p, q]}\ndecision_requires: {a=q: choice.a == 'p'}\n"),
            r"a=q: \"choice.a == 'p'\" can never hold where \(choice.a == 'q'\)",
        ),
        (
            "contracts/new.md",
            CONTRACT.format(
                more="applies_to: not model.qk_norm\ndecisions: {a: [p]}\ndecision_requires: {a=p: model.qk_norm}\n"
            ),
            r"a=p: 'model.qk_norm' can never hold where \(not model.qk_norm\)",
        ),
        (
            "fragments/new.py",
            FRAGMENT.format(
                contract="rope",
                more="# rank: 1\n# applies_to: model.heads > 4\n# parameters: {N: [1]}\n"
                "# parameter_requires: {N=1: model.heads < 4}\n",
            ),
            r"N=1: 'model.heads < 4' can never hold where \(model.heads > 4\)",
        ),
        (
            "fragments/new.py",
            FRAGMENT.format(contract="decode-program", more="# rank: 1\n# applies_to: choice.step == 'eager'\n"),
            "can never hold where its contract applies",
        ),
        (
            "fragments/new.py",
            FRAGMENT.format(contract="decode-program", more="# rank: 1\n# applies_to: choice.linear == 'torch'\n"),
            "can never hold where its contract applies",  # a compiled step requires the other products
        ),
        (
            "fragments/rope-too.py",
            FRAGMENT.format(contract="rope", more="# applies_to: model.heads > 1 and platform.accelerator == 'cpu'\n"),
            "has rank 0 as rope-too has, and .*model.rope_type.* can hold together with its .model.heads > 1 and",
        ),
        ("models/new.yaml", MODEL.format(tensors="[]", more=FEATURE.format(when="model.colour")), "fact model.colour"),
        ("models/new.yaml", MODEL.format(tensors="[]", more=FEATURE.format(when="model.heads ==")), "does not parse"),
        (
            "models/new.yaml",
            MODEL.format(tensors="[]", more=FEATURE.format(when="platform.cores > 1")),
            "feature f: names the fact platform.cores, which can't be asked here",
        ),
        (
            "models/new.yaml",
            MODEL.format(tensors="[]", more=FEATURE.format(when="model.tied_head and not model.tied_head")),
            "feature f: .* can never hold",
        ),
        (
            "models/new.yaml",
            MODEL.format(tensors="[{name: w, when: layer.mlp == 'dense'}]", more=""),
            "tensor w: names the fact layer.mlp, which can't be asked here",
        ),
        (
            "models/new.yaml",
            MODEL.format(tensors="[{name: 'w.{layer}', when: layer.mlp == 'moe'}]", more=""),
            "tensor w.{layer}: .* can never hold",
        ),
        (
            "parallelism/new.yaml",
            "title: t\nkind: tensor\ndegree: platform.count == 2\npartitions: []\napplies_to: platform.count == 1\n",
            "degree: .* can never hold where",
        ),
    ],
)
def test_each_fault_is_found_once_with_its_row(tmp_path: Path, file: str, content: str, what: str) -> None:
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))
    (seed / file).parent.mkdir(exist_ok=True)
    (seed / file).write_text(content)
    (problem,) = lint_files(seed)
    assert problem.table == file.split("/")[0]
    assert problem.id in ("new", "rope")
    assert re.search(what, problem.what), problem.what


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("model.heads > '4'", "can never hold: model.heads is a number and '4' is a text: neither is larger"),
        ("model.heads != '4'", "model.heads is a number, never '4'"),
        ("not model.heads > '4'", "neither is larger"),
        ("model.heads == 4 or model.kv_heads == '4'", "model.kv_heads is a number, never '4'"),
        ("model.heads in [4, '8']", "model.heads is a number, never '8'"),
        ("model.heads != None", "model.heads is a number, never None"),
        ("model.qk_norm != 1", "model.qk_norm is True or False, never 1"),
        ("model.qk_norm < 1", "neither is larger"),
        ("platform.accelerator != 'gpu'", "platform.accelerator is one of 'cpu', .*, never 'gpu'"),
        ("platform.accelerator in ['cpu', 'gpu']", "never 'gpu'"),
        ("'gpu' != platform.accelerator", "never 'gpu'"),
        ("workload.dtype not in ['float16']", "one of 'float32', 'bfloat16', never 'float16'"),
        ("choice.step != 'traced'", "choice.step is one of .*, never 'traced'"),
        ("'sink' not in model.features", "model.features holds one of .*, never 'sink'"),
        ("1 not in platform.isa", "platform.isa holds a text, never 1"),
        ("platform.isa != 'avx2'", "a list is never equal to what is none"),
        ("platform.isa != [2]", "platform.isa holds a text, never 2"),
        ("not platform.isa > ['avx2']", "neither is larger"),
        ("platform.isa not in platform.isa", "the one can't be in the other"),
        ("'1' not in model.heads", "the one can't be in the other"),
        ("model.heads not in platform.name", "the one can't be in the other"),
        ("model.heads != model.model_type", "they are never equal"),
        ("1 < model.heads < '4'", "can never hold: model.heads is a number and '4' is a text"),
        ("model.heads", "model.heads is a number, and no condition by itself"),
        ("model.qk_norm or platform.isa", "platform.isa holds a text, and no condition by itself"),
        ("not choice.step", "choice.step is one of .*, and no condition by itself"),
    ],
)
def test_what_cannot_be_compared_is_a_problem_even_where_it_always_holds(condition: str, what: str) -> None:
    rows = read_seed()
    rows["experience"] = [experience("new", applies_to=condition)]
    (problem,) = lint(rows)
    assert (problem.table, problem.id) == ("experience", "new")
    assert re.search(what, problem.what), problem.what


@pytest.mark.parametrize(
    "condition",
    [
        "model.sliding_window != None and model.sliding_window > 4096.5",
        "model.sliding_window == model.max_positions or model.norm_eps < 1",
        "platform.accelerator not in ['cpu', 'hip'] and platform.accelerator != 'metal'",
        "'avx2' in platform.isa and platform.isa != [] and platform.isa != ('avx2', 'fma')",
        "platform.compiler == None or 'clang' in platform.compiler or platform.compiler in ['g++', 'c++']",
        "'attention-sinks' not in model.features and choice.step != 'eager' and model.qk_norm == False",
        "2 in model.eos_tokens or model.model_type < 'm' or platform.name in [model.model_type, 'x']",
        "1 < 2",
    ],
)
def test_what_can_be_compared_is_none(condition: str) -> None:
    rows = read_seed()
    rows["experience"] = [experience("new", applies_to=condition)]
    assert lint(rows) == []


@pytest.mark.parametrize("depth", [MOST_DEPTH - 1, MOST_DEPTH])
def test_a_condition_of_the_deepest_kind_is_looked_at_where_it_is_required(depth: int) -> None:
    """What a decision implies is `another option, or what this one requires`: one level more than the row itself."""
    deep = "not " * (depth - 1) + "workload.batch > 0"
    rows = read_seed()
    rows["contracts"] = [
        row.model_copy(update={"decision_requires": {"attention=torch": deep}}) if row.id == "attention" else row
        for row in rows["contracts"]
    ]
    assert {problem.id for problem in lint(rows)} <= {"attention-native", "setup-cuda"}


def test_conditions_that_other_rows_make_possible_are_no_problem(tmp_path: Path) -> None:
    seed = Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))
    layered = MODEL.format(
        tensors="[{name: 'w.{layer}', when: layer.mlp == 'experts'}]", more=FEATURE.format(when="''")
    )
    (seed / "models/new.yaml").write_text(layered)
    (seed / "contracts/new.md").write_text(CONTRACT.format(more="applies_to: \"'f' in model.features\"\n"))
    assert lint_files(seed) == []


def fragments_with(**changes: dict[str, object]) -> list[Problem]:
    """Problems of the seed with some fields of some fragments changed."""
    rows = read_seed()
    rows["fragments"] = [
        row.model_copy(update=changes.get(row.id.replace("-", "_"), {}))
        for row in rows["fragments"]
        if isinstance(row, Fragment)
    ]
    return lint(rows)


def test_two_fragments_of_one_rank_whose_conditions_overlap_are_a_problem_of_the_first() -> None:
    both = {"applies_to": "model.heads > 0"}
    (problem,) = fragments_with(layer_norms=both)
    assert (problem.table, problem.id) == ("fragments", "layer-norms")
    assert "layer-norms-qk" in problem.what
    assert fragments_with(layer_norms=both, layer_norms_qk={"rank": 1}) == [], "the rank decides"
    assert fragments_with(layer_norms=both, layer_norms_qk={"status": "draft"}) == [], "only one is used"
    undecided = {"applies_to": "model.heads > model.kv_heads"}
    assert fragments_with(layer_norms=undecided) == [], "nothing is claimed of what is not decided"


def test_what_a_decision_requires_keeps_fragments_apart() -> None:
    """`attention=native` requires an eager step: one fragment for it and one for compiled steps never meet."""
    apart = {"attention_torch": {"applies_to": "choice.step == 'compiled'"}}
    assert fragments_with(**apart) == []
    rows = read_seed()
    (attention,) = (row for row in rows["contracts"] if row.id == "attention")
    loose = attention.model_copy(update={"decision_requires": {}})
    rows["contracts"] = [loose if row.id == "attention" else row for row in rows["contracts"]]
    rows["fragments"] = [
        row.model_copy(update=apart["attention_torch"]) if row.id == "attention-torch" else row
        for row in rows["fragments"]
    ]
    assert [problem.id for problem in lint(rows)] == ["attention-native", "setup-cuda"]


def test_what_a_required_decision_requires_in_turn_counts_too() -> None:
    """`attention=native` asks for `linear=torch` here, and that for batches: one sequence never meets both."""
    cpu = "platform.accelerator == 'cpu'"
    changed = {
        "attention": {"decision_requires": {"attention=native": f"choice.linear == 'torch' and {cpu}"}},
        "linear": {"decision_requires": {"linear=torch": "workload.batch > 1", "linear=native": cpu}},
        "attention-torch": {"applies_to": f"workload.batch == 1 and {cpu}"},
    }
    rows = read_seed()
    for table in ("contracts", "fragments"):
        rows[table] = [row.model_copy(update=changed.get(row.id, {})) for row in rows[table]]
    assert lint(rows) == []
