"""For each numerical gate an engine that it alone rejects, and the mathematics that its bound stands on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpu_actors import changed_checkpoint, checkpoint, single_precision
from gpu_actors.child import ChildFailure
from gpu_actors.gates import blas
from gpu_actors.gates.acceptance import MARGIN, tie_bands
from gpu_actors.gates.cases import log_softmax
from gpu_actors.gates.compare import ROUNDOFF, compare, rms, rounded
from gpu_actors.gates.decode import BURSTS, STEPS, decoded, k3, pieces
from gpu_actors.gates.distribution import SHARE, upper_bound
from gpu_actors.gates.execution import BOUNDS
from gpu_actors.gates.followed import MOST_GROUPS, dealt, groups
from gpu_actors.jobs import Verdict
from gpu_actors.reference import Evaluation
from gpu_actors.verifier import Verifier
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_contract_gates import composed, facts
from tests.unit.gpu_actors.test_contract_gates import verify as verify_composed

Edits = dict[str, tuple[str, str]]
UNSERVED = tuple(name for name in tiny.CONTRACTS if name != "server")  # its start takes as long as all the rest


class Mutant(NamedTuple):
    """An engine that only one gate sees to be wrong."""

    gate: str
    edits: Edits
    says: str = ""


LAST = "return self.model.head(self.model.forward(torch.tensor(tokens), KVCache(len(tokens)), 0))"
STEP = "return self.head(self.forward(torch.tensor([token]), cache, position))[0]"
MIXED = 'x = x + linear(mixed, w("self_attn.o_proj"))'
MUTANTS = {
    "a position between the samples": Mutant(
        "acceptance_top1",
        {
            "engine.py": (
                LAST,
                f"rows = {LAST[7:]}\n        if len(tokens) == 67:\n            rows[45] = rows[45].roll(1)\n"
                "        return rows",
            )
        },
        "first at position 45 of the sequence with a prompt of 3",
    ),
    "errors where they count": Mutant(
        "acceptance_divergence",
        {
            "model.py": (
                "        return logits\n",
                "        top = logits.topk(2, -1).values\n"
                "        return logits + 1e-5 * (logits == top[:, :1]) - 1e-5 * (logits == top[:, 1:])\n",
            )
        },
    ),
    "a late step": Mutant(
        "decode_prefill", {"model.py": (STEP, f"{STEP} * (1.05 if position > 60 else 1)")}, "nats at position"
    ),
    "a tensor of the first checkpoint": Mutant(
        "changed_weights",
        {
            "weights.py": (
                "    return Weights(tensors, tuple(stored))",
                '    tensors["model.norm.weight"] = KEPT.setdefault("norm", tensors["model.norm.weight"])\n'
                "    return Weights(tensors, tuple(stored))\n\n\nKEPT: dict[str, torch.Tensor] = {}",
            )
        },
        "the fault is among 1: model.norm.weight",
    ),
    "an end token that ends nothing": Mutant(
        "permuted_weights", {"engine.py": ("if token in ends or position", "if position")}, "end a text"
    ),
    "a row beyond the cursor": Mutant(
        "poison",
        {
            "cache.py": ("torch.empty(", "torch.zeros("),
            "model.py": (
                MIXED,
                "beyond = cache.held[1, layer, :, length : length + 1].sum() * (start > 0) * (len(x) == 1)\n"
                f"        {MIXED} + beyond",
            ),
        },
        "with 10000 in the cache",
    ),
    "every other cache": Mutant(
        "step_determinism",
        {
            "cache.py": (
                "    def __init__(self, capacity: int):\n",
                "    made = 0\n\n    def __init__(self, capacity: int):\n        KVCache.made += 1\n",
            ),
            "model.py": (STEP, f"{STEP} * (1 + 1e-6 * (cache.made % 2))"),
        },
        "two equal runs of step differ",
    ),
    "one answer to two equal prompts": Mutant(
        "ragged",
        {
            "engine.py": (
                "return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]",
                "return list({tuple(p): list(self.stream(p, max_new_tokens, ignore_eos)) for p in prompts}.values())",
            )
        },
        "4 prompts",
    ),
}
SLOW = {"an end token that ends nothing", "every other cache", "errors where they count"}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MUTANTS]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numeric")
    tiny.write_checkpoint(folder / "llama", "llama")
    return folder


def verify(work: Path, name: str, edits: Edits, **fields: object) -> Verdict:
    tree = tiny.write_engine(work / "trees" / name.replace(" ", "_"), "llama", edits)
    job = tiny.verify_job(tiny.engine_job(tree, work / "llama"), **({"contracts": UNSERVED} | fields))
    return Verifier(work / "cache").verify(job)


def lines(verdict: Verdict) -> list[str]:
    return [f"{gate.level} {gate.gate} {gate.status}: {gate.summary}" for gate in verdict.gates]


@pytest.fixture(scope="module")
def verdicts(work: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Verdict]]:
    """The mutants that are asked for, two at a time, once the reference's answers are kept."""
    chosen = [name for name in MUTANTS if any(name == n for n in asked_for(request))]
    if not chosen:
        yield {}
        return
    first, *others = chosen
    found = {first: verify(work, first, MUTANTS[first].edits)}
    with ThreadPoolExecutor(2) as pool:
        yield found | dict(
            zip(others, pool.map(lambda name: verify(work, name, MUTANTS[name].edits), others), strict=True)
        )


