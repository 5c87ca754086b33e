"""Memory and roofline of a Target: found out, with the numbers, before anything is spent."""

import re
from typing import Any

import pytest

from benchmarks.roofline.floor import Machine
from ckb.errors import UserError
from ckb.facts import Facts
from swarm.feasibility import MARGIN, bound_of, check_memory, check_metric, facts_of
from swarm.target import Target, parse_target
from tests.unit.ckb.samples import FACTS, facts

MACHINE = Machine(read_gb_s=10.0, peak_gflop_s=100.0)


def target(**sections: Any) -> Target:
    return parse_target({"model": {"path": "models/x"}, **sections}, "t.yaml")


def bound(facts: Facts, **objective: Any) -> float:
    wanted = target(objective=objective, workload={"prompt_tokens": [64], "new_tokens": [32]})
    check_metric(wanted)
    value = bound_of(wanted, facts, MACHINE).value
    assert value is not None
    return value


def test_facts_take_the_longest_lengths_of_the_workload() -> None:
    found = facts_of(
        target(workload={"prompt_tokens": [8, 20], "new_tokens": [4, 2]}), FACTS.model, FACTS.platform
    ).workload
    assert (found.max_prompt, found.max_new, found.max_context) == (20, 4, 24)


def test_a_longer_context_than_what_is_measured_counts_for_memory_and_the_model_s_limit() -> None:
    asked = target(workload={"prompt_tokens": [8], "new_tokens": [4], "max_context": 50})
    found = facts_of(asked, facts(max_positions=50).model, FACTS.platform)
    assert (found.workload.max_prompt, found.workload.max_context) == (8, 50)
    assert check_memory(asked, found).kv_bytes == found.model.kv_bytes(50, "float32")
    with pytest.raises(UserError, match=r"max_context is 50 positions, the model was made for 49; shorten it"):
        facts_of(asked, facts(max_positions=49).model, FACTS.platform)
    with pytest.raises(UserError, match=r"max_context is 11, and 8 prompt_tokens with 4 new_tokens are 12"):
        target(workload={"prompt_tokens": [8], "new_tokens": [4], "max_context": 11})


def test_a_context_beyond_the_model_and_another_weight_format_are_contradictions() -> None:
    model = facts(max_positions=100, weights="bf16").model
    with pytest.raises(UserError, match=r"80 prompt_tokens and 40 new_tokens are 120 positions, .* made for 100"):
        facts_of(target(workload={"prompt_tokens": [80], "new_tokens": [40]}), model, FACTS.platform)
    wanted = target(workload={"prompt_tokens": [8], "new_tokens": [8]}, constraints={"weights": "fp32"})
    with pytest.raises(UserError, match=r"constraints.weights: fp32 asked for, the checkpoint stores bf16"):
        facts_of(wanted, model, FACTS.platform)


def test_memory_counts_weights_cache_and_workspace() -> None:
    small = facts(memory_bytes=8 << 30)
    found = check_memory(target(), small)
    model, workload = small.model, small.workload
    assert found.weight_bytes == model.weight_bytes
    assert found.kv_bytes == model.kv_bytes(workload.batch * workload.max_context, workload.dtype)
    assert found.needed_bytes > found.weight_bytes + found.kv_bytes
    assert found.allowed_bytes == 8 << 30
    assert check_memory(target(constraints={"max_memory_gib": 2}), small).allowed_bytes == 2 << 30


@pytest.mark.parametrize("limit", [{"max_memory_gib": 0.25}, {}])
def test_a_model_that_cannot_fit_is_refused_with_every_number(limit: dict[str, float]) -> None:
    crowded = facts(memory_bytes=200 << 20 if not limit else 8 << 30)
    with pytest.raises(UserError) as error:
        check_memory(target(constraints=limit), crowded)
    text = str(error.value)
    assert "the model cannot fit: weights" in text
    assert f"{min(crowded.platform.memory_bytes, 256 << 20) / 2**30:.2f} GiB are there" in text
    assert "constraints.max_memory_gib" in text


def test_the_bound_of_a_token_is_its_bytes_over_the_read_bandwidth() -> None:
    reads = FACTS.model.decode_bytes(64 + 16, FACTS.workload.dtype)
    assert bound(FACTS, metric="tpot_ms") == pytest.approx(reads / 10e9 * 1e3)
    assert bound(FACTS, metric="decode_tok_s") == pytest.approx(10e9 / reads)
    assert bound(FACTS, metric="startup_s") == 0.0


def test_the_bound_over_several_scenarios_is_their_geometric_mean() -> None:
    both = target(workload={"prompt_tokens": [16, 64], "new_tokens": [32]})
    singles = [target(workload={"prompt_tokens": [p], "new_tokens": [32]}) for p in (16, 64)]
    product = 1.0
    for single in singles:
        product *= bound_of(single, FACTS, MACHINE).value or 0.0
    assert bound_of(both, FACTS, MACHINE).value == pytest.approx(product**0.5)


def test_a_target_beyond_the_roofline_is_refused_with_both_numbers() -> None:
    best = bound(FACTS, metric="tpot_ms")
    bound(FACTS, metric="tpot_ms", target=best)
    bound(FACTS, metric="tpot_ms", target=best / MARGIN * 1.001)
    with pytest.raises(UserError, match=r"objective.target: tpot_ms of .* ms asked for, the roofline .* 10.0 GB/s"):
        bound(FACTS, metric="tpot_ms", target=best / MARGIN * 0.999)
    fastest = bound(FACTS, metric="decode_tok_s")
    bound(FACTS, metric="decode_tok_s", target=fastest)
    with pytest.raises(UserError, match=re.escape(f"{fastest:.4g} tokens/s (reads at 10.0 GB/s")):
        bound(FACTS, metric="decode_tok_s", target=fastest * 2)


OBJECTIVES: list[tuple[dict[str, Any], str]] = [
    ({"metric": "speed"}, r"objective.metric is 'speed'; known are ttft_ms, .*goodput"),
    ({"metric": "tpot_ms", "direction": "max"}, r"tpot_ms is better when it is smaller, max asked for; set it to min"),
    ({"metric": "decode_tok_s", "direction": "min"}, r"better when it is larger"),
    ({"metric": "tpot_ms", "slo": {"ttft_ms": 5}}, r"objective.slo is for the metric goodput_requests_s alone"),
    ({"metric": "goodput_requests_s"}, r"objective.slo bounds some of"),
    ({"metric": "user.accuracy"}, r"user.accuracy is printed by user.benchmark, which is not set"),
]


@pytest.mark.parametrize(("objective", "message"), OBJECTIVES)
def test_an_objective_that_contradicts_itself_is_refused(objective: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bound(FACTS, **objective)


def test_one_new_token_has_no_time_per_token() -> None:
    with pytest.raises(UserError, match="no time after the first"):
        check_metric(target(workload={"new_tokens": [1, 8]}))


def test_a_metric_of_the_users_benchmark_needs_a_direction_and_has_no_bound() -> None:
    user = {"benchmark": "python bench.py"}
    with pytest.raises(UserError, match=r"say whether user.speed is better small"):
        check_metric(target(objective={"metric": "user.speed"}, user=user))
    found = bound_of(target(objective={"metric": "user.speed", "direction": "min"}, user=user), FACTS, MACHINE)
    assert (found.value, found.direction) == (None, "min")
    bounded = target(objective={"metric": "user.speed", "direction": "min", "slo": {"ttft_ms": 5}}, user=user)
    with pytest.raises(UserError, match=r"objective.slo is for the metric goodput_requests_s alone"):
        check_metric(bounded)
