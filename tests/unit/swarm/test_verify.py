"""Judging one engine by hand: a released one, edits of it, and folders that are none.

The engine is a real release: composed, merged and written with its manifest by a run whose device alone was a stand-in.
"""

import io
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ckb.build import ensure_store
from gpu_actors.blocked import Blocked
from gpu_actors.jobs import EvidenceFile, GateResult, Shortage, Verdict, VerifyJob
from gpu_actors.say import silent
from swarm.cli import main
from swarm.context import RunFiles
from swarm.plan import make_plan
from swarm.platform import detect
from swarm.target import parse_target
from swarm.verify import Order, basis_of, gate_table, job_of, laid_out, read_made, told
from tests.unit.gpu_actors import tiny
from tests.unit.swarm.rehearsal import measure, rehearse


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an engine of plain torch, below the home of its run."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("ENGINESMITH_HOME", str(home))
        tiny.write_checkpoint(home / "models" / "tiny", "llama")
        asked = parse_target(
            {
                "model": {"path": "models/tiny"},
                "workload": {"prompt_tokens": [24], "new_tokens": [8], "max_context": 48},
                "constraints": {"mode": {"step": "eager"}},
                "search": {"parallel": 1, "rounds": 0},
            },
            "t.yaml",
        )
        platform = detect("cpu").model_copy(update={"compiler": None})
        files = RunFiles(home / "runs" / "r")
        files.write("tiny", asked, make_plan(asked, ensure_store(home / "store"), platform, measure))
        state = rehearse(home, files).state
        assert state.released
        return home / state.released.path


