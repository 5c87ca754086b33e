"""python -m gpu_actors.seeded FAMILY FOLDER [--seed N] [--shape 8b] [--weights bf16] [--sharpness X] [--device cuda]

Writes a checkpoint with random weights on which faults show, and a record beside it that says how much they show.

Plain random weights hide what an engine does wrong: attention is nearly uniform, so that a wrong position, theta or
window hardly changes anything; activations are far from eps; logits lie so close together that rounding decides the
order of half of them; texts never end; and where the embedding is the head too, every position says its own token
again. So queries and keys are scaled until attention is sharp, embeddings have the size of the root of eps, rows of the
output projection differ in length as those of trained models do, the end token's is longer, and half of the final
norm's weights are negative under a tied head.

How sharp attention must be is found in one pass over the checkpoint as it is drawn: queries and keys that are larger by
a factor are scores that are larger by its square. Then their tensors alone are written once more.
"""

import json
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich import print_json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks import prompts
from benchmarks.verification.found import Measures
from ckb.errors import UserError
from ckb.facts import Accelerator, Frozen, ModelFacts
from gpu_actors.drawn import SHARD_BYTES, Tensor, rewrite, write_tensors
from gpu_actors.faults import MOST_ENTROPY, Mathematics, entropies, measured

Family = Literal["llama", "qwen3"]
Weights = Literal["fp32", "bf16"]
MEASURED = 200_000_000
"""Parameters up to which a processor makes the float64 passes in seconds."""
SHARPNESS = [1.15**n for n in range(12)]
"""What is tried, from the least."""
ROUNDING = 0.99
"""Part of the entropy allowed that is aimed at: the scaled weights are rounded to their format again."""
VOCABULARY = 4096
"""Tokens that are learnt from text at most; the rest of a larger table are words that no text uses."""
RECORD = "seeded.json"
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
SHAPES: dict[str, dict[str, Any]] = {
    "4-layer llama": {"layers": 4, "hidden": 64, "intermediate": 96, "heads": 4, "kv_heads": 2, "head_dim": 16,
                      "vocab": 384, "max_positions": 512, "norm_eps": 1e-5, "rope_theta": 500_000.0,
                      "tied_head": True},
    "4-layer qwen3": {"layers": 4, "hidden": 64, "intermediate": 96, "heads": 4, "kv_heads": 2, "head_dim": 32,
                      "vocab": 384, "max_positions": 512, "norm_eps": 1e-6, "rope_theta": 1_000_000.0,
                      "tied_head": False},
    "8b qwen3": {"layers": 36, "hidden": 4096, "intermediate": 12_288, "heads": 32, "kv_heads": 8, "head_dim": 128,
                 "vocab": 151_936, "max_positions": 40_960, "norm_eps": 1e-6, "rope_theta": 1_000_000.0,
                 "tied_head": False},
    "8b llama": {"layers": 32, "hidden": 4096, "intermediate": 14_336, "heads": 32, "kv_heads": 8, "head_dim": 128,
                 "vocab": 128_256, "max_positions": 8192, "norm_eps": 1e-5, "rope_theta": 500_000.0,
                 "tied_head": False},
}  # fmt: skip
"""Size and family -> what is not the same in every checkpoint."""


class Seeded(Frozen):
    """The record of a checkpoint."""

    family: str
    seed: int
    sharpness: float
    """Factor on queries and on keys."""
    parameters: int
    weights: Weights
    measures: Measures | None
    """None: too large for a processor, and no device was given."""
    writing_s: float
    measuring_s: float
    """Of the search for the sharpness and of the measures."""


def facts_of(family: Family, size: str = "4-layer", weights: Weights = "fp32") -> ModelFacts:
    """The facts of a checkpoint that `write` makes. Raises UserError for an unknown size."""
    if f"{size} {family}" not in SHAPES:
        known = sorted({name.rpartition(" ")[0] for name in SHAPES})
        raise UserError(f"there is no shape {size!r}; the shapes are {', '.join(known)}")
    qwen = family == "qwen3"
    shape = SHAPES[f"{size} {family}"]
    facts = ModelFacts(
        model_type=family, architecture="Qwen3ForCausalLM" if qwen else "LlamaForCausalLM", rope_type="default",
        qk_norm=qwen, attention_bias=False, mlp_bias=False, activation="silu", sliding_window=None, weights=weights,
        parameters=0, bos_token=None, eos_tokens=(0,), **shape,
    )  # fmt: skip
    return facts.model_copy(update={"parameters": sum(math.prod(t.shape) for t in tensors(facts, 1.0))})