def asked_for(request: pytest.FixtureRequest) -> set[str]:
    return {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_gate_rejects_an_engine_that_all_others_let_through(verdicts: dict[str, Verdict], name: str) -> None:
    mutant, verdict = MUTANTS[name], verdicts[name]
    # what answers two equal prompts of a call once, the sentinels notice too: they ask one twice
    also = {"run_again", "sentinels"} if name == "one answer to two equal prompts" else {"run_again"}
    failures = [gate for gate in verdict.failures if gate.gate not in also]
    assert [gate.gate for gate in failures] == [mutant.gate], lines(verdict)
    assert mutant.says in failures[0].summary


BFLOAT16_MUTANTS = {
    "a product that is 0.3% too large": Mutant(
        "float32_execution",
        {"kernels.py": ("return F.silu(gate) * up", "return F.silu(gate) * up * 1.003")},
        "silu_mul",
    ),
    "a residual that is 0.2% too large": Mutant(
        "float32_model",
        {"model.py": ("x = x + mlp(", "x = x + 1.002 * mlp(")},
        "forward and head against float64",
    ),
    "a dtype in two places": Mutant(
        "float32_execution",
        {"kernels.py": ("    cosine, sine = (table", "    x = x.bfloat16()\n    cosine, sine = (table")},
        "rope",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if i else name for i, name in enumerate(BFLOAT16_MUTANTS)]
)
def test_what_drowns_in_bfloat16_shows_in_float32(name: str, tmp_path: Path) -> None:
    mutant, target = BFLOAT16_MUTANTS[name], facts("llama", compiler=None, dtype="bfloat16")
    files, rows = composed(target)
    for file, (old, new) in mutant.edits.items():
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    verdict = verify_composed(tmp_path, files, rows, target, stages=("execution", "model"))
    failures = [gate for gate in verdict.failures if gate.gate != "run_again"]
    assert [gate.gate for gate in failures] == [mutant.gate], lines(verdict)
    assert f"in float32, {mutant.says}" in failures[0].summary


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"linear": "torch", "attention": "native"}], ids=["compiled", "attention"])
def test_a_bfloat16_tree_in_cpp_is_tried_in_float32_whole(change: dict[str, Any], tmp_path: Path) -> None:
    target = facts("qwen3", dtype="bfloat16", step="eager" if change else "graph")
    files, rows = composed(target, change | ({"step": "eager"} if change else {}))
    verdict = verify_composed(tmp_path, files, rows, target, stages=("execution", "model"))
    assert verdict.passed, lines(verdict)
    assert {"float32_execution", "float32_model"} <= {gate.gate for gate in verdict.gates}


