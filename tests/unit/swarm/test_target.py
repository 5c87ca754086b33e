"""Reading a Target: defaults, every fault at once, and the text that reads back as the same Target."""

import json
from pathlib import Path

import pytest
import yaml

from ckb.hashing import sha256_json
from roles.settings import EnsembleSettings
from swarm.context import RunFiles, asked
from swarm.target import Target, TargetError, load_target, parse_target, target_from_text
from swarm.target_text import render_target

TARGETS = sorted((Path(__file__).parents[3] / "targets").glob("*.yaml"))
SMALLEST = {"model": {"path": "models/x"}}


def test_a_model_path_is_all_that_a_target_needs() -> None:
    target = parse_target(SMALLEST, "t.yaml")
    assert (target.hardware.accelerator, target.objective.metric, target.search.parallel) == ("cpu", "tpot_ms", 4)
    assert target.authors["default"].kind == "composer"


def test_an_author_may_be_a_bare_name() -> None:
    target = parse_target({**SMALLEST, "authors": {"default": "composer"}}, "t.yaml")
    assert target.authors["default"].kind == "composer"


def test_the_authors_of_a_target_read_back_with_everything_that_they_were_given() -> None:
    model = {"kind": "litellm", "model": "p/m", "temperature": 0.2, "test_runs": 2, "weight": 3}
    command = {"kind": "cli", "preset": "claude", "model": "m", "most_usd": 2, "environment": ["ANTHROPIC_API_KEY"]}
    authors = {"implementer": {"kind": "ensemble", "members": [model, command], "learn": False}, "judge": command}
    target = parse_target({**SMALLEST, "authors": authors}, "t.yaml")
    assert parse_target(yaml.safe_load(render_target(target)), "rendered") == target
    ensemble = target.authors["implementer"]
    assert isinstance(ensemble, EnsembleSettings)
    assert list(ensemble.arms) == ["p/m", "claude m"]
    assert (ensemble.learn, target.authors["judge"].kind) == (False, "cli")


@pytest.mark.parametrize("path", TARGETS, ids=lambda path: path.name)
def test_a_rendered_target_reads_back_as_the_same_target(path: Path) -> None:
    target = load_target(path)
    for comments in (True, False):
        text = render_target(target, comments=comments)
        assert parse_target(yaml.safe_load(text), "rendered") == target
        assert ("#" in text) == comments


def test_every_key_of_a_section_is_explained_or_obvious() -> None:
    text = render_target(parse_target(SMALLEST, "t.yaml"))
    for key in ("prompt_tokens", "max_memory_gib", "retries", "soft", "checker"):
        before = text[: text.index(f" {key}:")].splitlines()[-2]
        assert before.strip().startswith("#"), key


FAULTS: list[tuple[dict[str, object], str]] = [
    ({"objectve": {}}, r"objectve: unknown key; a Target has model, hardware, workload"),
    ({"workload": {"prompt_token": [1]}}, r"workload.prompt_token: unknown key; workload has kind, prompt_tokens"),
    ({"constraints": {"mode": {"stepp": 1}}}, r"constraints.mode.stepp: unknown key; constraints.mode has step, serve"),
    ({"search": {"parallel": 0}}, r"search.parallel: .* greater than or equal to 1, got 0"),
    ({"workload": {"prompt_tokens": [0]}}, r"prompt_tokens must lie between 1 and 1,000,000, got \[0\]"),
    ({"workload": {"new_tokens": [8, 8]}}, r"new_tokens names a length twice"),
    ({"workload": {"batch": 4}}, r"batch is 4: set it to 1, or kind to batch"),
    ({"hardware": {"accelerator": "tpu"}}, r"hardware.accelerator: .*'cpu' or 'cuda', got 'tpu'"),
    ({"budget": {"minutes": float("inf")}}, r"budget.minutes: .*finite"),
    ({"authors": {"default": "oracle"}}, r"authors.default: .*'oracle'"),
    ({"authors": {"default": {"kind": "cli"}}}, r"authors.default.most_usd: Field required"),
    (
        {"authors": {"default": {"kind": "cli", "most_usd": 1}}},
        r"authors.default: give either preset \(claude, codex, opencode, gemini\) or command",
    ),
    (
        {"authors": {"default": {"kind": "cli", "most_usd": 1, "command": "agent {prompt}"}}},
        r"command knows no \{prompt\}; its places are \{prompt_file\}, \{folder\} and \{model\}",
    ),
    (
        {"authors": {"default": {"kind": "cli", "most_usd": 1, "command": "agent"}}},
        r"command must name \{prompt_file\}",
    ),
    (
        {"authors": {"default": {"kind": "cli", "most_usd": 1, "preset": "vim"}}},
        r"authors.default.preset: .*'gemini', got 'vim'",
    ),
    (
        {"authors": {"default": {"kind": "cli", "most_usd": 1, "preset": "codex", "key": "sk-1"}}},
        r"authors.default.key: unknown key; authors.default has kind, preset, command, model, environment",
    ),
    (
        {"authors": {"judge": {"kind": "ensemble", "members": [{"kind": "composer"}, {"kind": "litellm"}]}}},
        r"authors.judge.members.1.model: Field required",
    ),
    (
        {"authors": {"judge": {"kind": "ensemble", "members": [{"kind": "composer", "model": "m"}] * 2}}},
        r"authors.judge.members.0.model: unknown key; authors.judge.members.0 has kind, weight",
    ),
    (
        {"authors": {"judge": {"kind": "ensemble", "members": [{"kind": "replay", "transcript": "t"}]}}},
        r"authors.judge.members.0: .*'replay'",
    ),
    ({"sources": False}, r"sources: .*'off', got False"),
    ({"sources": "on"}, r"sources: .*'off', got 'on'"),
    ({"operators": ["vllm"]}, r"operators: vllm is an inference framework"),
    ({"operators": ["torch", "mlx-lm"]}, r"operators: mlx_lm is an inference framework"),
    ({"operators": ["flash"]}, r"operators: flash is no operator library .*there are torch, triton, flash_attn, .*mlx"),
]


