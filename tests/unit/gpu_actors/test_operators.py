"""Operator libraries are tried: what works is usable, and every way to fail is a row. Real packages, a real sandbox."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from ckb.facts import PlatformFacts
from ckb.operators import settled
from ckb.schemas.platforms import TriedOperator
from gpu_actors import operators
from gpu_actors.operators import Rules, try_operators
from gpu_actors.operators_cache import PASSING_S
from gpu_actors.operators_inputs import attention, draw, exact, product
from tests.unit.gpu_actors.broken_packages import BROKEN, install, install_flashinfer, install_mlx

PLATFORM = PlatformFacts(
    accelerator="cpu",
    name="test",
    count=1,
    cores=2,
    isa=(),
    memory_bytes=1 << 33,
    compiler="c++",
    architecture="x86_64",
)
RULES = Rules(deadline_s=60.0, memory_bytes=2 << 30)
SHORT = Rules(deadline_s=5.0, memory_bytes=2 << 30)

REASONS = {
    "raises": "RuntimeError: no kernel image is available",
    "hangs": "it hung: no answer within 5 s",
    "crashes": r"the process ended without an answer \(exit status -?\d+\)",
    "exits": r"the process ended without an answer \(exit status 0\)",
    "answers zeros": r"wrong numbers: [\d,]+ of 81,920 answers, the largest error .*",
    "answers a little wrong": r"wrong numbers: [\d,]+ of 81,920 answers, .*",
    "answers no numbers": "wrong numbers: 81,920 of 81,920 answers, the largest error nan, .*",
    "answers another shape": r"wrong shape: answers \[5, 1\], right is \[5, 16384\]",
    "has no memory": "MemoryError: tried to allocate 2 EiB",
    "spoils its process": "RuntimeError: half done",
    "takes all memory": "ended by the harness: its resident memory of .*",
}


@pytest.fixture(autouse=True)
def a_small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix grows with the machine's last-level cache; here it has one size everywhere."""
    monkeypatch.setattr("gpu_actors.operators_inputs.last_level_cache_bytes", lambda: 0)


def tried(cache: Path, *, rules: Rules = RULES, again: bool = False) -> TriedOperator:
    (row,) = try_operators(["mlx"], PLATFORM, cache, rules=rules, again=again)
    return row


