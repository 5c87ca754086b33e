"""Whether predicates can hold together: never is certain, possible has a witness, and the rest is not decided."""

import random

import pytest

from ckb.predicate import Predicate, PredicateError
from ckb.satisfiable import MOST_ALTERNATIVES, satisfiable

DOMAINS = {
    "choice.a": ("x", "y"),
    "choice.n": (1, 2, 4),
    "model.features": ("sinks", "window"),
    "layer.mlp": ("dense", "experts"),
}


@pytest.mark.parametrize(
    "texts",
    [
        ("",),
        ("model.heads > 1 and model.heads < 3",),
        ("model.heads < -5",),
        ("-3 < model.heads < -1",),
        ("model.heads != 0 and model.heads != 1 and model.heads != 2",),
        ("model.norm_eps > 1e-6 and model.norm_eps < 1.1e-6",),
        ("model.qk_norm", "not model.mlp_bias"),
        ("not (model.qk_norm and model.mlp_bias)", "model.qk_norm"),
        ("model.sliding_window == None",),
        ("model.sliding_window and model.sliding_window > 4096",),
        ("'H' in platform.name", "not 'H100' in platform.name", "'200' in platform.name"),
        ("platform.name != 'x'",),
        ("'avx2' in platform.isa and 'avx512f' not in platform.isa",),
        ("platform.isa",),
        ("model.features and 'sinks' not in model.features",),
        ("'sinks' in model.features and 'window' in model.features",),
        ("choice.a == 'x'", "choice.n > 2"),
        ("layer.mlp != 'dense'",),
        ("workload.max_context > 1024 and workload.max_context <= 1025",),
        ("model.model_type in ['1', '2', '3', '4', '5', '6', '7', '8']", "model.model_type != '1'"),
        ("platform.isa == ['avx2', 'fma']", "'fma' in platform.isa"),
        ("model.features == ()",),
        ("['sinks'] == model.features", "model.features != []"),
        ("platform.isa != ['avx2']", "'avx2' in platform.isa"),
        ("not model.sliding_window > 4096", "model.sliding_window == None"),
    ],
)
def test_what_some_facts_meet_is_possible(texts: tuple[str, ...]) -> None:
    assert satisfiable(*texts, domains=DOMAINS) is True


@pytest.mark.parametrize(
    "texts",
    [
        ("model.heads == 1 and model.heads == 2",),
        ("model.heads > 1 and model.heads < 2",),
        ("model.heads > 3", "model.heads < 4 and model.heads != 3"),
        ("model.qk_norm", "not model.qk_norm"),
        ("not (model.qk_norm or model.mlp_bias)", "model.qk_norm or model.mlp_bias"),
        ("model.sliding_window == None", "model.sliding_window > 4096"),
        ("model.norm_eps > 1e-5 and model.norm_eps < 1e-6",),
        ("platform.name == 'x' and 'y' in platform.name",),
        ("'avx2' in platform.isa and 'avx2' not in platform.isa",),
        ("'another' in model.features",),
        ("choice.a == 'x'", "choice.a == 'y'"),
        ("choice.a != 'x' and choice.a != 'y'",),
        ("choice.n == 3",),
        ("choice.n == '1'",),
        ("workload.dtype == 'float16'",),
        ("model.heads == '4'",),
        ("layer.mlp == 'moe'",),
        ("False",),
        ("1 == 2 or model.heads > 1 and model.heads < 1",),
        (
            "model.weights == 'bf16' or workload.dtype == 'bfloat16'",
            "model.weights == 'fp32'",
            "workload.dtype == 'float32'",
        ),
        ("model.model_type in ['1', '2', '3', '4', '5', '6', '7', '8']", "model.model_type == '9'"),
        ("model.heads > model.kv_heads", "model.qk_norm and not model.qk_norm"),
        ("platform.isa == ['avx2']", "'fma' in platform.isa"),
        ("model.features == ['another']",),
        ("platform.isa == []", "platform.isa"),
    ],
)
def test_what_no_facts_meet_is_never(texts: tuple[str, ...]) -> None:
    assert satisfiable(*texts, domains=DOMAINS) is False


@pytest.mark.parametrize(
    "texts",
    [
        ("model.heads > model.kv_heads", "model.heads < model.kv_heads"),
        ("model.model_type < 'm'",),
        ("platform.isa < ['m']",),
        (" and ".join(f"'{n}' not in platform.name" for n in range(20)),),
        (" and ".join(f"(model.heads == {n} or model.heads == {-n})" for n in range(1, 14)),),
    ],
)
def test_what_asks_for_too_much_is_not_decided(texts: tuple[str, ...]) -> None:
    assert MOST_ALTERNATIVES < 2**13
    assert satisfiable(*texts, domains=DOMAINS) is None


def test_a_predicate_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(PredicateError, match="does not parse"):
        satisfiable("model.heads ==")


class Place:
    """Three facts."""

    def __init__(self, heads: int, window: int | None, isa: tuple[str, ...]):
        self._facts = {"model.heads": heads, "model.sliding_window": window, "platform.isa": isa}

    def lookup(self, path: str) -> int | tuple[str, ...] | None:
        return self._facts[path]


PARTS = (
    *("model.heads > 2", "model.heads == 3", "not model.heads", "model.heads in [1, 3]", "2 <= model.heads < 4"),
    *(
        "model.sliding_window == None",
        "model.sliding_window != None",
        "model.sliding_window",
        "model.sliding_window == 3",
    ),
    *("'a' in platform.isa", "'b' not in platform.isa", "platform.isa"),
)


def drawn(rng: random.Random, depth: int = 0) -> str:
    if depth > 2 or rng.random() < 0.3:
        return rng.choice(PARTS)
    one, other = drawn(rng, depth + 1), drawn(rng, depth + 1)
    return rng.choice((f"({one} and {other})", f"({one} or {other})", f"not ({one})"))


@pytest.mark.parametrize("seed", range(4))
def test_any_predicate_is_decided_as_trying_every_small_machine_decides_it(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    places = [
        Place(heads, window, isa)
        for heads in range(-1, 6)
        for window in (None, 0, 1, 3, 9)
        for isa in ((), ("a",), ("b",), ("a", "b"), ("c",))
    ]
    seen = set()
    for _ in range(60):
        text = " and ".join(drawn(rng) for _ in range(rng.randrange(1, 4)))
        expected = any(Predicate(text).holds(place) for place in places)
        assert satisfiable(text) is expected, text
        seen.add(expected)
    assert seen == {True, False}
