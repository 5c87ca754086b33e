"""Rows of the models table against checkpoints that transformers writes: each tensor is known, none is missing."""

from pathlib import Path
from typing import Any

import pytest

from ckb.checkpoint import Checkpoint, read_checkpoint
from tests.unit.ckb.samples import families

pytestmark = pytest.mark.slow

TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
HYBRID_MOE = TEXT | LINEAR | EXPERTS | {"shared_expert_intermediate_size": 24}
LATENT = {"q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 7}
DEEPSEEK = {key: value for key, value in TEXT.items() if key != "head_dim"} | {
    "num_key_value_heads": 4,
    "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
    "n_shared_experts": 2, "first_k_dense_replace": 1,
}  # fmt: skip
OLMO = TEXT | {"head_dim": 8, "attention_bias": True, "linear_key_head_dim": 6, "linear_value_head_dim": 6}
"""Keys as wide as values: transformers cuts the joined convolution into three equal parts when it writes."""
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
}  # fmt: skip
PIXTRAL = {
    "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "head_dim": 8,
}  # fmt: skip
QWEN_TOWER = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32,
    "num_position_embeddings": 16,
}  # fmt: skip

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", TEXT | {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", TEXT),
    "mistral3": (
        "Mistral3Config",
        "Mistral3ForConditionalGeneration",
        {"text_config": TEXT | {"model_type": "mistral"}, "vision_config": PIXTRAL},
    ),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**TEXT, "head_dim": 8}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", TEXT | {"attention_bias": True}),
    "qwen3-moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", TEXT | EXPERTS | {"mlp_only_layers": [1]}),
    "qwen3-moe-stepped": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", TEXT | EXPERTS | {"decoder_sparse_step": 2}),
    "gemma3-text": ("Gemma3TextConfig", "Gemma3ForCausalLM", TEXT | {"attention_bias": True}),
    "gemma3": (
        "Gemma3Config",
        "Gemma3ForConditionalGeneration",
        {"text_config": TEXT | {"model_type": "gemma3_text"}, "vision_config": SIGLIP, "mm_tokens_per_image": 4},
    ),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM", TEXT | {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "qwen3-5-text": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", TEXT | LINEAR | {"attention_bias": True}),
    "qwen3-5": (
        "Qwen3_5Config",
        "Qwen3_5ForConditionalGeneration",
        {"text_config": TEXT | LINEAR | {"model_type": "qwen3_5_text"}, "vision_config": QWEN_TOWER},
    ),
    "qwen3-5-moe-text": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", HYBRID_MOE),
    "qwen3-5-moe": (
        "Qwen3_5MoeConfig",
        "Qwen3_5MoeForConditionalGeneration",
        {"text_config": HYBRID_MOE | {"model_type": "qwen3_5_moe_text"}, "vision_config": QWEN_TOWER},
    ),
    "olmo-hybrid": ("OlmoHybridConfig", "OlmoHybridForCausalLM", OLMO),
    "deepseek-v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", DEEPSEEK | LATENT | {"attention_bias": True}),
    "deepseek-v3-full-queries": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        DEEPSEEK | LATENT | {"q_lora_rank": None},
    ),
}


def written(folder: Path, name: str) -> Checkpoint:
    """What we read of a tiny checkpoint that transformers made."""
    import torch
    import transformers

    config_class, model_class, fields = MODELS[name]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**fields))
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return read_checkpoint(folder, families())


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_a_checkpoint_is_named_by_the_row(tmp_path: Path, name: str) -> None:
    found = written(tmp_path, name)
    assert found.unmapped == ()
    assert found.tensors
    nested = "text_config" in MODELS[name][2]
    assert bool(found.ignored) == nested
    assert ("text-config" in found.facts.features) == nested
