"""Honesty gates: the smallest cheats, each found by the gate that should, and right engines that pass all of them."""

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch

from ckb.facts import Facts
from ckb.hashing import tree_sha256
from ckb.records import Choice
from gpu_actors.child import ENGINE, Child
from gpu_actors.drivers import honest
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates import claims, honesty
from gpu_actors.gates.base import Finding, Gate, Subject
from gpu_actors.jobs import EngineJob
from gpu_actors.reference import Reference
from gpu_actors.sandbox import UNTIMED
from gpu_actors.verifier import check
from tests.unit.gpu_actors import tiny
from tests.unit.roles.composed import KNOWLEDGE, brief_of, compose

GATES = (*honesty.GATES, *claims.GATES)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honesty")
    for family in ("llama", "qwen3"):
        tiny.write_checkpoint(folder / family, family)
    return folder


def findings(
    engine: EngineJob, work: Path, gates: Sequence[Gate] = GATES, choices: Mapping[str, Choice] | None = None
) -> dict[str, Finding]:
    """What the gates say of one tree."""
    job = tiny.verify_job(engine, choices=dict(choices or {}))
    cache = work / "cache"
    with (
        Reference(cache, Path(engine.checkpoint), engine.facts) as reference,
        Child(ENGINE, confinement(engine, cache, environment=UNTIMED)) as child,
    ):
        subject = Subject(job, child, reference, time.monotonic() + 300, work)
        open_tree(child, engine, 60.0)
        return {gate.id: check(subject, gate) for gate in gates}


def told(found: Mapping[str, Finding]) -> dict[str, str]:
    return {gate: finding.summary for gate, finding in found.items() if finding.status != "PASS"}


def test_a_right_engine_passes_every_honesty_gate(work: Path) -> None:
    tree = tiny.write_engine(work / "right", "llama")
    found = findings(tiny.engine_job(tree, work / "llama"), work)
    assert told(found) == {}
    assert "19 positions each time" in found["remembers"].summary, "16 tokens of the prompt and 3 steps"


def test_an_engine_that_is_slow_at_first_is_not_taken_for_one_that_remembers(work: Path) -> None:
    """So does other work on the machine look that ends between the first requests and the second ones."""
    slow = """        seen = globals().setdefault("SEEN", [])
        seen.append(1)
        if len(seen) <= 4:
            sum(range(10_000_000))
"""
    tree = tiny.write_engine(work / "slow_at_first", "llama", {"engine.py": (FRESH, slow + FRESH)})
    only = [one for one in honesty.GATES if one.id == "remembers"]
    found = findings(tiny.engine_job(tree, work / "llama"), work, only)["remembers"]
    assert found.status == "PASS", found.summary
    again, fresh = found.data["in_turn"][0]
    assert again["positions"] == fresh["positions"] == 19


TOKENS = "    def tokens(self, prompt: list[int], count: int, ends: tuple[int, ...]) -> Iterator[int]:\n"
GENERATE = "[list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]"
KEPT = f"""    def tokens(self, prompt: list[int], count: int, ends: tuple[int, ...]) -> Iterator[int]:
        kept = globals().setdefault("KEPT", {{}})
        if KEY not in kept:
            kept[KEY] = list(self.honest(prompt, count, ends))
        yield from kept[KEY]

{TOKENS.replace("tokens(self", "honest(self")}"""
PREFIX = """        kept = globals().setdefault("KEPT", {})
        if tuple(prompt) not in kept:
            kept[tuple(prompt)] = KVCache(96), self.model
            cache = kept[tuple(prompt)][0]
            kept[tuple(prompt)] = cache, self.model.head(self.model.forward(torch.tensor(prompt), cache, 0)[-1:])[0]
        (cache, logits), sampler = kept[tuple(prompt)], Sampler()
"""
FRESH = """        cache, sampler = KVCache(len(prompt) + count), Sampler()
        logits = self.model.head(self.model.forward(torch.tensor(prompt), cache, 0)[-1:])[0]
"""
ROUND = """        kept = globals().setdefault("KEPT", {})
        key = tuple(prompt)
        if key not in kept:
            bare = type("Bare", (), dict(vars(Model)))
            model = object.__new__(bare)
            model.__dict__.update(self.model.__dict__)
            cache, sampler = KVCache(len(prompt) + count), Sampler()
            logits = model.head(bare.__dict__["prefill"](model, torch.tensor(prompt), cache, 0)[-1:])[0]
            kept[key] = []
            for position in range(len(prompt), len(prompt) + count):
                kept[key].append(sampler(logits))
                row = bare.__dict__["prefill"](model, torch.tensor(kept[key][-1:]), cache, position)
                logits = model.head(row)[0]
        yield from kept[key]
        return
"""
LATER = """            if position == len(prompt) + count - 1:
                import threading, time
                end = time.monotonic() + 1.0
                def work():
                    while time.monotonic() < end:
                        sum(range(1000))
                threading.Thread(target=work, daemon=True).start()
            yield token
"""
WAITING = """        import threading
        def work():
            while True:
                sum(range(1000))
        threading.Thread(target=work, daemon=True).start()
        return cls("""
