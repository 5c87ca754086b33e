"""Every assignment gives an engine that computes what Hugging Face computes, on real files with random weights."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from ckb.facts import Facts
from ckb.records import Choice
from ckb.space import Unsatisfiable, complete, decisions
from roles.author import AuthorError
from tests.unit.roles.composed import KNOWLEDGE, brief_of, compose, facts_of, imported

SIZES: dict[str, Any] = {
    "hidden_size": 72,  # no multiple of any vector: the scalar ends of the kernels must be right too
    "intermediate_size": 104,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 133,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 20_000.0},
}
TOKENS = [int(t) for t in torch.randint(0, 133, (41,), generator=torch.Generator().manual_seed(7))]
TUNED: dict[str, Choice] = {
    "step": "compiled",
    "kv_layout": "token_major",
    "weight_fusion": "fused",
    "cpp-products.STREAMS": 4,
    "cpp-products.PREFETCH": 1024,
    "linear-native.FEW": 1,
    "engine.PREFILL_CHUNK": 256,
}


class Checkpoint:
    """A folder with random weights, and the reference's answers on it."""

    def __init__(self, folder: Path, config: LlamaConfig | Qwen3Config, stored: torch.dtype):
        torch.manual_seed(11)
        self.folder, self.config, self.stored = folder, config, stored
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():  # a fresh model is so tame that an error would drown: spread everything
            for name, tensor in model.named_parameters():
                tensor.normal_(std=0.3).add_(1.0 if "norm" in name else 0.0)
        model.to(stored).save_pretrained(folder)

    def logits(self, dtype: torch.dtype) -> torch.Tensor:
        """The reference's logits [T, VOCAB] of TOKENS, computed in `dtype`."""
        model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=dtype)
        with torch.no_grad():
            logits: torch.Tensor = model(torch.tensor([TOKENS])).logits[0].float()
        return logits


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    config = LlamaConfig(**SIZES, tie_word_embeddings=True)
    return Checkpoint(tmp_path_factory.mktemp("llama"), config, torch.bfloat16)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    config = Qwen3Config(**SIZES, tie_word_embeddings=False)
    return Checkpoint(tmp_path_factory.mktemp("qwen3"), config, torch.float32)


def engine_logits(checkpoint: Checkpoint, folder: Path, change: Mapping[str, Choice], **facts: Any) -> torch.Tensor:
    """Teacher-forced logits of TOKENS, the second half by single steps after a prefill in two chunks."""
    weights = {torch.bfloat16: "bf16", torch.float32: "fp32"}[checkpoint.stored]
    package = imported(compose(brief_of(facts_of(checkpoint.config, weights, **facts), change)), folder)
    engine = package.engine.Engine.load(checkpoint.folder)
    whole = engine.logits(TOKENS)
    model, cache, half = engine.model, package.cache.KVCache(len(TOKENS)), len(TOKENS) // 2
    for tensor in (cache.k, cache.v):
        tensor.fill_(1e4)  # what lies beyond the cursor must never be read
    parts = [(0, 3), (3, half)]
    stepwise = [model.head(model.forward(torch.tensor(TOKENS[a:b]), cache, a)) for a, b in parts]
    stepwise += [model.step(TOKENS[at], cache, at)[None] for at in range(half, len(TOKENS))]
    scale = whole.abs().max()
    slack = 2e-5 if facts.get("dtype", "float32") == "float32" else 0.03
    assert (torch.cat(stepwise) - whole).abs().max() < slack * scale, f"steps differ from prefill with {dict(change)}"
    return whole


def assignments(facts: Facts) -> Iterator[dict[str, Choice]]:
    """Every combination of decisions that goes together."""
    contracts, fragments = KNOWLEDGE.contracts.values(), KNOWLEDGE.fragments.values()
    names = decisions(contracts)
    for values in itertools.product(*names.values()):
        with contextlib.suppress(Unsatisfiable):
            complete(change := dict(zip(names, values, strict=True)), contracts, fragments, facts)
            yield change


def test_all_assignments_compute_the_logits_of_hugging_face(llama: Checkpoint, tmp_path: Path) -> None:
    expected, made = llama.logits(torch.float32), 0
    for change in assignments(facts_of(llama.config)):
        logits = engine_logits(llama, tmp_path, change)
        made += 1
        error = (logits - expected).abs().max() / expected.abs().max()
        assert error < 1e-5, f"{change}: relative error {error:.1e}"
    assert made == 20, "4 pairs of operators in an eager step or the compiled step, 2 layouts, 2 ways to join weights"


def test_tuned_kernels_and_head_norms_untied_heads_float32_weights(qwen3: Checkpoint, tmp_path: Path) -> None:
    expected = qwen3.logits(torch.float32)
    for change, isa in (
        (TUNED, ("avx2",)),
        ({**TUNED, "cpp-vectors.LANES": 16}, ("avx2", "avx512f")),
        ({"linear": "torch"}, ("avx2",)),
    ):
        logits = engine_logits(qwen3, tmp_path, change, isa=isa)
        assert (logits - expected).abs().max() < 1e-5 * expected.abs().max(), change


@pytest.mark.parametrize("change", [{"linear": "torch"}, TUNED], ids=["plain", "tuned"])
def test_bfloat16_engines_are_as_near_to_float32_as_hugging_face_is(
    change: dict[str, Choice], llama: Checkpoint, tmp_path: Path
) -> None:
    exact, reference = llama.logits(torch.float32), llama.logits(torch.bfloat16)
    logits = engine_logits(llama, tmp_path, change, dtype="bfloat16")
    own, theirs = (logits - exact).pow(2).mean().sqrt(), (reference - exact).pow(2).mean().sqrt()
    assert own < 1.2 * theirs, f"error {own:.4f} against the reference's {theirs:.4f}"


def test_without_a_compiler_an_engine_is_made_of_torch_alone(qwen3: Checkpoint, tmp_path: Path) -> None:
    answer = compose(brief_of(facts_of(qwen3.config, "fp32", compiler=None)))
    assert "ctypes" not in answer.files["kernels.py"]
    with pytest.raises(AuthorError, match="can't be made together"):
        compose(brief_of(facts_of(qwen3.config, "fp32", compiler=None), {"step": "compiled"}))


def test_generation_stops_at_an_end_token_and_refuses_what_does_not_fit(llama: Checkpoint, tmp_path: Path) -> None:
    package = imported(compose(brief_of(facts_of(llama.config), {"linear": "torch"})), tmp_path)
    engine = package.engine.Engine.load(str(llama.folder))
    free = engine.generate([TOKENS[:9], TOKENS[:1]], 20, ignore_eos=True)
    assert [len(tokens) for tokens in free] == [20, 20]
    package.engine.EOS_TOKENS = (free[0][4],)
    first = free[0].index(free[0][4])
    assert engine.generate([TOKENS[:9]], 20) == [free[0][: first + 1]], "the end token is included, nothing after it"
    for prompt, count, message in (([], 5, "0 tokens"), ([1] * 124, 5, "at most 123"), ([133], 5, "0 and 132")):
        with pytest.raises(ValueError, match=message):
            engine.stream(prompt, count)
    with pytest.raises(ValueError, match="at least 1"):
        engine.stream([1], 0)
