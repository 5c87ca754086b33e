"""The command line itself: what it imports, what it prints, how it ends."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckb.store import Store
from swarm.cli import main
from swarm.commands.run import resumable
from swarm.target import load_target
from tests.unit.ckb.samples import experience, write_checkpoint
from tests.unit.roles.agents import program

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "ray", "litellm", "transformers", "pyarrow", "numpy", "git", "rich", "httpx", "pydantic")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.delenv("ENGINESMITH_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_starts_without_any_heavy_import() -> None:
    script = (
        f"import sys; from swarm.cli import main; main(['--help']); print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in (
        "init",
        "generate",
        "resume",
        "status",
        "budget",
        "pause",
        "unpause",
        "stop",
        "steer",
        "report",
        "serve",
        "chat",
        "verify",
        "bench",
        "blame",
        "fetch",
        "doctor",
        "skills",
        "mcp",
    ):
        assert f"\n  {command} " in done.stdout
    assert "..." not in done.stdout.split("Commands:")[1], "a command's summary is longer than its line"


def test_the_knowledge_base_is_built_shown_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ckb", "build"]) == 0
    assert capsys.readouterr().out.startswith("version 1 of ")
    assert main(["ckb", "build"]) == 0
    assert capsys.readouterr().out == "version 1 holds the seed already\n"
    for command, expected in (
        (["ckb", "log"], "contracts +"),
        (["ckb", "show"], "test_contracts"),
        (["ckb", "show", "models"], "llama"),
        (["ckb", "show", "test_contracts"], "acceptance_greedy"),
        (["ckb", "show", "test_contracts", "acceptance_greedy"], '"id": "acceptance-greedy"'),
        (["ckb", "verify"], "every file is as its manifest says"),
        (["ckb", "lint"], "no problems"),
        (["ckb", "lint", "--seed"], "no problems"),
        (["ckb", "diff", "0", "1"], "added"),
        (["ckb", "diff", "0", "1", "--json"], '"change": "added"'),
        (["ckb", "blame", "models", "llama"], "version 1, "),
        (["ckb", "export", "out"], " files in out"),
        (["ckb", "export", "out", "--at", "1"], " files in out"),
        (["ckb", "export", "again", "--seed"], " files in again"),
    ):
        assert main(command) == 0, command
        assert expected in capsys.readouterr().out, command
    assert Path("out/contracts/rope.md").read_text() == Path("again/contracts/rope.md").read_text()
    assert main(["ckb", "export", "more", "--seed", "--at", "1"]) == 2
    assert "leave one out" in capsys.readouterr().err
    assert main(["ckb", "show", "models", "llama", "--at", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["model_type"] == "llama"


def test_a_damaged_store_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ckb", "build"]) == 0
    data = next((home / "store" / "data").glob("contracts-*"))
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    assert main(["ckb", "verify"]) == 1
    assert data.name in capsys.readouterr().out


def test_init_writes_a_target_that_a_dry_run_accepts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(home / "models")
    assert main(["init", "models", "as quick as it can be", "--output", "mine.yaml"]) == 0
    output = capsys.readouterr().out
    assert "no language model is configured" in output
    assert "wrote mine.yaml" in output
    text = (home / "mine.yaml").read_text()
    assert text.startswith("# LlamaForCausalLM, 2 layers")
    assert "# asked for: as quick as it can be" in text
    target = load_target(home / "mine.yaml")
    assert target.model.path == "models"
    assert target.user.instructions == "as quick as it can be"
    assert target.workload.prompt_tokens[0] + target.workload.new_tokens[0] <= 64
    assert main(["generate", "--dry-run", "mine.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "operators: [torch, triton]" in shown
    assert "bound: tpot_ms" in shown
    assert "kv_layout: head_major, token_major" in shown
    assert not (home / "runs").exists()
    assert main(["coverage", "mine.yaml"]) == 0
    assert "100% of" in capsys.readouterr().out
    assert main(["coverage", "mine.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["percent"] == 100
    config = json.loads((home / "models/config.json").read_text())
    (home / "models/config.json").write_text(json.dumps(config | {"model_type": "falcon_h1"}))
    assert main(["coverage", "mine.yaml", "--json"]) == 1, (
        "a model that nobody describes is a table of gaps, no refusal"
    )
    (need,) = json.loads(capsys.readouterr().out)["needs"]
    assert (need["what"], need["subject"], need["gaps"][0]["kind"]) == ("model", "falcon_h1", "model structure")
    assert main(["coverage", "mine.yaml"]) == 1
    assert "0% of 1 needs" in capsys.readouterr().out


def test_the_composer_needs_no_check_that_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["authors", "check"]) == 0
    assert "composer" in capsys.readouterr().out


def test_a_check_asks_every_author_that_a_target_names(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} {program(home, 'checks')} {{prompt_file}}"
    cli = {"kind": "cli", "command": command, "most_usd": 0}
    members = [{"kind": "composer"}, {**cli, "model": "second"}]
    authors = {"implementer": {"kind": "ensemble", "members": members}, "judge": cli}
    target = {"model": {"path": "models/x"}, "authors": authors, "sandbox": "none"}
    (home / "mine.yaml").write_text(json.dumps(target))
    assert main(["authors", "check", "mine.yaml"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("by file; sandbox: none") == 2
    assert "embedded: no call, no cost" in told
    assert "unknown" in told
    broken = target | {"authors": {"judge": {**cli, "command": "no-such-agent {prompt_file}"}}}
    (home / "mine.yaml").write_text(json.dumps(broken))
    assert main(["authors", "check", "mine.yaml"]) == 2
    assert "the command 'no-such-agent' is not there" in capsys.readouterr().err


def test_status_without_a_run_lists_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    told = capsys.readouterr()
    assert told.out.split() == ["run", "state", "merged", "engine"]
    assert f"note: in {home / 'runs'} there are: none yet (ENGINESMITH_HOME sets" in told.err


def test_a_name_that_is_elsewhere_is_refused_with_the_folder_that_was_looked_into(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever stands beside runs/mine in another folder must see why it isn't found."""
    other = tmp_path / "other"
    for file in ("runs/mine/plan.json", "engines/mine/engine_1/manifest.json"):
        (other / file).parent.mkdir(parents=True)
        (other / file).write_text("{}")
    monkeypatch.chdir(other)
    for command, folder in (("status", "runs"), ("report", "runs"), ("resume", "runs"), ("serve", "engines")):
        assert main([command, "mine"]) == 2
        assert f"; in {home / folder} there are: none yet (ENGINESMITH_HOME sets" in capsys.readouterr().err


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for begun, says in ((False, "the run had not begun"), (True, "go on with: enginesmith resume")):
        if begun:
            (tmp_path / "run.json").write_text("{}")
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path):
            raise KeyboardInterrupt
        assert says in capsys.readouterr().err