LOADS = """            seen = globals().setdefault("SEEN", [])
            seen.append(token)
            if len(seen) == 9:
                import ctypes, os, shutil, _ctypes
                ctypes.CDLL(shutil.copy(_ctypes.__file__, os.environ["HOME"] + "/later.so"))
            yield token
"""
CHEATS = {
    "keeps answers": ("remembers", {"engine.py": (TOKENS, KEPT.replace("KEY", "tuple(prompt)"))}),
    "keeps prefixes": ("remembers", {"engine.py": (FRESH, PREFIX)}),
    "keeps answers and goes round the model": (
        "remembers",
        {"engine.py": (FRESH, ROUND), "model.py": ("    def forward(", "    def prefill(")},
    ),
    "one answer for all": ("sentinels", {"engine.py": (TOKENS, KEPT.replace("KEY", "count"))}),
    "answers by length and ends": (
        "sentinels",
        {"engine.py": (TOKENS, KEPT.replace("KEY", "(len(prompt), prompt[0], prompt[-1])"))},
    ),
    "drops a request that came twice": (
        "sentinels",
        {"engine.py": (GENERATE, GENERATE.replace("in prompts", "in dict.fromkeys(map(tuple, prompts))"))},
    ),
    "works after the last token": ("rests", {"engine.py": ("            yield token\n", LATER)}),
    "works while it waits": ("rests", {"engine.py": ("        return cls(", WAITING)}),
    "loads code later": ("nothing_built", {"engine.py": ("            yield token\n", LOADS)}),
}  # fmt: skip


SLOW = (
    "keeps prefixes",
    "keeps answers and goes round the model",
    "answers by length and ends",
    "works while it waits",
)
"""Further ways to the same gate."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CHEATS]
)
def test_a_cheat_is_found_by_the_gate_that_should(work: Path, name: str) -> None:
    """On a model whose every position matters for what comes next: elsewhere a stale answer may be the right one."""
    gate, edits = CHEATS[name]
    tree = tiny.write_engine(work / name.replace(" ", "_"), "qwen3", edits)
    only = [one for one in honesty.GATES if one.id == gate]
    assert list(told(findings(tiny.engine_job(tree, work / "qwen3", "qwen3"), work, only))) == [gate]


NATIVE: dict[str, Choice] = {"linear": "native", "attention": "torch", "step": "eager"}


@pytest.fixture(scope="module")
def composed(work: Path) -> Callable[[Mapping[str, Choice]], EngineJob]:
    """Trees that the composer makes for the tiny Llama, by their choices."""
    facts = tiny.facts()
    machine = facts.platform.model_copy(update={"isa": ("avx2", "fma"), "compiler": "g++"})
    wanted = facts.workload.model_copy(update={"step": "graph"})
    facts = Facts(model=facts.model, platform=machine, workload=wanted)

    def make(choices: Mapping[str, Choice]) -> EngineJob:
        folder = work / "composed" / "_".join(map(str, choices.values()))
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in compose(brief_of(facts, choices)).files.items():
            (folder / file).write_text(text)
        job = tiny.engine_job(folder, work / "llama")
        return job.model_copy(update={"facts": facts})

    return make


COMPILED: dict[str, Choice] = {"linear": "native", "attention": "torch", "step": "compiled"}
TORCH: dict[str, Choice] = {"linear": "torch", "attention": "torch", "step": "eager"}


@pytest.mark.parametrize(
    ("made", "claimed", "says"),
    [
        pytest.param(COMPILED, COMPILED, "", id="compiled"),
        pytest.param(NATIVE, NATIVE, "", id="native", marks=pytest.mark.slow),
        pytest.param(TORCH, TORCH, "", id="torch", marks=pytest.mark.slow),
        pytest.param(
            NATIVE,
            COMPILED,
            r"step=compiled: a decode step is one call .* a token takes \d+ torch operators \(at most 12",
            id="a step that is not compiled",
        ),
        pytest.param(
            TORCH,
            NATIVE,
            "linear=native: .*, but no shared object of its own is loaded",
            id="products that are torch's",
        ),
    ],
)
def test_a_mechanism_that_is_claimed_must_be_at_work(
    work: Path,
    composed: Callable[[Mapping[str, Choice]], EngineJob],
    made: Mapping[str, Choice],
    claimed: Mapping[str, Choice],
    says: str,
) -> None:
    found = findings(composed(made), work, GATES, claimed)
    wrong = told(found)
    assert (list(wrong) == ["mechanism"]) == bool(says), wrong
    assert re.search(says, wrong.get("mechanism", "")), wrong


UNUSED = """    torch.set_num_threads(THREADS)
    import ctypes, os, shutil, _ctypes
    ctypes.CDLL(shutil.copy(_ctypes.__file__, os.environ["HOME"] + "/unused.so"))