def test_a_copy_in_float32_has_the_definitions_of_float32_and_nothing_else_changed(tmp_path: Path) -> None:
    files, _ = composed(facts("qwen3", dtype="bfloat16", step="graph"))
    (tmp_path / "tree").mkdir()
    for name, text in files.items():
        (tmp_path / "tree" / name).write_text(text, encoding="utf-8")
    single_precision.written(tmp_path / "tree", tmp_path / "copy")
    for name, text in files.items():
        other = (tmp_path / "copy" / name).read_text("utf-8")
        changed = [pair for pair in zip(text.splitlines(), other.splitlines(), strict=False) if pair[0] != pair[1]]
        assert not changed or name == "kernels.py", changed
    kernels = (tmp_path / "copy" / "kernels.py").read_text("utf-8")
    for line in (
        "DTYPE = torch.float32",
        "typedef float kv_t;",
        "static inline float rounded(float x) { return x; }",
        "static inline vf load(const kv_t* p) { return *(const vf*)p; }",
        "static inline void store(kv_t* p, float x) { *p = x; }",
        "PACKED_DTYPE = torch.bfloat16",
    ):
        assert line in kernels, line


@pytest.mark.parametrize("text", ["X = 1\n", "DTYPE = torch.bfloat16\nDTYPE = torch.bfloat16\n", "DTYPE = pick()\n"])
def test_a_tree_without_its_one_constant_is_told_the_rule(text: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "kernels.py").write_text(text)
    with pytest.raises(ChildFailure, match="the one constant DTYPE of kernels"):
        single_precision.written(tmp_path / "tree", tmp_path / "copy")


def test_noise_changes_half_of_a_tensor_s_elements_by_an_eighth_to_a_quarter_and_no_other_tensor(
    tmp_path: Path,
) -> None:
    folder = tiny.write_checkpoint(tmp_path / "model", "llama")
    noise = changed_checkpoint.noise(np.random.default_rng(3))
    names = {"model.norm.weight", "model.layers.1.mlp.up_proj.weight"}
    found = changed_checkpoint.changed(
        folder, tmp_path / "other", lambda tensor, bits: noise(tensor, bits) if tensor.name in names else None
    )
    assert set(found) == names
    before, after = checkpoint.Checkpoint(folder), checkpoint.Checkpoint(tmp_path / "other")
    for name in before.names:
        ratio = np.abs(after.tensor(name) / before.tensor(name) - 1)
        moved = ratio > 0
        if name in names:
            assert 0.3 < moved.mean() < 0.7, name
            assert ratio[moved].min() >= 0.125 - 1e-6
            assert ratio[moved].max() <= 0.25 + 1e-6
        else:
            assert not moved.any(), name
    assert (tmp_path / "other" / "tokenizer.json").is_symlink()
    assert not (tmp_path / "other" / "model.safetensors").is_symlink()


def test_halving_and_rounding_of_stored_bits_are_exact() -> None:
    values = np.array([[1.5, -3.0, 0.0, 1e-38, 2.0**-126]], dtype=np.float32)
    tensor = changed_checkpoint.Stored("w", "F32", values.shape, 0, values.nbytes)
    halved = changed_checkpoint.scaled(tensor, values.view(np.uint32), 3).view(np.float32)
    np.testing.assert_array_equal(halved, [[1.5 / 8, -3.0 / 8, 0, 0, 0]])
    fine = np.array([1.0 + 2**-8, 1.0 + 3 * 2**-8, -3.14159], dtype=np.float32)
    rounded = changed_checkpoint.rounded_to_bfloat16(tensor, fine.view(np.uint32))
    assert rounded is not None
    np.testing.assert_array_equal(rounded.view(np.float32), [1.0, 1.0 + 2**-6, -3.140625])


def test_tensors_are_grouped_by_layer() -> None:
    names = ["lm_head.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"]
    assert groups([*names, "model.layers.11.mlp.up_proj.weight"]) == [names[:1], names[1:], [
        "model.layers.11.mlp.up_proj.weight"]]  # fmt: skip