def tensors(m: ModelFacts, sharpness: float) -> Iterator[Tensor]:
    """Every tensor of a checkpoint. Queries and keys are scaled by `sharpness`: in the norms of their heads where there
    are such, since these undo what a projection scales."""
    small = math.sqrt(50 * m.norm_eps)  # the mean square of an embedding is fifty times eps, so that eps counts
    # what all layers of four add is about twice the embedding. More layers amplify each other's rounding: they add less
    added = 3.3 * small / math.sqrt(2 * m.layers) * (4 / m.layers) ** 0.625
    # the best of many rows lie closer together than the best of few: their lengths differ more. Where they differ still
    # more, a right engine's error in the longest row passes the bound on single logits, which knows one error for all
    lengths = min(0.4 * math.log(m.vocab) / math.log(384), 0.5)
    loud = 3.0 * (384 / m.vocab) ** 0.25
    wide, narrow = m.heads * m.head_dim, m.kv_heads * m.head_dim
    sharp, norms = (1.0, sharpness) if m.qk_norm else (sharpness, 1.0)

    def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return Tensor(name, (rows, columns), scale * columns**-0.5)

    def head(tensor: Tensor) -> Tensor:
        return replace(tensor, lengths=lengths, first=3.0 * (m.vocab / 384) ** 0.2)

    def norm(name: str, size: int, mean: float = 1.0) -> Tensor:
        return Tensor(name, (size,), 0.2 * mean, mean)

    table = small * math.sqrt(m.hidden)
    embedding = matrix("model.embed_tokens.weight", m.vocab, m.hidden, table)
    yield head(embedding) if m.tied_head else embedding
    for layer in (f"model.layers.{i}." for i in range(m.layers)):
        yield norm(f"{layer}input_layernorm.weight", m.hidden)
        yield matrix(f"{layer}self_attn.q_proj.weight", wide, m.hidden, sharp)
        yield matrix(f"{layer}self_attn.k_proj.weight", narrow, m.hidden, sharp)
        yield matrix(f"{layer}self_attn.v_proj.weight", narrow, m.hidden)
        yield matrix(f"{layer}self_attn.o_proj.weight", m.hidden, wide, added)
        if m.qk_norm:
            yield norm(f"{layer}self_attn.q_norm.weight", m.head_dim, norms)
            yield norm(f"{layer}self_attn.k_norm.weight", m.head_dim, norms)
        yield norm(f"{layer}post_attention_layernorm.weight", m.hidden)
        yield matrix(f"{layer}mlp.gate_proj.weight", m.intermediate, m.hidden)
        yield matrix(f"{layer}mlp.up_proj.weight", m.intermediate, m.hidden)
        yield matrix(f"{layer}mlp.down_proj.weight", m.hidden, m.intermediate, added)
    # of a token's own embedding, which is in its hidden state, signs leave nothing in its logit: otherwise it would win
    yield replace(norm("model.norm.weight", m.hidden, loud / table if m.tied_head else 1.0), signs=m.tied_head)
    if not m.tied_head:
        yield head(matrix("lm_head.weight", m.vocab, m.hidden, loud))


def write(
    folder: Path, facts: ModelFacts, *, seed: int = 0, sharpness: float = 0.0, device: Accelerator = "cpu",
    shard_bytes: int = SHARD_BYTES,
) -> Seeded:  # fmt: skip
    """Writes a Hugging Face directory and its record. `sharpness` 0: as much as is needed, which takes measuring.
    `device` measures, in float64; a processor does so up to MEASURED parameters.

    Raises UserError if the folder exists, if attention is too flat, if rounding decides too many positions, or if a
    large checkpoint is asked for without a sharpness and a device.
    """
    if folder.exists():
        raise UserError(f"{folder} exists: name a folder that does not")
    measure = device != "cpu" or facts.parameters <= MEASURED
    if not sharpness and not measure:
        raise UserError(f"{facts.parameters:,} parameters are too many to be measured on a processor, which does so up "
                        f"to {MEASURED:,}: give a sharpness, or a device")  # fmt: skip
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a call that was ended
    part.mkdir(parents=True)
    try:
        start = time.monotonic()
        factor, searching_s = lay(part, facts, seed, sharpness, device, shard_bytes)
        writing_s = time.monotonic() - start - searching_s
        measures = measured(part, facts, device) if measure else None
        record = Seeded(
            family=facts.model_type, seed=seed, sharpness=factor, parameters=facts.parameters,
            weights="bf16" if facts.weights == "bf16" else "fp32", measures=measures,
            writing_s=writing_s, measuring_s=time.monotonic() - start - writing_s,
        )  # fmt: skip
        (part / RECORD).write_text(record.model_dump_json(indent=2), encoding="utf-8")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)  # one that is not fit for use must not be found
    return record


