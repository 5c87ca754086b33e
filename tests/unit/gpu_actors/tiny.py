"""Tiny checkpoints with random weights, and engines for them: the hand-made right one and edits of it."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks import prompts
from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.hashing import tree_sha256
from gpu_actors.jobs import EngineJob, VerifyJob

SOURCE = Path(__file__).parent / "tiny_engine"
CONTRACTS = (
    "setup", "linear", "rms-norm", "rope", "silu-mul", "attention", "kv-cache", "weights", "model", "sampler",
    "scheduler", "tokenizer", "engine", "server", "acceptance",
)  # fmt: skip
MAX_CONTEXT = 96
TEMPLATE = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}<assistant>"
"""As the hand-made engine writes a conversation."""


def model_facts(family: str) -> ModelFacts:
    qwen = family == "qwen3"
    return ModelFacts(
        model_type=family,
        architecture="Qwen3ForCausalLM" if qwen else "LlamaForCausalLM",
        layers=2,
        hidden=48,
        intermediate=80,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=384,
        max_positions=256,
        norm_eps=1e-5,
        rope_theta=50_000.0,
        rope_type="default",
        qk_norm=qwen,
        attention_bias=False,
        mlp_bias=False,
        activation="silu",
        sliding_window=None,
        tied_head=not qwen,
        weights="fp32",
        parameters=384 * 48 * (1 + qwen),
        bos_token=None,
        eos_tokens=(0,),
    )


def facts(family: str = "llama") -> Facts:
    platform = PlatformFacts(
        accelerator="cpu", name="test", count=1, cores=2, isa=(), memory_bytes=8 << 30, compiler="g++"
    )
    workload = WorkloadFacts(
        kind="single_stream",
        batch=1,
        max_prompt=64,
        max_new=MAX_CONTEXT - 64,
        dtype="float32",
        step="eager",
        serve="offline",
        decoding="greedy",
    )
    return Facts(model=model_facts(family), platform=platform, workload=workload)


def write_checkpoint(folder: Path, family: str) -> Path:
    """A Hugging Face directory: config.json, model.safetensors, tokenizer.json. Queries and keys are scaled so that
    attention is sharp, since a wrong position hardly shows in an average over everything."""
    m = model_facts(family)
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        return rng.normal(scale=scale * columns**-0.5, size=(rows, columns)).astype(np.float32)

    def norm(size: int) -> np.ndarray:
        return (1 + rng.normal(scale=0.2, size=size)).astype(np.float32)

    wide, narrow = m.heads * m.head_dim, m.kv_heads * m.head_dim
    tensors = {"model.embed_tokens.weight": matrix(m.vocab, m.hidden, 7.0), "model.norm.weight": norm(m.hidden)}
    if not m.tied_head:
        tensors["lm_head.weight"] = matrix(m.vocab, m.hidden, 3.0)
    for i in range(m.layers):
        layer = {
            "self_attn.q_proj": matrix(wide, m.hidden, 2.0),
            "self_attn.k_proj": matrix(narrow, m.hidden, 2.0),
            "self_attn.v_proj": matrix(narrow, m.hidden),
            "self_attn.o_proj": matrix(m.hidden, wide),
            "mlp.gate_proj": matrix(m.intermediate, m.hidden),
            "mlp.up_proj": matrix(m.intermediate, m.hidden),
            "mlp.down_proj": matrix(m.hidden, m.intermediate),
            "input_layernorm": norm(m.hidden),
            "post_attention_layernorm": norm(m.hidden),
        }
        if m.qk_norm:
            layer |= {"self_attn.q_norm": 2 * norm(m.head_dim), "self_attn.k_norm": 2 * norm(m.head_dim)}
        tensors |= {f"model.layers.{i}.{name}.weight": value for name, value in layer.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(m)))
    write_tokenizer(folder / "tokenizer.json", m.vocab)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def config(m: ModelFacts) -> dict[str, object]:
    return {
        "architectures": [m.architecture],
        "model_type": m.model_type,
        "hidden_size": m.hidden,
        "intermediate_size": m.intermediate,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "vocab_size": m.vocab,
        "max_position_embeddings": m.max_positions,
        "rms_norm_eps": m.norm_eps,
        "rope_theta": m.rope_theta,
        "hidden_act": m.activation,
        "tie_word_embeddings": m.tied_head,
        "bos_token_id": None,
        "eos_token_id": m.eos_tokens[0],
        "torch_dtype": "float32",
    }


def write_tokenizer(path: Path, vocab: int) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([prompts.text(name) for name in prompts.languages()], trainer)
    tokenizer.save(str(path))


def write_engine(folder: Path, family: str = "llama", edits: dict[str, tuple[str, str]] | None = None) -> Path:
    """The hand-made engine for a family, with `edits`: file -> (text, its replacement)."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    m = model_facts(family)
    numbers = {
        "LAYERS": m.layers, "HIDDEN": m.hidden, "HEADS": m.heads, "KV_HEADS": m.kv_heads, "HEAD_DIM": m.head_dim,
        "VOCAB": m.vocab, "NORM_EPS": m.norm_eps, "ROPE_THETA": m.rope_theta, "QK_NORM": m.qk_norm,
        "TIED": m.tied_head, "EOS_TOKENS": m.eos_tokens, "MAX_CONTEXT": MAX_CONTEXT, "THREADS": 1,
    }  # fmt: skip
    lines = ["import torch\n", "DTYPE = torch.float32", *(f"{name} = {value!r}" for name, value in numbers.items())]
    (folder / "facts.py").write_text("\n".join(lines) + "\n")
    for name, (old, new) in (edits or {}).items():
        text = (folder / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (folder / name).write_text(text.replace(old, new))
    return folder


def engine_job(tree_dir: Path, checkpoint: Path, family: str = "llama") -> EngineJob:
    return EngineJob(
        tree=tree_sha256(tree_dir), tree_dir=str(tree_dir), checkpoint=str(checkpoint), facts=facts(family)
    )


def verify_job(engine: EngineJob, **fields: object) -> VerifyJob:
    defaults: dict[str, object] = {
        "candidate": "c",
        "stages": ("execution", "model", "integration", "acceptance"),
        "levels": ("L0", "L1", "L2", "L3"),
        "contracts": CONTRACTS,
        "seed": 11,
        "deadline_s": 120.0,
    }
    return VerifyJob(engine=engine, **(defaults | fields))