def test_bursts_are_spread_over_the_whole_length_and_end_where_it_ends() -> None:
    rng = np.random.default_rng(0)
    asked = pieces(1024, rng)
    assert sum(map(sum, asked)) == 1024
    assert len(asked) == BURSTS
    where = decoded(asked)
    assert len(where) == BURSTS * STEPS
    assert where[-1] == 1023
    assert min(fed for fed, _ in asked) >= 1
    assert decoded(pieces(4352, None)) == list(range(1, 4352))
    assert decoded(pieces(BURSTS * STEPS, rng)) == list(range(1, BURSTS * STEPS))


def test_k3_is_half_of_the_squared_error_and_never_negative() -> None:
    small = 1e-4 * np.random.default_rng(1).normal(size=10_000)
    assert k3(small) == pytest.approx(0.5e-8, rel=0.05)
    assert k3(np.array([-3.0, -0.1])) > 0
    assert k3(np.zeros(3)) == 0


def test_the_bootstrap_s_upper_end_lies_above_the_mean_by_its_own_error() -> None:
    rng = np.random.default_rng(5)
    differences = rng.normal(0.0, 1.0, size=400)
    upper = upper_bound(np.split(differences, 20), rng)
    assert 0.5 / 20 < upper - differences.mean() < 3.0 / 20
    alike = [np.full(20, value) for value in rng.normal(0.0, 1.0, size=20)]  # 400 positions, 20 independent draws
    few = upper_bound(alike, rng) - np.concatenate(alike).mean()
    assert few > 0.5 / 20**0.5, "positions of one sequence that agree are no evidence of their number"
    assert upper_bound([np.array([0.0, 3.0])], rng) == 3.0, "too few positions for an interval: the worst one counts"


def test_a_tie_band_of_the_position_alone_refuses_right_engines_and_that_of_the_sequence_few() -> None:
    """Reference and engine have errors of the same law, which at one position are all large or all small together."""
    rng = np.random.default_rng(12)
    refused = {"position": 0, "sequence": 0, "wrong": 0}
    for _ in range(1000):
        gaps = rng.uniform(0.0, 0.4, size=80)
        reference, engine = 0.03 * np.exp(0.4 * rng.normal(size=(2, 80)))
        largest = reference * np.abs(rng.normal(size=(384, 80))).max(0)
        held = evaluation(largest)
        moved = engine * (rng.normal(size=80) - rng.normal(size=80))  # the difference of two logits' errors
        refused["position"] += int((moved - gaps > 0)[gaps > MARGIN * largest].any())
        refused["sequence"] += int((moved - gaps > 0)[gaps > tie_bands(held)].any())
        refused["wrong"] += int((8 * moved - gaps > 0)[gaps > tie_bands(held)].any())
    assert refused["position"] > 30, "of a thousand"
    assert 5 * refused["sequence"] < refused["position"]
    assert refused["wrong"] > 900


def evaluation(largest: np.ndarray[Any, Any]) -> Evaluation:
    """Of a sequence of which nothing is known but the reference's largest errors."""
    none = np.zeros(len(largest))
    return Evaluation(best=none, oracle_best=none, error_max=largest, error_rms=none, top=none, second=none,
                      following=none, divergence=none, rows=none)  # fmt: skip


def test_decoding_may_differ_more_where_likely_tokens_have_long_rows() -> None:
    """Two right ways to the same logits, each with the reference's own error, which grows with the row's length."""
    rng = np.random.default_rng(2)
    refused = {"root mean square": 0, "divergence": 0, "wrong": 0}
    for _ in range(20):
        lengths = np.exp(0.8 * rng.normal(size=2000))
        exact = lengths * rng.normal(size=(96, 2000))
        own, first, second = 0.02 * lengths * rng.normal(size=(3, 96, 2000))
        likely = log_softmax(exact)
        spread = np.sqrt(np.mean(own**2, axis=-1))
        rows = np.arange(96), likely.argmax(-1)
        ratios = (log_softmax(exact + 1.9 * first) - log_softmax(exact + 1.9 * second))[rows]
        old = float(np.mean(0.5 * (2 * MARGIN * spread) ** 2))
        divergence = (np.exp(likely) * (likely - log_softmax(exact + own))).sum(-1)
        allowed = max(old, (2 * MARGIN) ** 2 * float(divergence.mean()))
        refused["root mean square"] += k3(ratios) > old
        refused["divergence"] += k3(ratios) > allowed
        refused["wrong"] += k3(5 * ratios) > allowed

    assert refused["root mean square"] > 0
    assert refused["divergence"] == 0
    assert refused["wrong"] == 20


