"""Bad input, as a user meets it: exit status 2, one message that names what to change, nothing half-written.

Each case goes through the command line's own entry, in this process, where a traceback would be an exception.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckb.build import ensure_store
from ckb.errors import UserError
from ckb.store import Store
from swarm.cli import main
from swarm.paths import writing
from tests.unit.ckb.samples import CONFIG, write_checkpoint


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is copied for each case: building it takes longer than the case."""
    folder = tmp_path_factory.mktemp("home") / "store"
    ensure_store(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(stored, tmp_path / "store")
    write_checkpoint(tmp_path / "tiny")
    return tmp_path


def write_target(home: Path, **sections: Any) -> str:
    data = {"model": {"path": "tiny"}, "workload": {"prompt_tokens": [4], "new_tokens": [8]}, **sections}
    (home / "t.yaml").write_text(yaml.safe_dump(data))
    return "t.yaml"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must end with status 2, and returns its one message."""
    status = main(list(arguments))
    output = capsys.readouterr()
    assert status == 2, output
    assert "Traceback" not in output.err
    assert output.out == ""
    return output.err


def nothing_was_written(home: Path) -> bool:
    return not any((home / name).exists() for name in ("runs", "engines"))


def cut(home: Path) -> None:
    file = home / "tiny" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def no_header(home: Path) -> None:
    (home / "tiny" / "model.safetensors").write_bytes(b"\xff" * 50)


def change_config(**changes: Any) -> Callable[[Path], None]:
    return lambda home: (home / "tiny" / "config.json").write_text(json.dumps({**CONFIG, **changes})) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda home: (home / name).unlink()


CHECKPOINTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("no directory", lambda home: shutil.rmtree(home / "tiny"), "tiny is not there"),
    ("no config", remove("tiny/config.json"), "no config.json"),
    ("config is no JSON", lambda home: (home / "tiny/config.json").write_text("{") and None, "is no JSON"),
    ("no weights", remove("tiny/model.safetensors"), "neither model.safetensors nor"),
    ("no tokenizer", remove("tiny/tokenizer.json"), "no tokenizer.json"),
    ("truncated weights", cut, "is truncated: the header says"),
    ("weights without a header", no_header, "no whole safetensors file"),
    ("unknown model_type", change_config(model_type="mamba", architectures=["Mamba"]), "mamba"),
    ("missing tensors", change_config(num_hidden_layers=5), "tensors of a llama with 5 layers are missing"),
    ("other shapes", change_config(intermediate_size=16), "config.json makes it"),
]


@pytest.mark.parametrize(("spoil", "message"), [c[1:] for c in CHECKPOINTS], ids=[c[0] for c in CHECKPOINTS])
def test_a_checkpoint_that_cannot_be_used(
    spoil: Callable[[Path], None], message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(home)
    assert message in refused(capsys, "generate", write_target(home))
    assert nothing_was_written(home)


def test_no_target_is_written_for_a_checkpoint_that_cannot_be_used(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(home)
    assert "is truncated" in refused(capsys, "init", "tiny")
    assert not (home / "targets").exists()


TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"modle": 1}, "modle: unknown key"),
    ({"search": {"parallel": 0}}, "search.parallel"),
    ({"workload": {"prompt_tokens": [60], "new_tokens": [8]}}, "the model was made for 64"),
    ({"constraints": {"max_memory_gib": 0.01}}, "the model cannot fit"),
    ({"constraints": {"weights": "fp32"}}, "constraints.weights"),
    ({"hardware": {"pool": "farm"}}, "hardware.pool"),
    ({"hardware": {"count": 2}}, "hardware.count"),
    ({"objective": {"metric": "speed"}}, "known are ttft_ms"),
    ({"objective": {"metric": "decode_tok_s", "target": 1e12}}, "the roofline of"),
    ({"objective": {"metric": "tpot_ms", "direction": "max"}}, "objective.direction"),
    ({"user": {"checker": "python missing.py"}}, "user.checker"),
]


@pytest.mark.parametrize(("sections", "message"), TARGETS, ids=[t[1] for t in TARGETS])
def test_a_target_that_cannot_be_met(
    sections: dict[str, Any], message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "generate", write_target(home, **sections))
    assert nothing_was_written(home)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a CUDA device")
def test_a_pool_without_such_a_device(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "generate", write_target(home, hardware={"accelerator": "cuda"}))
    assert "1 cuda device(s) asked for, 0 there" in message
    assert nothing_was_written(home)


def test_files_and_names_that_are_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "can't read the Target none.yaml" in refused(capsys, "generate", "none.yaml")
    for command in ("resume", "status", "report"):
        assert "none is no run" in refused(capsys, command, "none")
    for command in ("serve", "chat"):
        assert "none is no engine" in refused(capsys, command, "none")
    assert "no table 'nothing'" in refused(capsys, "ckb", "show", "nothing")
    assert "version 99 was asked for" in refused(capsys, "ckb", "show", "models", "--at", "99")
    assert "'none' is neither one of smollm2-135m" in refused(capsys, "fetch", "none")


def test_words_that_are_no_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such command 'generat'" in refused(capsys, "generat")
    assert "TARGET.yaml" in refused(capsys, "generate")
    assert "--dry" in refused(capsys, "generate", "t.yaml", "--dry")


def test_a_home_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path / "missing"))
    message = refused(capsys, "status")
    assert "ENGINESMITH_HOME is" in message
    assert os.uname().nodename in message


def test_a_machine_without_git(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_target(home)
    monkeypatch.setenv("PATH", str(home))
    assert "git is needed" in refused(capsys, "generate", target)
    assert nothing_was_written(home)


def test_another_system_than_linux(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert refused(capsys, "doctor") == "enginesmith: Enginesmith runs on Linux and WSL2 only, and this is darwin\n"


def test_an_existing_target_is_not_overwritten(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "mine.yaml").write_text("mine")
    assert "mine.yaml is there already" in refused(capsys, "init", "tiny", "--output", "mine.yaml")
    assert (home / "mine.yaml").read_text() == "mine"


@pytest.fixture
def engine(home: Path) -> Path:
    folder = home / "engines" / "t" / "engine_1"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"tree": "0" * 64, "checkpoint": "tiny"}))
    return folder


def test_a_busy_port(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = refused(capsys, "serve", str(engine), "--port", port)
    assert f"can't listen on 127.0.0.1:{port}" in message
    assert "choose another --port" in message


def test_an_engine_without_its_checkpoint_or_with_a_broken_manifest(
    engine: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(home / "tiny")
    assert "has no config.json; name another one with --checkpoint" in refused(capsys, "serve", "t/engine_1")
    (engine / "manifest.json").write_text("{}")
    assert "manifest.json is no manifest" in refused(capsys, "chat", str(engine))


@pytest.mark.parametrize(
    ("against", "words"),
    [
        ("wllm", "there is no baseline 'wllm'; there are huggingface, vllm, sglang, tensorrt_llm, mlx_lm, a URL, or"),
        ("vllm", "there is no program 'vllm' on the PATH"),
        ("sh serve --port 8000", "the command must say where its port goes, as {port}"),
        ("http://", "a server's address is http://HOST:PORT/v1"),
    ],
)
def test_a_baseline_that_is_none(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], against: str, words: str
) -> None:
    assert "manifest.json does not say what the engine was made for: target: Field required" in refused(
        capsys, "bench", str(engine), "--against", against
    )
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    manifest = json.loads((engine / "manifest.json").read_text())
    target = {"model": {"path": "tiny"}, "workload": {"prompt_tokens": [4], "new_tokens": [8]}}
    (engine / "manifest.json").write_text(json.dumps(manifest | {"target": target}))
    assert words in refused(capsys, "bench", str(engine), "--against", against)


def test_an_engine_whose_server_ends_at_once_says_why(
    engine: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "server.py").write_text("raise SystemExit('no kernel for this machine')\n")
    assert main(["chat", str(engine)]) == 2
    error = capsys.readouterr().err
    assert "the engine's server ended with exit status 1:\nno kernel for this machine" in error
    assert "are not those that passed the gates" in error


def test_a_full_disk_and_a_folder_without_rights_become_messages(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"the disk is full: [\d.]+ GiB are left at .*ENGINESMITH_HOME"),
        writing(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError, match=r"can't write /x: Permission denied"), writing(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", "/x")
    with pytest.raises(OSError, match="Input/output error"), writing(tmp_path):
        raise OSError(errno.EIO, "Input/output error")


def test_a_full_disk_anywhere_ends_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)  # how the store publishes a version
    (home / "store").rename(home / "old")
    assert "the disk is full" in refused(capsys, "ckb", "build")


def test_defects_of_ours_surface_as_tracebacks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Store) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Store, "log", broken)
    with pytest.raises(ZeroDivisionError):
        main(["ckb", "log"])