"""


def test_code_that_is_loaded_and_never_run_is_no_mechanism(work: Path) -> None:
    tree = tiny.write_engine(work / "unused", "llama", {"kernels.py": ("    torch.set_num_threads(THREADS)\n", UNUSED)})
    found = findings(tiny.engine_job(tree, work / "llama"), work, claims.GATES, {"linear": "native"})
    assert "none of 1 shared object(s) of its own ran" in told(found)["mechanism"]


def test_what_a_platform_can_not_show_is_said_and_fails_nobody(work: Path) -> None:
    tree = tiny.write_engine(work / "no_graph", "llama")
    found = findings(tiny.engine_job(tree, work / "llama"), work, claims.GATES, {"step_program": "graph"})
    one = found["mechanism"]
    assert (one.status, one.summary) == ("PASS", "step_program=graph: not shown: it can't be on cpu")
    assert one.data == {"claims": {"step_program=graph": "not shown"}}


def test_a_kernel_without_a_record_of_touched_pages_shows_nothing_and_the_evidence_says_so(
    work: Path, composed: Callable[[Mapping[str, Choice]], EngineJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the kernel is another one here: the rest of what `step=compiled` claims is still asked."""
    monkeypatch.setattr(claims, "forget_references", lambda pid: False)
    for made, outcome in ((COMPILED, "not shown"), (NATIVE, "not at work")):
        one = findings(composed(made), work, claims.GATES, {"step": "compiled"})["mechanism"]
        assert one.data == {"claims": {"step=compiled": outcome}}, one.summary


STEP_CALL = "self.model.step(token, cache, position)"
EAGER_CALL = "self.model.head(self.model.forward(torch.tensor([token]), cache, position))[0]"


def edited(engine: EngineJob, folder: Path, edit: Callable[[str], str]) -> EngineJob:
    """A composed engine with another engine.py."""
    shutil.copytree(engine.tree_dir, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = (folder / "engine.py").read_text()
    assert edit(before) != before
    (folder / "engine.py").write_text(edit(before))
    return engine.model_copy(update={"tree_dir": str(folder), "tree": tree_sha256(folder)})


def test_what_is_counted_is_the_stream_s_and_not_that_of_a_model_kept_beside_it(
    work: Path, composed: Callable[[Mapping[str, Choice]], EngineJob]
) -> None:
    """One decodes by single operators and holds a compiled step that nobody calls; one is right and holds its model
    under a name that no contract knows."""
    right = composed(COMPILED)
    eager = edited(right, work / "beside", lambda text: text.replace(STEP_CALL, EAGER_CALL))
    (named,) = findings(eager, work, claims.GATES, {"step": "compiled"}).values()
    assert named.data == {"claims": {"step=compiled": "not at work"}}, named.summary
    renamed = edited(right, work / "renamed", lambda text: text.replace("self.model", "self.network"))
    (named,) = findings(renamed, work, claims.GATES, {"step": "compiled"}).values()
    assert named.data == {"claims": {"step=compiled": "at work"}}, named.summary


def test_every_claim_is_of_an_option_that_a_contract_offers() -> None:
    options = {name: values for contract in KNOWLEDGE.contracts.values() for name, values in contract.decisions.items()}
    drafts = {name: values for contract in KNOWLEDGE.drafts.values() for name, values in contract.decisions.items()}
    for claim in claims.CLAIMS:
        assert claim.option in (options | drafts)[claim.decision], claim


def test_functions_that_torch_compile_was_given_are_counted() -> None:
    before = honest.compiled()["frames"]
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert honest.compiled()["frames"] > before