@pytest.mark.parametrize(
    ("ratio", "allowed"),
    [
        pytest.param(0.84, True, marks=pytest.mark.slow),
        pytest.param(1.0, True, marks=pytest.mark.slow),
        (1.22, True),
        (2.0, False),
    ],
)
def test_the_margin_of_divergence_admits_other_orders_of_summation_and_not_twice_the_error(
    ratio: float, allowed: bool
) -> None:
    """Other lawful orders have 0.84 to 1.22 times a reference's error. A margin of 10% refuses some of them."""
    rng = np.random.default_rng(4)
    refused = {SHARE: 0, 0.1: 0}
    for _ in range(20):
        ours, theirs = [], []
        for _ in range(8):
            exact = 3 * rng.normal(size=(16, 384))
            spread = 0.05 * np.exp(0.3 * rng.normal(size=(16, 1)))
            for errors, found in ((spread * ratio, ours), (spread, theirs)):
                first, second = log_softmax(exact), log_softmax(exact + errors * rng.normal(size=exact.shape))
                found.append((np.exp(first) * (first - second)).sum(-1))
        upper = upper_bound([a - b for a, b in zip(ours, theirs, strict=True)], rng)
        for share in refused:
            refused[share] += upper > share * np.concatenate(theirs).mean()
    assert refused[SHARE] == (0 if allowed else 20)
    assert refused[0.1] > 2 or ratio < 1


def test_float32_weights_that_a_bfloat16_engine_rounds_when_it_packs_them_are_no_fault() -> None:
    """The old inputs of `linear`: float32 values in the place of those that bfloat16 holds."""
    rng = np.random.default_rng(1)
    weight, x = rng.normal(scale=64**-0.5, size=(48, 64)), rounded(rng.normal(size=(9, 64)), "bfloat16")
    packed = rounded(weight, "bfloat16")
    u = ROUNDOFF["bfloat16"]

    def passes(stated: np.ndarray[Any, Any]) -> bool:
        expected, total = x @ stated.T, np.abs(x) @ np.abs(stated).T
        largest, spread = BOUNDS["linear"]["bfloat16"]
        bound = 8 * 2.0**-24 * total + largest * u * np.abs(expected)
        return compare("x", rounded(x @ packed.T, "bfloat16"), expected, bound, spread * u * rms(expected)).passed

    assert not passes(weight), "a right engine"
    assert passes(packed)


def test_log_softmax_is_finite_and_sums_to_one() -> None:
    rows = np.array([[1000.0, 0.0, -1000.0], [0.1, 0.2, 0.3]])
    found = log_softmax(rows)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1)
    np.testing.assert_allclose(found[1] - found[1, 0], rows[1] - rows[1, 0])


def test_products_run_on_as_many_threads_as_were_asked_for_and_on_the_old_number_afterwards() -> None:
    held = blas._library()
    if held is None:
        pytest.skip("numpy stands on another library than OpenBLAS here, which is left alone")
    before = held[0]()
    with blas.threads(1):
        assert held[0]() == 1
    assert held[0]() == before


def test_the_groups_that_are_changed_alone_are_few_and_hold_every_tensor_once() -> None:
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    layers = [
        f"model.layers.{i}.{part}" for i in range(30) for part in ("mlp.up_proj.weight", "input_layernorm.weight")
    ]
    parts = dealt(groups(names + layers))
    assert len(parts) == MOST_GROUPS
    assert sorted(name for part in parts for name in part) == sorted(names + layers)
    near = [{name.split(".")[2] for name in part if ".layers." in name} for part in parts]
    assert not any({str(i), str(i + 1)} <= found for found in near for i in range(30)), "neighbours may be exchanged"
    few = groups(names + layers[:4])
    assert dealt(few) == few, "a small model's layers are changed one by one"