@pytest.mark.parametrize(
    "behaviour", [pytest.param(b, marks=pytest.mark.slow) if b == "takes all memory" else b for b in REASONS]
)
def test_a_package_that_imports_and_whose_kernel_fails_is_installed_and_says_why(
    behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mlx(tmp_path / "site", behaviour, monkeypatch)
    start = time.monotonic()
    row = tried(tmp_path / "cache", rules=SHORT if behaviour == "hangs" else RULES)
    assert time.monotonic() - start < 60, "nothing may take longer than its deadline"
    assert row.state == "installed"
    assert re.fullmatch(REASONS[behaviour], row.why.split(";")[0]), row.why
    assert "\n" not in row.why
    assert row.libraries.keys() == {"python", "mlx"}
    assert row.libraries["mlx"] == "9.9"
    assert row.tried


def test_every_behaviour_of_the_broken_package_is_tried() -> None:
    assert REASONS.keys() | {"works"} == BROKEN.keys()


def test_a_kernel_that_answers_right_is_usable_and_is_not_paid_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mlx(tmp_path / "site", "works", monkeypatch)
    row = tried(tmp_path / "cache")
    assert row.state == "usable", row.why
    rate, took = row.speeds
    assert (rate.unit, took.unit) == ("GB/s", "ms")
    assert 0 < rate.value < 1000
    assert rate.value * took.value == pytest.approx(16384 * 4096 * 4 / 1e6, rel=1e-6)
    assert rate.what.startswith("matrix-vector product in float32, 16,384 x 4,096 (268 MB)")
    monkeypatch.setattr(operators, "Child", None)  # nothing can be started any more
    assert tried(tmp_path / "cache") == row
    with pytest.raises(TypeError):
        tried(tmp_path / "cache", again=True)


@pytest.mark.parametrize("behaviour", [pytest.param("spoils its process", marks=pytest.mark.slow), "crashes"])
def test_one_that_fails_takes_no_other_with_it(behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_mlx(tmp_path / "site", behaviour, monkeypatch)
    mlx, torch = try_operators(["mlx", "torch"], PLATFORM, tmp_path / "cache", rules=RULES)
    assert (mlx.state, torch.state) == ("installed", "usable"), torch.why


def test_another_installation_of_the_same_version_is_tried_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mlx(tmp_path / "site", "raises", monkeypatch)
    assert tried(tmp_path / "cache").state == "installed"
    time.sleep(0.01)
    install_mlx(tmp_path / "site", "works", monkeypatch)
    assert tried(tmp_path / "cache").state == "usable"


@pytest.mark.slow
def test_what_load_may_have_caused_is_believed_for_an_hour_and_what_was_raised_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time() + PASSING_S + 600
    for behaviour, lasting in (("exits", False), ("has no memory", False), ("raises", True)):
        install_mlx(tmp_path / behaviour, behaviour, monkeypatch)
        cache = tmp_path / f"cache {behaviour}"
        row = tried(cache)
        with monkeypatch.context() as patch:
            patch.setattr(operators, "Child", None)
            assert tried(cache) == row
            patch.setattr("gpu_actors.operators_cache.time.time", lambda: later)
            if lasting:
                assert tried(cache) == row
            else:
                with pytest.raises(TypeError):
                    tried(cache)


def test_a_damaged_row_of_the_cache_is_tried_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_mlx(tmp_path / "site", "raises", monkeypatch)
    first = tried(tmp_path / "cache")
    (file,) = (tmp_path / "cache" / "operators").glob("*.json")
    file.write_text(file.read_text()[:100])
    assert tried(tmp_path / "cache").why == first.why


def test_torch_and_a_compiler_are_usable_here_and_a_package_that_is_not_there_is_absent(tmp_path: Path) -> None:
    torch, cpp, mlx = try_operators(["torch", "cpp", "mlx"], PLATFORM, tmp_path, rules=RULES)
    assert (torch.state, cpp.state) == ("usable", "usable"), (torch.why, cpp.why)
    assert "MB), median of 5 runs" in torch.speeds[0].what
    assert cpp.libraries.keys() == {"python", "torch", "compiler"}
    assert (mlx.state, mlx.tried, mlx.libraries) == ("absent", "", {})
    assert settled(PLATFORM, (torch, cpp, mlx)).operators == ("torch", "cpp")


def test_a_compiler_that_can_build_nothing_is_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its headers or OpenMP are missing: it is on the PATH, and a child's build ends with an error."""
    broken = tmp_path / "bin" / "c++"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'kernel.cpp:1: fatal error: omp.h: no such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    real = operators.Confinement

    def first_on_the_path(**fields: object) -> object:
        path = {"PATH": f"{broken.parent}:/usr/bin:/bin", "CXX": str(broken)}
        return real(**{**fields, "environment": path, "read": (broken.parent,)})  # type: ignore[arg-type]

    monkeypatch.setattr(operators, "Confinement", first_on_the_path)
    torch, cpp = try_operators(["torch", "cpp"], PLATFORM, tmp_path / "cache", rules=RULES)
    assert cpp.state == "installed"
    assert "Error" in cpp.why
    facts = settled(PLATFORM, (torch, cpp))
    assert (facts.compiler, facts.operators) == (None, ("torch",))


def test_without_torch_nothing_that_stands_on_it_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "torch", "raise ImportError('libtorch.so: cannot open shared object')", monkeypatch)
    install_flashinfer(tmp_path / "site", "works", monkeypatch)
    torch, flashinfer = try_operators(["torch", "flashinfer"], PLATFORM, tmp_path / "cache", rules=RULES)
    assert torch.why == "ImportError: libtorch.so: cannot open shared object"
    assert flashinfer.state == "installed"
    assert flashinfer.why.startswith("it stands on torch, which is installed, not usable: ImportError")


@pytest.mark.slow
def test_attention_is_judged_like_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for behaviour, state in (("works", "usable"), ("answers zeros", "installed")):
        install_flashinfer(tmp_path / "site", behaviour, monkeypatch)
        (row,) = try_operators(["flashinfer"], PLATFORM, tmp_path / behaviour, rules=RULES)
        assert row.state == state, row.why
    assert row.why.startswith("wrong numbers")
    assert row.libraries.keys() == {"python", "flashinfer", "torch"}


def test_an_operator_that_no_kernel_of_ours_calls_is_untried_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Target may list any known library; that ours is not among them says nothing against it."""
    (row,) = try_operators(["cutlass"], PLATFORM, tmp_path)
    assert (row.state, row.why) == ("absent", "no package cutlass is installed where engines can import it")
    (tmp_path / "site" / "cutlass").mkdir(parents=True)
    (tmp_path / "site" / "cutlass" / "__init__.py").write_text("")
    (tmp_path / "site" / "cutlass-4.0.dist-info").mkdir()
    (tmp_path / "site" / "cutlass-4.0.dist-info" / "METADATA").write_text("Name: cutlass\nVersion: 4.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (row,) = try_operators(["cutlass"], PLATFORM, tmp_path)
    assert (row.state, row.why) == ("untried", "it is installed, and no kernel of ours calls cutlass")


def test_inputs_are_random_bfloat16_numbers_and_the_oracle_is_that_of_torch_in_float64() -> None:
    import torch

    random = np.random.default_rng(7)
    bits = draw(random, 1000)
    assert len(np.unique(bits)) > 500
    numbers = torch.tensor(exact(bits))
    assert (numbers == numbers.bfloat16().double()).all()

    problem = attention("cpu", 2, 1, random)
    q, k, v = (torch.tensor(exact(problem.arrays[name])) for name in "qkv")
    right = torch.nn.functional.scaled_dot_product_attention(
        q[:2, :, None], k.permute(1, 0, 2), v.permute(1, 0, 2), enable_gqa=True
    )
    assert np.allclose(right[:, :, 0], problem.right, rtol=1e-9, atol=1e-12)

    problem = product("cpu", 2, 1, random)
    w, x = (torch.tensor(exact(problem.arrays[name])) for name in "wx")
    assert np.allclose((x[:2] @ w.T).repeat(1, problem.copies), problem.right, rtol=1e-9, atol=1e-9)
    assert problem.read_bytes == problem.copies * w.numel() * 4
    assert not problem.wrong(problem.right.astype(np.float32))
    assert problem.wrong(np.roll(problem.right, 1, axis=0)), "an answer that was kept from another input is wrong"