def test_a_store_is_named_on_the_command_line_tagged_compacted_and_vacuumed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--store", str(home / "other")]

    def said(*arguments: str, status: int = 0) -> str:
        assert main(["ckb", *arguments, *at]) == status
        shown = capsys.readouterr()
        return shown.out if status == 0 else shown.err

    assert f"version 1 of {home / 'other'}" in said("build")
    assert not (home / "store").exists(), "the default store is another one"
    assert said("tag", "first") == "first is version 1\n"
    assert "the tag 'first' is taken by version 1" in said("tag", "first", status=2)
    assert "1 first" in said("log")
    store = Store(home / "other")
    for n in range(3):
        store.append({"experience": [experience(f"e{n}")]}, message="m", by="t")
    assert said("compact") == "1 files merged, the newest version is 5\n"
    assert said("vacuum", "--grace-days", "0") == "0 files deleted, the oldest version that can be read is 0\n"
    assert "e2" in said("show", "experience")
    assert "experience" in said("diff", "first", "5")
    assert said("verify") == "every file is as its manifest says\n"
    assert said("blame", "experience", "e1").startswith("version 3,")
    assert "--grace-days" in said("vacuum", "--grace-days", "-1", status=2)
    assert said("export", str(home / "out")).endswith(f"files in {home / 'out'}\n")
    assert (home / "out" / "experience" / "e2.md").is_file()


def test_knowledge_is_found_by_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ckb", "build"]) == 0
    capsys.readouterr()
    assert main(["ckb", "find", "rotary", "embedding"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0].split() == ["table", "id", "score", "what", "it", "says"]
    assert ["contracts", "rope"] in [line.split()[:2] for line in output.splitlines()]
    assert output.splitlines()[-1].endswith(" rows of version 1")
    assert main(["ckb", "find", "rotary embedding", "--table", "contracts", "--at", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1
    assert {hit["table"] for hit in found["hits"]} == {"contracts"}
    assert found["hits"][0]["row"]["id"] == "rope"
    assert found["hits"][0]["score"] >= found["hits"][-1]["score"] > 0
    for arguments, message in (
        (["rope", "--layer", "kernel"], "layer: Input should be 'contract'"),
        (["rope", "--table", "runs"], "table: Input should be 'contracts'"),
        (["()"], "holds no word"),
        (["rope", "--at", "9"], "9"),
    ):
        assert main(["ckb", "find", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_the_knowledge_base_is_exported_as_skills_of_one_version(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", "export"]) == 2
    assert "enginesmith: " in capsys.readouterr().err, "there is no store yet"
    assert main(["ckb", "build"]) == 0
    Store(home / "store").append({"experience": [experience("e1")]}, message="m", by="t")
    capsys.readouterr()
    for options, version in (
        ([], "version 2"),
        (["--at", "1"], "version 1"),
        (["--seed"], "the seed of release "),
    ):
        folder = home / f"skills-{len(options)}"
        assert main(["skills", "export", str(folder), *options]) == 0
        assert capsys.readouterr().out.startswith(f"7 skills of {version}")
        assert version in (folder / "enginesmith-check" / "references" / "tests.md").read_text().splitlines()[-1]
        shutil.rmtree(folder)
    assert main(["skills", "export", "out", "--seed", "--at", "1"]) == 2
    assert "leave one out" in capsys.readouterr().err
    (home / "out").mkdir()
    (home / "out" / "notes.txt").write_text("mine")
    assert main(["skills", "export", "out"]) == 2
    assert "out holds notes.txt, which is none of the " in capsys.readouterr().err


def test_fingerprints_of_a_release_are_merged_into_a_table(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "empty").mkdir()
    monkeypatch.setattr("ckb.fingerprint_table.INDEPENDENT", ())
    monkeypatch.setattr("sysconfig.get_paths", lambda: dict.fromkeys(("stdlib", "purelib"), str(home / "empty")))
    (home / "vllm" / "v1").mkdir(parents=True)
    body = "\n".join(f"    a = {'b.c(a)[1] + ' * n}d.e(a)" for n in range(12))
    (home / "vllm" / "v1" / "core.py").write_text(f"def f(a):\n{body}\n")
    (home / "vllm-7.0.dist-info").mkdir()
    (home / "vllm-7.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 7.0\n")
    assert main(["ckb", "fingerprints", "vllm", "--into", "spans.parquet"]) == 0
    shown = capsys.readouterr()
    assert "vllm     7.0      1" in shown.out
    assert f"fingerprints, {(home / 'spans.parquet').stat().st_size:,} bytes" in shown.out
    assert main(["ckb", "fingerprints", "absent.whl"]) == 2
    assert "absent.whl is no wheel" in capsys.readouterr().err