def test_a_key_that_is_there_twice_is_a_fault_at_any_depth() -> None:
    with pytest.raises(TargetError, match=r"the key 'model' is there twice, in lines 1 and 2"):
        target_from_text("model: {path: a}\nmodel: {path: b}\n", "t.yaml")
    with pytest.raises(TargetError, match=r"the key 'rounds' is there twice, in lines 2 and 2"):
        target_from_text("model: {path: a}\nsearch: {rounds: 1, rounds: 2}\n", "t.yaml")


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_a_fault_names_the_field_and_what_it_may_hold(change: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target({**SMALLEST, **change}, "t.yaml")


def test_operator_libraries_are_listed_by_either_spelling() -> None:
    listed = parse_target({**SMALLEST, "operators": ["torch", "flash-attn", "flashinfer", "mlx"]}, "t.yaml")
    assert listed.operators == ("torch", "flash_attn", "flashinfer", "mlx")


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(TargetError) as error:
        parse_target({"search": {"parallel": 0, "seed": -1}, "extra": 1}, "t.yaml")
    assert str(error.value).startswith("t.yaml has 4 fault(s):")
    assert "model: Field required" in str(error.value)


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_mapping_is_no_target(data: object) -> None:
    with pytest.raises(TargetError, match="a Target is a mapping with the keys model, hardware"):
        parse_target(data, "t.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("model: [")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, message in (("missing.yaml", "can't read"), ("broken.yaml", "no YAML"), ("binary.yaml", "can't read")):
        with pytest.raises(
            TargetError, match=f"{message}.*{name}" if message == "can't read" else f"{name} is {message}"
        ):
            load_target(tmp_path / name)


def test_a_relative_model_path_is_below_enginesmith_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    assert Target(model={"path": "models/x"}).checkpoint == tmp_path / "models/x"  # type: ignore[arg-type]
    assert Target(model={"path": "/opt/x"}).checkpoint == Path("/opt/x")  # type: ignore[arg-type]


def test_a_run_that_began_when_fewer_keys_were_known_asks_the_same(tmp_path: Path) -> None:
    """Every new key of a Target changes the hash of its whole resolved form."""
    files = RunFiles(tmp_path)
    target = parse_target(SMALLEST, "t.yaml")
    before = json.loads(target.model_dump_json(exclude={"budget"}))
    del before["authors"]["default"]["weight"]
    files.target.write_text(yaml.safe_dump({**before, "budget": {"minutes": 90}}))
    assert files.read_target().authors == target.authors
    assert files.asked_as_written() == sha256_json(before) != asked(files.read_target())
    files.target.write_text(yaml.safe_dump({**before, "search": {**before["search"], "rounds": 9}}))
    assert files.asked_as_written() != sha256_json(before)
