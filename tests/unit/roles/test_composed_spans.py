"""What the composer makes is no copy of a framework: each choice, both families, several seeds."""

from transformers import LlamaConfig, Qwen3Config

from ckb.fingerprints import copied_spans
from tests.unit.roles.composed import brief_of, compose, facts_of
from tests.unit.roles.test_composer_engines import TUNED, assignments


def test_no_composed_engine_holds_a_span_of_a_framework() -> None:
    llama = facts_of(LlamaConfig(architectures=["LlamaForCausalLM"], tie_word_embeddings=True))
    qwen3 = facts_of(Qwen3Config(architectures=["Qwen3ForCausalLM"], tie_word_embeddings=False), "fp32", "bfloat16")
    briefs = [brief_of(facts, change) for facts in (llama, qwen3) for change in assignments(facts)]
    briefs += [brief_of(facts, TUNED) for facts in (llama, qwen3)]
    briefs += [brief_of(facts, seed=seed) for facts in (llama, qwen3) for seed in range(5)]
    assert len(briefs) > 40
    trees = {tuple(answer.files.items()) for answer in map(compose, briefs)}
    assert len(trees) > 30, "the choices give different engines"
    for tree in trees:
        assert [str(span) for span in copied_spans(dict(tree))] == []
