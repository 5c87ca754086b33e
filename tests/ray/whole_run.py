"""Runs the command line as a user does, in a home of its own with a tiny checkpoint in it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ckb.store import Store
from swarm.journal import read_events
from swarm.state import RunState, fold
from swarm.workspace import Workspace
from tests.unit.gpu_actors.tiny import write_tokenizer

REPOSITORY = Path(__file__).parents[2]
TARGET = """
model: {path: models/tiny}
workload: {kind: single_stream, prompt_tokens: [16], new_tokens: [16]}
constraints: {max_memory_gib: 4}
search: {parallel: 3, rounds: ROUNDS, retries: 1}
"""


def make_home(folder: Path, family: str, layers: int, rounds: int = 1) -> Path:
    """A folder for ENGINESMITH_HOME with models/tiny (random weights of a real class) and target.yaml."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(7)
    sizes = {
        "vocab_size": 384,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": family == "llama",
        "eos_token_id": 0,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[family]
    checkpoint = folder / "models" / "tiny"
    model(config(**sizes)).to(torch.bfloat16).save_pretrained(checkpoint)
    write_tokenizer(checkpoint / "tokenizer.json", sizes["vocab_size"])
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    (folder / "target.yaml").write_text(TARGET.replace("ROUNDS", str(rounds)))
    return folder


def environment(home: Path, **more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "ENGINESMITH_"))}
    return inherited | {"ENGINESMITH_HOME": str(home), "PYTHONPATH": str(REPOSITORY)} | more


def start(home: Path, *arguments: str, module: str = "swarm") -> subprocess.Popen[str]:
    """The command line, or another driver, as a child in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def state_of(run: Path) -> RunState:
    return fold(read_events(run)) if (run / "journal").is_dir() else RunState()


def wait_until(run: Path, kind: str, process: subprocess.Popen[str], timeout_s: float = 240) -> None:
    """Returns when the run's journal holds an event of this kind."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (run / "journal").is_dir() and any(event.kind == kind for event in read_events(run)):
            return
        assert process.poll() is None, f"the driver ended before {kind}: {process.communicate()[0][-4000:]}"
        time.sleep(0.1)
    raise AssertionError(f"no {kind} in {timeout_s:.0f} s; so far: {[e.kind for e in read_events(run)]}")


def check_finished(home: Path, run: Path) -> RunState:
    """What every accepted run leaves behind."""
    state = state_of(run)
    assert state.finished
    assert state.finished.outcome == "accepted", state.finished
    engine = home / state.released.path
    manifest = json.loads((engine / "manifest.json").read_text())
    assert manifest["tree"] == state.released.tree
    assert manifest["lines"] <= 1200
    assert (engine / "report.html").is_file()
    assert (run / "report.html").is_file()
    branches = [b for b in Workspace(run).branches() if b.startswith("candidate/")]
    assert len(branches) >= 3
    assert len({c.submitted.tree for c in state.candidates.values()}) >= 3
    for candidate in state.candidates.values():
        assert candidate.decided, f"{candidate.id} has no row that says what became of it"
    store = Store(home / "store")
    assert state.consolidated.version == state.plan.ckb_version + 1
    assert state.consolidated.version <= store.latest
    return state


def nothing_twice(run: Path) -> None:
    """No issue opened, closed or merged twice, and no verdict of one purpose made twice on one attempt."""
    events = read_events(run)
    for kind, key in {
        "issue_opened": lambda e: e.issue.id,
        "issue_closed": lambda e: e.issue,
        "merged": lambda e: e.candidate,
        "candidate_decided": lambda e: e.candidate,
        "candidate_submitted": lambda e: (e.candidate, e.attempt),
        "verdict_made": lambda e: (e.candidate, e.attempt, e.purpose),
        "consolidated": lambda e: e.version,
        "engine_released": lambda e: e.path,
    }.items():
        keys = [key(event) for event in events if event.kind == kind]
        assert len(keys) == len(set(keys)), f"{kind} twice: {keys}"
