"""What `--against` names, and what the presets promise."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks import prompts
from benchmarks.baselines.presets import KEYS, PRESETS, UNKNOWN, arm_names, parse
from benchmarks.baselines.records import Baseline, Setting, differences
from benchmarks.metrics import METRICS
from ckb.errors import UserError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which the programs of all presets are, as files that do nothing."""
    for preset in PRESETS.values():
        program = tmp_path / preset.command[0]
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_command_that_gets_checkpoint_and_port(name: str, programs: Path) -> None:
    found = parse(name, tensor_parallel=2)
    assert found
    assert found.command[0] == str(programs / PRESETS[name].command[0])
    words = [*found.command, *map(str, PRESETS[name].config.values())]
    used = {key for key in KEYS for word in words if f"{{{key}}}" in word}
    assert {"checkpoint", "port"} <= used
    assert found.tensor_parallel == 2
    if name != "mlx_lm":  # has no flag for them, and its record says so
        assert {"dtype", "tensor_parallel", "context"} <= used
        assert set(PRESETS[name].graph) == {"eager", "graph"}
    assert all(way.body.get("ignore_eos") or way.logit_bias for way in PRESETS[name].ways), "lengths must be exact"


def test_words_after_a_preset_are_added_but_not_those_that_follow_the_candidate(programs: Path) -> None:
    found = parse("vllm --gpu-memory-utilization 0.3")
    assert found
    assert found.command[-2:] == ("--gpu-memory-utilization", "0.3")
    for words in ("vllm --dtype float16", "vllm --max-model-len=64", "sglang --tp-size 4"):
        with pytest.raises(UserError, match="follows the candidate here; name the whole command"):
            parse(words)


@pytest.mark.parametrize("name", PRESETS)
def test_no_spelling_of_a_flag_undoes_what_makes_a_preset_fair(name: str, programs: Path) -> None:
    preset = PRESETS[name]
    flags = {word for word in preset.command[len(preset.launch) :] if word.startswith("-")}
    assert set(preset.free) < flags
    for flag in flags - set(preset.free) | set(preset.undoing):
        spelt = {flag, f"{flag}=2", "--" + flag[2:].replace("-", "_"), "--" + flag[2:].replace("_", "-")}
        for word in (*spelt, flag[:-1]) if flag.startswith("--") else (flag, f"{flag}=2"):
            with pytest.raises(UserError, match=f"{word} would change how it follows the candidate"):
                parse(f"{name} --trust-remote-code {word} 2")
    for flag in preset.free:
        assert parse(f"{name} {flag} 0.25")


@pytest.mark.parametrize(
    "words",
    [
        *("vllm -tp 2", "vllm --tensor_parallel_size 2", "vllm --max_model_len 99", "vllm --enable-prefix-caching"),
        *("vllm --seed 3", "vllm --override-generation-config.temperature 1", "vllm -q fp8", "vllm -qfp8", "vllm -O0"),
        *("vllm --enforce_eager", "sglang --tp 2", "sglang --disable_cuda_graph", "tensorrt_llm --max-seq-len 9"),
    ],
)
def test_what_a_newcomer_and_a_cheat_would_try_is_refused(words: str, programs: Path) -> None:
    with pytest.raises(UserError, match=r"name the whole command, with \{port\} in it, to set it yourself"):
        parse(words)