@pytest.fixture
def home(released: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setenv("ENGINESMITH_HOME", str(released.parents[2]))
    monkeypatch.delenv("ENGINESMITH_STORE", raising=False)
    yield released.parents[2]
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def copy(released: Path, home: Path, tmp_path: Path) -> Path:
    """The engine in a folder of its own, to be edited."""
    return Path(shutil.copytree(released, tmp_path / "by_hand"))


def edit(engine: Path, file: str, old: str, new: str) -> None:
    text = (engine / file).read_text()
    assert old in text, f"{file} has no {old!r}"
    (engine / file).write_text(text.replace(old, new, 1))


def rewrite(engine: Path, **fields: Any) -> None:
    """Other values in the manifest."""
    data = json.loads((engine / "manifest.json").read_text())
    (engine / "manifest.json").write_text(json.dumps(data | fields))


def job(engine: Path, home: Path) -> VerifyJob:
    """What would be judged."""
    made = read_made(engine)
    order = Order(acceptance="screen", seed=1, evidence=home / "evidence")
    with laid_out(engine) as tree:
        return job_of(engine.name, tree, made, home / "models" / "tiny", basis_of(made), order, silent)


def turn_backwards(engine: Path) -> None:
    edit(engine, "kernels.py", "first * cosine - second * sine", "first * cosine + second * sine")


def evidence_of(gate: str, output: str) -> str:
    """The file name that stands below a gate that failed."""
    found = re.search(rf"^{gate} of .*\n  (.*\.json)$", output, re.MULTILINE)
    assert found, output
    assert json.loads(Path(found[1]).read_text())["gate"] == gate
    return Path(found[1]).name


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_released_engine_passes_all_levels(
    released: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(released), "--seed", "5", "--evidence", str(tmp_path / "e")]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert "edited" not in lines[0]
    assert lines[1] == f"knowledge  version 1 of {home / 'store'}"
    assert "--seed 5" in lines[3]
    gates = [line.split() for line in lines if re.match(r"L[0-3] ", line)]
    assert {words[0] for words in gates} == {"L0", "L1", "L2", "L3"}
    assert {words[2] for words in gates} == {"pass"}
    assert any(re.match(r"reads      9\d\.\d% of \d+ executable lines ran, 0 branches", line) for line in lines)
    assert lines[-1] == f"passed: {len(gates)} gates of L0, L1, L2, L3, acceptance screen"
    files = list((tmp_path / "e").glob("*.json"))
    assert {json.loads(file.read_text())["gate"] for file in files} == {words[1] for words in gates}
    waits = [line for line in output.err.splitlines() if "Hugging Face" in line]
    assert len(waits) == len(set(waits)), "the same wait was said twice"


def test_an_engine_that_was_broken_by_hand_is_rejected_and_its_seed_repeats_the_draws(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn_backwards(copy)
    first = rejected(copy, tmp_path / "first", capsys, "--sandbox", "none")
    assert first.splitlines()[-1] == "rejected by rope"
    assert "\nsandbox    none (" in first
    again = rejected(copy, tmp_path / "again", capsys, "--seed", seed_of(first))
    assert again.splitlines()[-1] == "rejected by rope"
    assert "\nsandbox    none (" not in again
    assert evidence_of("rope", first) == evidence_of("rope", again), "a seed did not repeat its draws"

    (copy / "answers.json").symlink_to("/etc/hostname")
    other = rejected(copy, tmp_path / "other", capsys)
    assert "found ['answers.json']" in other
    assert other.splitlines()[-1].startswith("rejected by tree")
    assert seed_of(other) != seed_of(first), "draws that nobody named are new ones"


def rejected(engine: Path, evidence: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["verify", str(engine), "--evidence", str(evidence), *options]) == 1
    output = capsys.readouterr().out
    assert re.match(r"tree       \w{12}, edited since it was released as \w{12}\n", output)
    return output


def seed_of(output: str) -> str:
    found = re.search(r"--seed (\d+)", output)
    assert found, output
    return found[1]


def test_a_strange_file_is_judged_with_the_engine_and_what_a_release_or_python_writes_is_not(copy: Path) -> None:
    (copy / "report.html").write_text("<p>")
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"stale")
    modules = {path.name for path in copy.glob("*.py")}
    with laid_out(copy) as tree:
        assert {path.name for path in tree.iterdir()} == modules
    (copy / "weights.bin").write_bytes(b"w")
    (copy / "more").mkdir()
    (copy / "more" / "manifest.json").symlink_to("/etc/hostname")
    os.mkfifo(copy / "pipe.py")
    with laid_out(copy) as tree:
        assert {path.name for path in tree.iterdir()} == modules | {"weights.bin", "more"}
        assert (tree / "more" / "manifest.json").is_symlink()
    assert not tree.exists()


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_a_manifest_cannot_make_the_question_smaller(copy: Path, home: Path) -> None:
    before = job(copy, home)
    assert {"rope", "attention", "server"} <= {row.id for row in before.rows}
    rewrite(copy, contracts={})
    after = job(copy, home)
    assert (after.contracts, after.rows) == (before.contracts, before.rows)
    assert after.levels == ("L0", "L1", "L2", "L3")


def test_the_question_is_the_one_of_a_release(released: Path, home: Path) -> None:
    """Facts, limits and the user's own checker are the Target's; the rows are those that its choices put in force."""
    checker = home / "check.py"
    checker.write_text("")
    engine = Path(shutil.copytree(released, home / "checked"))
    data = json.loads((engine / "manifest.json").read_text())
    data["target"]["user"]["checker"] = "python check.py"
    data["target"]["constraints"]["max_memory_gib"] = 2.0
    rewrite(engine, target=data["target"])
    asked = job(engine, home)
    assert asked.checker == f"python {checker}"
    assert list(asked.checker_files) == [str(checker)]
    assert asked.engine.max_memory_bytes == 2 << 30
    assert asked.engine.facts.workload.max_context == 48
    assert asked.choices == data["choices"]
    assert asked.ckb_version == data["ckb_version"] == 1
    assert "kernel-build" not in {row.id for row in asked.rows}
    assert asked.engine.tree == data["tree"]


def test_knowledge_is_the_manifests_version_and_else_the_seed_and_either_is_named(
    copy: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contracts = json.loads((copy / "manifest.json").read_text())["contracts"]
    rewrite(copy, contracts=contracts | {"rope": "0" * 64})
    others = f"; 1 of {len(contracts)} contracts are other rows than those that it was made from"
    assert basis_of(read_made(copy)).words == f"version 1 of {home / 'store'}{others}"
    rewrite(copy, ckb_version=99)
    later = basis_of(read_made(copy))
    assert later.knowledge.version == 0
    assert re.match(r"the seed of this installation, not version 99: .* has the versions 0 to \d+;", later.words)
    monkeypatch.setenv("ENGINESMITH_STORE", str(tmp_path / "none"))
    assert "there is no knowledge base at" in basis_of(read_made(copy)).words
    assert {row.id for row in job(copy, home).rows} >= contracts.keys() & {"rope", "attention", "server"}
    assert not (tmp_path / "none").exists()


# --- bad input --------------------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = main(["verify", *arguments])
    output = capsys.readouterr()
    assert status == 2, output
    assert output.out == ""
    return output.err


def test_what_is_no_engine_of_ours_ends_with_status_2_and_its_name(
    copy: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        assert f"{tmp_path / name} is no engine" in refused(capsys, str(tmp_path / name))
    manifest = (copy / "manifest.json").read_text()
    for text, says in (
        ("no json", "Invalid JSON"),
        ("{}", "format: Field required"),
        (json.dumps(json.loads(manifest) | {"format": 1}), "is of format 1, this version reads format 2"),
        (json.dumps({"format": 2, "tree": "a"}), "does not say what the engine was made for: target: Field required"),
        (json.dumps(json.loads(manifest) | {"ckb_version": -1}), "ckb_version: Input should be greater"),
    ):
        (copy / "manifest.json").write_text(text)
        said = refused(capsys, str(copy))
        assert str(copy / "manifest.json") in said
        assert says in said


def test_what_is_missing_ends_with_status_2_and_its_name(
    copy: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{home / 'gone'} has no config.json" in refused(capsys, str(copy), "--checkpoint", "gone")
    (tmp_path / "file").write_text("")
    said = refused(capsys, str(copy), "--evidence", str(tmp_path / "file"))
    assert f"can't be written to {tmp_path / 'file'}: File exists" in said
    contracts = json.loads((copy / "manifest.json").read_text())["contracts"]
    rewrite(copy, contracts=contracts | {"teleport": "0" * 64})
    assert "made from contracts that are not there: teleport" in refused(capsys, str(copy))
    rewrite(copy, contracts=contracts, checkpoint="models/gone")
    assert f"{home / 'models' / 'gone'} has no config.json" in refused(capsys, str(copy))


def test_a_seed_or_a_sandbox_that_is_none_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(copy), "--seed", "-1"]) == 2
    assert main(["verify", str(copy), "--sandbox", "strong"]) == 2


# --- what is shown ----------------------------------------------------------------------------------------------------


def verdict(*gates: GateResult) -> Verdict:
    return Verdict(candidate="c", tree="0" * 64, levels=(), acceptance="none", gates=gates, sandbox="none")


def gate(name: str, status: str, summary: str, **fields: Any) -> GateResult:
    evidence = (EvidenceFile(sha256="ab" * 32, what="w"),)
    return GateResult.model_validate(
        {"gate": name, "level": "L3", "contract": "acceptance", "status": status, "summary": summary, "seconds": 1.0}
        | {"evidence": evidence}
        | fields
    )


LACKING = Shortage(asked=2e9, available=1e9, unit="bytes")
HELD = gate("acceptance_divergence", "BLOCKED_BY_HARDWARE", str(Blocked("the oracle", LACKING)), blocked=LACKING)
LONG = gate("rope", "FAIL", "3.1e-2 at [0, 117],\n\x1b[2J\x1b[32mpassed " + "and more " * 30)


def test_a_terminal_of_80_columns_has_one_line_a_gate(tmp_path: Path) -> None:
    for width in (80, 160):
        screen = io.StringIO()
        Console(file=screen, width=width).print(gate_table(verdict(LONG, HELD)))
        heading, *lines = screen.getvalue().splitlines()
        assert heading.split() == ["level", "gate", "status", "s", "found"]
        assert [line.split()[:4] for line in lines] == [
            ["L3", "rope", "FAIL", "1.0"],
            ["L3", "acceptance_divergence", "blocked", "1.0"],
        ]
        assert max(map(len, lines)) <= width
        assert "…" in lines[0]


def test_what_an_engine_raised_does_not_move_the_cursor(tmp_path: Path) -> None:
    screen = io.StringIO()
    Console(file=screen, width=80).print(gate_table(verdict(LONG)))
    whole = told(verdict(LONG), tmp_path)
    assert "\x1b" not in screen.getvalue() + "".join(whole)
    assert whole[0].endswith("and more"), "what did not pass is told whole"
    assert "\n" not in whole[0]
    assert whole[1] == f"  {tmp_path / ('ab' * 32)}.json"


def test_what_could_not_be_decided_is_no_pass_and_a_failure_beside_it_is_a_rejection(tmp_path: Path) -> None:
    assert told(verdict(HELD), tmp_path)[-1] == "undecided: acceptance_divergence blocked by hardware"
    assert "asks for 2,000,000,000 bytes, available are 1,000,000,000" in told(verdict(HELD), tmp_path)[0]
    assert told(verdict(HELD, LONG), tmp_path)[-1] == "rejected by rope"
