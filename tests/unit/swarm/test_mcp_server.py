"""The MCP server: by the SDK's own client in this process, and as the command that an agent starts."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import yaml
from jsonschema import Draft202012Validator
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from ckb.build import ensure_store
from ckb.store import Store
from swarm.mcp_server import knowledge
from swarm.mcp_server.children import CommandFailed, run_to_end
from swarm.mcp_server.runs import Drivers
from swarm.mcp_server.server import make_server
from swarm.mcp_server.tool import Tool
from swarm.skills import shelf_of_store
from tests.unit.ckb.samples import write_checkpoint
from tests.unit.gpu_actors import tiny

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "tests" / "unit" / "ckb" / "configs"
READ_ONLY = {"coverage", "ckb_find", "ckb_show", "runs", "run_status"}
STAND_IN = (sys.executable, "-m", "tests.unit.swarm.stand_in_driver")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home to copy from: a store, and a cache that the tests share, since trying operators takes seconds."""
    folder = tmp_path_factory.mktemp("stored")
    ensure_store(folder / "store")
    (folder / "cache").mkdir()
    return folder


@pytest.fixture
def home(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(stored / "store", tmp_path / "store")
    (tmp_path / "cache").symlink_to(stored / "cache")
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("ENGINESMITH_STORE", "ENGINESMITH_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_target(home: Path, **sections: Any) -> Path:
    write_checkpoint(home / "models")
    workload = {"prompt_tokens": [16], "new_tokens": [8], "max_context": 32}
    path = home / "mine.yaml"
    path.write_text(yaml.safe_dump({"model": {"path": "models"}, "workload": workload, **sections}))
    return path


def call(name: str, drivers: Drivers | None = None, **arguments: Any) -> types.CallToolResult:
    """One call by a client of its own."""

    async def session() -> types.CallToolResult:
        async with Client(make_server(drivers)) as client:
            return await client.call_tool(name, arguments)

    return anyio.run(session)


def answer(name: str, drivers: Drivers | None = None, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a call that went well, which its text says too."""
    result = call(name, drivers, **arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    assert json.loads(said(result)) == result.structured_content
    return result.structured_content


def refusal(name: str, drivers: Drivers | None = None, **arguments: Any) -> str:
    result = call(name, drivers, **arguments)
    assert result.is_error
    assert "Traceback" not in said(result)
    return said(result)


def said(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


# --- the list ---------------------------------------------------------------------------------------------------------


def test_every_tool_is_typed_described_and_says_what_it_does_to_the_world() -> None:
    async def session() -> list[types.Tool]:
        async with Client(make_server()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(session)}
    assert set(tools) == READ_ONLY | {"generate", "resume", "run_report", "verify"}
    for name, tool in tools.items():
        assert tool.description, name
        assert tool.annotations, name
        assert tool.annotations.read_only_hint == (name in READ_ONLY), name
        assert name in READ_ONLY or tool.annotations.destructive_hint is False, name
        assert tool.input_schema["additionalProperties"] is False, name
        assert tool.output_schema, name
        for schema in (tool.input_schema, tool.output_schema):
            assert schema["type"] == "object", name
            Draft202012Validator.check_schema(schema)
    assert "Tries the operator libraries" in (tools["coverage"].description or "")
    assert "rare ones count most" in tools["ckb_find"].input_schema["properties"]["words"]["description"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("ckb_find", {"word": "rope"}, "- word: Extra inputs are not permitted"),
        ("ckb_find", {"limit": 0, "table": "runs"}, "- table: Input should be 'contracts'"),
        ("ckb_find", {"limit": 0, "table": "runs"}, "- limit: Input should be greater than or equal to 1"),
        ("ckb_find", {"words": "()"}, "holds no word"),
        ("ckb_find", {"at": "9"}, "9"),
        ("ckb_show", {"table": "contract"}, "contract"),
        ("ckb_show", {"table": "contracts", "id": "ropes"}, "table 'contracts' has no row 'ropes' at version 1"),
        ("ckb_show", {"id": "rope"}, "id 'rope' without a table: name one of "),
        ("coverage", {}, "name `target`, a Target's YAML file, or `config`"),
        ("coverage", {"target": "gone.yaml"}, "gone.yaml is neither in "),
        ("coverage", {"config": str(CONFIGS / "broken-depth.json")}, "no model has more than 10000"),
        ("coverage", {"target": "a.yaml", "config": "b.json"}, "both were given"),
        ("generate", {}, "- target: Field required"),
        ("generate", {"target": "gone.yaml"}, "gone.yaml is neither in "),
        ("resume", {"run": "gone"}, "gone is no run (a folder with plan.json)"),
        ("run_status", {"run": "gone"}, "gone is no run (a folder with plan.json)"),
        ("run_report", {"run": "gone"}, "gone is no run (a folder with plan.json)"),
        ("verify", {"engine": "gone"}, "gone is no engine (a folder with manifest.json)"),
        ("verify", {"engine": "gone", "seed": -1}, "- seed: Input should be greater than or equal to 0"),
        ("tune", {}, "there is no tool 'tune'; there are coverage, ckb_find, "),
    ],
)
def test_what_a_caller_can_mend_is_the_tools_error(home: Path, name: str, arguments: dict[str, Any], says: str) -> None:
    assert says in refusal(name, **arguments)


def test_a_defect_of_ours_is_told_without_its_insides_and_logged(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(asked: knowledge.Show, _: object) -> knowledge.Shown:
        raise RuntimeError(f"secret of {asked.table}")

    monkeypatch.setattr(knowledge, "TOOLS", (Tool("broken", knowledge.Show, knowledge.Shown, broken, knowledge.READS),))
    text = refusal("broken", table="t")
    assert text == "broken failed by a defect of Enginesmith (RuntimeError); the server's log has more"
    assert "secret of t" in caplog.text


# --- knowledge --------------------------------------------------------------------------------------------------------


def test_knowledge_is_found_and_shown(home: Path) -> None:
    found = answer("ckb_find", words="rotary embedding", table="contracts", limit=3)
    assert found["version"] == 1
    assert found["rows"][0]["id"] == "rope"
    assert len(found["rows"]) == 3
    filed = answer("ckb_find", contract="rope", at="1")["rows"]
    assert {row["id"] for row in filed} == {"rope", "rope-cuda"}
    assert answer("ckb_find", role="verifier", table="guides")["rows"][0]["says"].startswith(
        "Procedure of the verifier"
    )
    shown = answer("ckb_show")
    assert shown["tables"]["contracts"] > 90
    assert shown["rows"] == []
    drafts = {row["id"]: row["status"] for row in answer("ckb_show", table="contracts")["rows"]}
    assert (drafts["rope"], drafts["rope-yarn"]) == ("verified", "draft")
    assert answer("ckb_show", table="fragments", id="rope")["row"]["code"].startswith("@cache")
    assert answer("ckb_show", table="test_contracts", id="acceptance_greedy")["row"]["id"] == "acceptance-greedy"


def test_knowledge_is_found_for_a_target_with_its_default_decisions(home: Path) -> None:
    target = write_target(home, constraints={"mode": {"step": "eager"}})
    rows = {row["id"] for row in answer("ckb_find", table="fragments", limit=100, target=str(target))["rows"]}
    assert "rope" in rows
    assert "rope-cuda" not in rows, "a CPU is no CUDA device"
    contracts = {row["id"] for row in answer("ckb_find", table="contracts", limit=100, target=str(target))["rows"]}
    assert "linear" in contracts
    assert "decode-program" not in contracts, "an eager step has no program"


def test_coverage_of_a_target_of_a_model_and_of_one_that_nobody_describes(home: Path) -> None:
    target = write_target(home)
    whole = answer("coverage", target=str(target))
    assert (whole["percent"], whole["covered"]) == (100, True)
    assert any(need["what"] == "contract" and need["subject"] == "rope" for need in whole["needs"])
    for place in ("models", str(CONFIGS / "smollm2-135m.json")):
        assert answer("coverage", config=place)["covered"], place
    unstated = answer("coverage", config="models/config.json")["needs"]
    gap = next(need["subject"] for need in unstated if need["gaps"])
    assert gap == "unstated", "no headers were read, and the file names no dtype"
    gaps = answer("coverage", config=str(CONFIGS / "qwen2.5-7b.json"))
    assert not gaps["covered"]
    assert ("model structure", "qkv-bias") in {(g["kind"], g["subject"]) for n in gaps["needs"] for g in n["gaps"]}
    (need,) = answer("coverage", config=str(CONFIGS / "falcon-h1.json"))["needs"]
    assert (need["what"], need["subject"]) == ("model", "falcon_h1")


def test_reading_writes_nothing_into_the_store(home: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (home / "store").rglob("*")}
    for name, arguments in (("ckb_show", {}), ("ckb_find", {"words": "rope"}), ("runs", {})):
        answer(name, **arguments)
    assert {path: path.stat().st_mtime_ns for path in (home / "store").rglob("*")} == before


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    made = Drivers(STAND_IN)
    yield made
    for process in made._processes.values():
        process.kill()
        process.wait()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_run_is_started_in_the_background_looked_at_and_resumed(home: Path, drivers: Drivers) -> None:
    target = write_target(home, budget={"minutes": 7})
    begun = answer("generate", drivers, target=target.name)
    assert begun["minutes"] == 7
    assert Path(begun["folder"]) == home / "runs" / begun["run"]
    first = answer("run_status", drivers, run=begun["run"])
    assert (first["state"], first["driver"]) == ("not finished", "at work")
    assert "measuring this machine" in Path(begun["log"]).read_text()
    assert first["candidates"] == []
    Path(begun["folder"], "go").touch()
    until(lambda: answer("run_status", drivers, run=begun["run"])["state"] != "not finished")

    status = answer("run_status", drivers, run=begun["folder"])
    assert status["state"] == "accepted"
    assert status["engine"] == "engines/smollm2-135m-cpu/engine_1f2e3d4c"
    assert status["log"] == begun["log"]
    assert {"kept", "merged", "discarded"} & {line["state"] for line in status["candidates"]}
    assert any(line["effect"] for line in status["candidates"])
    assert any(line.startswith("last benchmark") for line in status["summary"])
    assert answer("runs")["runs"] == [
        {
            "run": begun["run"],
            "state": "accepted",
            "candidates": len(status["candidates"]),
            "merged": sum(line["state"] == "merged" for line in status["candidates"]),
            "engine": status["engine"],
        }
    ]
    assert answer("run_report", run=begun["run"])["path"] == str(home / "runs" / begun["run"] / "report.html")
    assert (home / "runs" / begun["run"] / "report.html").read_text().startswith("<!doctype html>")

    assert "has a driver that is at work" in refusal("resume", drivers, run=begun["run"])
    ended = drivers._processes[home / "runs" / begun["run"]]
    ended.send_signal(signal.SIGINT)
    ended.wait()
    assert answer("run_status", drivers, run=begun["run"])["driver"].startswith("ended with exit status")
    assert answer("run_status", run=begun["run"])["driver"] == "not known", "another server started it"
    assert answer("resume", drivers, run=begun["run"])["run"] == begun["run"]
    assert answer("run_status", drivers, run=begun["run"])["driver"] == "at work"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("refuse", "the model cannot fit: 3 GiB needed,\n2 GiB are there"),
        ("crash", "generate failed by a defect of Enginesmith (CommandFailed); the server's log has more"),
        ("vanish", "generate failed by a defect of Enginesmith (CommandFailed); the server's log has more"),
    ],
)
def test_a_run_that_did_not_begin_leaves_its_reason_and_nothing_else(
    home: Path, drivers: Drivers, words: str, says: str
) -> None:
    target = write_target(home, user={"instructions": words})
    assert refusal("generate", drivers, target=str(target)) == says
    assert list((home / "runs").iterdir()) == []


def test_the_real_command_refuses_a_model_that_nobody_describes(home: Path) -> None:
    target = write_target(home)
    config = json.loads((home / "models" / "config.json").read_text())
    (home / "models" / "config.json").write_text(json.dumps(config | {"model_type": "falcon_h1"}))
    text = refusal("generate", target=str(target))
    assert text.startswith("the knowledge base does not cover this: model structure: falcon_h1")
    assert list((home / "runs").iterdir()) == []


def test_the_faults_of_a_target_are_told_before_anything_starts(home: Path) -> None:
    target = write_target(home, search={"round": 1}, budget={"minutes": -1})
    text = refusal("generate", Drivers(("/nowhere/python",)), target=str(target))
    assert "has 2 fault(s):" in text
    assert "search.round: unknown key; search has " in text
    assert not (home / "runs").exists()


@pytest.mark.parametrize("words", ["sleep", "deaf"])
def test_a_call_that_is_cancelled_before_the_run_begins_ends_its_driver(
    home: Path, drivers: Drivers, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarm.mcp_server.children.END_S", 2.0)
    target = write_target(home, user={"instructions": words})
    reported: list[str] = []

    async def session() -> None:
        async def on_progress(_: float, __: float | None, message: str | None) -> None:
            reported.append(message or "")
            scope.cancel()

        async with Client(make_server(drivers)) as client:
            with anyio.CancelScope() as scope:
                await client.call_tool("generate", {"target": str(target)}, progress_callback=on_progress)

    anyio.run(session)
    assert reported == ["measuring this machine"]
    until(lambda: list((home / "runs").iterdir()) == [])
    assert not [line for line in commands_at_work() if str(home) in line]


def commands_at_work() -> list[str]:
    """The command lines of all processes."""
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has just ended
            continue
    return lines


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_engine_written_by_hand_is_judged_with_the_least_manifest(home: Path) -> None:
    """The manifest is the one that the exported skills tell a coding agent to write. The engine is right as far as it
    goes, and its cache lacks a method."""
    tiny.write_checkpoint(home / "models" / "tiny", "llama")
    engine = tiny.write_engine(home / "engines" / "by_hand")
    manifest = json.loads(shelf_of_store(Store(home / "store")).manifest)
    manifest["checkpoint"] = manifest["target"]["model"]["path"] = "models/tiny"
    manifest["target"]["workload"] |= {"prompt_tokens": [24], "new_tokens": [8], "max_context": 48}
    (engine / "manifest.json").write_text(json.dumps(manifest))
    verdict = answer("verify", engine="by_hand", seed=5)
    assert (verdict["outcome"], verdict["seed"]) == ("rejected", 5)
    gates = {gate["gate"]: gate for gate in verdict["gates"]}
    assert (gates["rope"]["level"], gates["rope"]["status"]) == ("L2", "PASS")
    failed = gates["interface_execution"]
    assert (failed["contract"], failed["status"]) == ("contracts", "FAIL")
    assert "cache.py: no KVCache.bytes" in failed["summary"]
    assert json.loads(Path(failed["evidence"][0]).read_text())["gate"] == "interface_execution"
    assert verdict["told"][-1].startswith("rejected by interface_execution")
    manifest["target"]["model"]["path"] = "models/gone"
    (engine / "manifest.json").write_text(json.dumps(manifest | {"checkpoint": "models/gone"}))
    assert "the checkpoint " in refusal("verify", engine="by_hand")


def test_a_command_is_told_line_by_line_and_its_end_is_understood() -> None:
    reported: list[str] = []

    async def report(words: str) -> None:
        reported.append(words)

    def run(script: str) -> tuple[int, str]:
        async def session() -> tuple[int, str]:
            ended = await run_to_end(["-c", script], report, command=(sys.executable,))
            return ended.status, ended.output

        return anyio.run(session)

    assert run("import sys; print('out'); print('one\\ntwo', file=sys.stderr); sys.exit(1)") == (1, "out\n")
    assert reported == ["one", "two"]
    with pytest.raises(CommandFailed, match="ZeroDivisionError"):
        run("1 / 0")
    with pytest.raises(CommandFailed, match="exit status -9"):
        run("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(CommandFailed, match="exit status 2"):
        run("import sys; sys.exit(2)")


def test_a_command_is_interrupted_with_its_call_and_killed_when_it_does_not_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("swarm.mcp_server.children.END_S", 0.5)
    deaf = "import signal, sys, time; signal.signal(2, signal.SIG_IGN); print('here', file=sys.stderr, flush=True)"

    async def session(script: str) -> None:
        with anyio.CancelScope() as scope:

            async def report(_: str) -> None:
                scope.cancel()

            await run_to_end(["-c", f"{script}; time.sleep(600)", str(tmp_path)], report, command=(sys.executable,))

    for script in (deaf, "import sys, time; print('here', file=sys.stderr, flush=True)"):
        anyio.run(session, script)
        assert not [line for line in commands_at_work() if str(tmp_path) in line]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_serves_over_stdio_and_says_nothing_but_protocol(home: Path) -> None:
    shutil.rmtree(home / "store")
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "ENGINESMITH_HOME")}
    server = StdioServerParameters(command=sys.executable, args=["-m", "swarm", "mcp"], env=environment, cwd=home)

    async def session() -> tuple[list[str], types.CallToolResult, types.CallToolResult]:
        async with Client(server) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            found = await client.call_tool("ckb_find", {"words": "rope"})
            refused = await client.call_tool("run_status", {"run": "gone"})
            return names, found, refused

    names, found, refused = anyio.run(session)
    assert set(names) >= READ_ONLY | {"generate", "verify"}
    assert found.structured_content
    assert found.structured_content["rows"][0]["id"] == "rope"
    assert refused.is_error
    assert re.match(r"gone is no run .* there are: none yet", said(refused))
    assert Store(home / "store").latest == 1, "the command makes the store that its tools read"


def test_a_store_that_can_not_be_used_ends_the_command_with_a_word(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swarm.cli import main

    (home / "file").write_text("")
    monkeypatch.setenv("ENGINESMITH_STORE", str(home / "file"))
    assert main(["mcp"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("enginesmith: ")