def lay(
    folder: Path, facts: ModelFacts, seed: int, sharpness: float, device: Accelerator, shard_bytes: int
) -> tuple[float, float]:
    """Every file but the record. Returns the sharpness, and the seconds that it was searched for if it is 0."""
    (folder / "config.json").write_text(json.dumps(config(facts), indent=2), encoding="utf-8")
    write_tokenizer(folder, facts.vocab)
    half, drawn = facts.weights == "bf16", list(tensors(facts, sharpness or 1.0))
    write_tensors(folder, drawn, seed, half=half, shard_bytes=shard_bytes)
    if sharpness:
        return sharpness, 0.0
    start = time.monotonic()
    found = entropies(folder, facts, [Mathematics(scores=factor**2) for factor in SHARPNESS], device)
    searching_s = time.monotonic() - start
    sharp = [factor for factor, entropy in zip(SHARPNESS, found, strict=True) if entropy <= ROUNDING * MOST_ENTROPY]
    if not sharp:
        raise UserError(f"attention's entropy is {found[-1]:.2f} of its largest at a sharpness of {SHARPNESS[-1]:.2f}, "
                        f"at most {MOST_ENTROPY} is wanted: give more")  # fmt: skip
    rewrite(folder, list(tensors(facts, sharp[0])), drawn, seed, half=half, shard_bytes=shard_bytes)
    return sharp[0], searching_s


def config(m: ModelFacts) -> dict[str, Any]:
    return {
        "architectures": [m.architecture], "model_type": m.model_type, "hidden_size": m.hidden,
        "intermediate_size": m.intermediate, "num_hidden_layers": m.layers, "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads, "head_dim": m.head_dim, "vocab_size": m.vocab,
        "max_position_embeddings": m.max_positions, "rms_norm_eps": m.norm_eps, "rope_theta": m.rope_theta,
        "hidden_act": m.activation, "tie_word_embeddings": m.tied_head, "bos_token_id": None,
        "eos_token_id": m.eos_tokens[0], "torch_dtype": "bfloat16" if m.weights == "bf16" else "float32",
    }  # fmt: skip


def write_tokenizer(folder: Path, vocab: int) -> None:
    """Byte pairs learnt from the project's own texts, and a chat template. Every id has a text: a model with random
    weights says all of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab, VOCABULARY), special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([prompts.text(name) for name in prompts.languages()], trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    if (learnt := tokenizer.get_vocab_size()) < vocab:
        stored = json.loads(path.read_text(encoding="utf-8"))
        stored["model"]["vocab"] |= {f"Ġw{id}": id for id in range(learnt, vocab)}
        path.write_text(json.dumps(stored), encoding="utf-8")
    settings = {"chat_template": TEMPLATE, "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def main(
    family: Annotated[str, typer.Argument(help="llama or qwen3")],
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet")],
    seed: Annotated[int, typer.Option(help="Of all weights")] = 0,
    shape: Annotated[str, typer.Option(help="4-layer or 8b")] = "4-layer",
    weights: Annotated[str, typer.Option(help="fp32 or bf16")] = "bf16",
    sharpness: Annotated[float, typer.Option(help="Factor on queries and keys; 0: as much as is needed")] = 0.0,
    device: Annotated[str, typer.Option(help="cpu or cuda: what measures; a large checkpoint needs cuda")] = "cpu",
) -> None:
    """Write a checkpoint with random weights on which faults show."""
    try:
        for what, given, known in (
            ("family", family, get_args(Family)), ("weights", weights, get_args(Weights)),
            ("device", device, ("cpu", "cuda")),
        ):  # fmt: skip
            if given not in known:
                raise UserError(f"{what} is {' or '.join(known)}, not {given!r}")
        facts = facts_of(family, shape, weights)  # type: ignore[arg-type]
        record = write(folder, facts, seed=seed, sharpness=sharpness, device=device)  # type: ignore[arg-type]
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    print_json(record.model_dump_json())


if __name__ == "__main__":
    typer.run(main)
