"""Turns a llama-architecture GGUF file into a normal Hugging Face directory with bfloat16 weights.

Quantised tensors are dequantised and rounded to bfloat16, so the result keeps the rounding of the GGUF's format.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ckb.errors import UserError

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMED_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
CONTROL_TOKEN = 3
"""gguf's token type of special tokens."""


def convert(gguf_file: Path, folder: Path) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files into the existing `folder`."""
    reader = GGUFReader(gguf_file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama" or facts["tokenizer.ggml.model"] != "gpt2":
        raise UserError(f"{gguf_file.name}: only llama checkpoints with a byte-level BPE tokenizer can be converted")
    config = model_config(facts, tied=all(t.name != "output.weight" for t in reader.tensors))
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {k: config[k] for k in ("bos_token_id", "eos_token_id")})
    write_tokenizer(facts, folder)
    write_weights(reader.tensors, config, folder / "model.safetensors")


def model_config(facts: dict[str, Any], tied: bool) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM from the GGUF's metadata."""
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts.get("llama.attention.head_count_kv", heads),
        "head_dim": facts["llama.rope.dimension_count"],
        "vocab_size": facts["llama.vocab_size"],
        "max_position_embeddings": facts["llama.context_length"],
        # GGUF stores float32, so 1e-5 comes back as 9.999999747378752e-06.
        "rms_norm_eps": float(f"{facts['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": facts["llama.rope.freq_base"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def write_weights(tensors: list[ReaderTensor], config: dict[str, Any], path: Path) -> None:
    """model.safetensors in bfloat16, under Hugging Face's names and row order, one tensor in memory at a time.

    Written by hand (a length, a JSON header, the data): numpy has no bfloat16, and the library's way to pass raw
    bits differs between its releases.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        shape = shape_of(tensor)
        end = offset + 2 * math.prod(shape)
        header[hf_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            values = dequantize(tensor.data, tensor.tensor_type).reshape(shape_of(tensor))
            part = tensor.name.split(".")[-2]
            if part in heads:
                values = unpermute(values, heads[part])
            file.write(to_bfloat16(np.ascontiguousarray(values, dtype=np.float32)).tobytes())


def shape_of(tensor: ReaderTensor) -> list[int]:
    """Rows first; GGUF names the fastest axis first."""
    return [int(n) for n in tensor.shape[::-1]]


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in LAYER_NAMES or parts[3] != "weight":
        raise UserError(f"the GGUF holds a tensor {name!r} that no llama checkpoint has")
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"


def unpermute(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k [heads * head_dim, hidden] from pairs (2i, 2i+1) back to halves (i, i + head_dim/2).

    GGUF files of the llama family store them so that the rotary embedding works on neighbouring rows.
    """
    rows, hidden = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits (uint16), rounded to nearest, ties to even. Finite values only."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and special_tokens_map.json of a byte-level BPE vocabulary."""
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ", 1)) for line in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if facts["tokenizer.ggml.pre"] == "smollm" else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    types = facts["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {f"{name}_token": tokens[facts[f"tokenizer.ggml.{key}_token_id"]] for name, key in NAMED_TOKENS.items()}
    _write_json(folder / "special_tokens_map.json", named)
    _write_json(
        folder / "tokenizer_config.json",
        {
            **named,
            "add_bos_token": facts["tokenizer.ggml.add_bos_token"],
            "add_prefix_space": False,
            "chat_template": facts["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
            "model_max_length": facts["llama.context_length"],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