def test_a_program_by_its_path_is_its_preset(tmp_path: Path) -> None:
    """A server has an environment of its own as a rule: its flags for a fair comparison must not be lost by that."""
    for program in ("vllm", "trtllm-serve", "mlx_lm.server", "python3.12", "other"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    for text, name, added in (
        (f"{tmp_path}/vllm", "vllm", ()),
        (f"{tmp_path}/vllm serve --swap-space 1", "vllm", ("--swap-space", "1")),
        (f"{tmp_path}/trtllm-serve", "tensorrt_llm", ()),
        (f"{tmp_path}/mlx_lm.server", "mlx_lm", ()),
        (f"{tmp_path}/python3.12 -m sglang.launch_server", "sglang", ()),
    ):
        found = parse(text)
        assert found
        assert found.preset == name
        assert found.command == (text.split()[0], *PRESETS[name].command[1:], *added)
    with pytest.raises(UserError, match="--seed would change"):
        parse(f"{tmp_path}/vllm --seed 3")
    whole = parse(f"{tmp_path}/vllm serve {{checkpoint}} --port {{port}} --seed 3")
    assert whole
    assert (whole.preset, whole.command[-1]) == ("", "3"), "a whole command is the user's own"
    with pytest.raises(UserError, match="must say where its port goes"):
        parse(f"{tmp_path}/python3.12 -m another.server")
    with pytest.raises(UserError, match="the path of a preset's program names the preset too"):
        parse(f"{tmp_path}/other")


def test_arms_have_names_that_say_what_they_are() -> None:
    texts = ["/x/bin/vllm", "vllm", "python3 -c 1 {port}", "python3 -m tiny.server {port}", "python serve.py {port}"]
    assert arm_names(texts, taken=("engine",)) == ["vllm", "vllm-2", "python3", "tiny.server", "serve.py"]
    assert arm_names(["http://127.0.0.1:1/v1", "engine {port}"], taken=("engine",)) == ["127.0.0.1:1", "engine-2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wllm", "no baseline 'wllm'; there are huggingface, vllm, sglang, tensorrt_llm, mlx_lm, a URL, or a command"),
        ("", "--against: .* name one of huggingface, vllm"),
        ("vllm 'a", "No closing quotation"),
        ("no-such-program serve --port {port}", "no program 'no-such-program' on the PATH"),
        (f"{sys.executable} serve --port 8000", r"must say where its port goes, as \{port\}"),
        ("http://", "a server's address is http://HOST:PORT/v1"),
        ("http://host:notaport/v1", "--against http://host:notaport/v1: Port could not be cast"),
        ("http://host/v1?key=1", "a server's address is"),
    ],
)
def test_what_names_no_baseline_is_refused_with_what_there_is(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse(text)


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no program 'vllm' on the PATH; install it or give its path"):
        parse("vllm")


@pytest.mark.parametrize(
    ("text", "url", "model"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1", ""),
        ("https://host/api/v1#org/Model", "https://host/api/v1", "org/Model"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1", ""),
    ],
)
def test_a_url_may_name_one_of_several_models(text: str, url: str, model: str) -> None:
    assert parse(text) == Baseline(url=url, model=model)


def test_a_baseline_is_a_command_or_a_url() -> None:
    for fields in ({}, {"url": "http://a/v1", "command": ("a",)}):
        with pytest.raises(ValidationError, match="a baseline is a command or a URL"):
            Baseline.model_validate(fields)


def test_a_difference_is_named_also_where_nobody_knows() -> None:
    usual = Setting(version="1", dtype="float32", tensor_parallel=1, graph="graph", asked="a pipe")
    assert differences(usual, usual) == ()
    other = usual.model_copy(update={"dtype": "bfloat16", "tensor_parallel": 2, "graph": None})
    assert differences(usual, other) == (
        "dtype bfloat16 (the candidate: float32)",
        "tensor parallel 2 (the candidate: 1)",
        "graph not known (the candidate: graph)",
    )


@pytest.mark.model
def test_a_prompt_for_a_server_that_takes_text_is_what_its_tokenizer_makes_of_the_text(smollm2: Path) -> None:
    without = [seed for seed in range(60) if prompts.as_text(smollm2, prompts.cut(smollm2, [64], seed)[0]) is None]
    assert without, "otherwise nothing has to be drawn again"
    for seed in without:
        (tokens,) = prompts.cut(smollm2, [64], seed, through_text=True)
        assert len(tokens) == 64
        assert prompts.as_text(smollm2, tokens)
    with_text = next(seed for seed in range(60) if seed not in without)
    assert prompts.cut(smollm2, [64], with_text, through_text=True) == prompts.cut(smollm2, [64], with_text)


def test_reasons_are_given_for_metrics_that_exist() -> None:
    assert {"peak_memory_bytes", "startup_s"} <= METRICS.keys()
    assert UNKNOWN.command == ("{command}",)
