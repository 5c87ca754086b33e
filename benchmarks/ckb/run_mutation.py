"""python -m benchmarks.ckb mutation [--sample N --seed S] [--jobs N] [--minutes M] [--out FOLDER]

Who notices when a value of the seed knowledge is wrong? Every contract and fragment is mutated in its source
(benchmarks.ckb.mutation), the knowledge is rebuilt, and for each of some small Targets, in order of cost:

    coverage        the table of needs has a gap that it didn't have
    interface gate  the trees that the composer makes, stage by stage, against the rows in force: nothing is run
    other gates     where the trees are those of before, their recorded calls, refusals and states against the changed
                    rows; otherwise the trees themselves in the sandbox, up to the first gate that fails

Nothing else counts: not lint, not the types of the rows, and not a composition that stops. The Targets are 2-layer
checkpoints with random weights, so that together they ask for every fragment of the seed but those for devices; some
are of models that the seed does not cover, where a lost condition shows as an engine that fails. Run it from the
checkout: it needs its tests.
"""

import json
import multiprocessing
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

from benchmarks.ckb.mutation import Mutation, mutations
from ckb.build import read_seed
from ckb.coverage import coverage
from ckb.errors import KnowledgeGap, UserError
from ckb.facts import Facts
from ckb.hashing import sha256_json, tree_sha256
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import STAGES, Choice, Contract, Fragment
from ckb.space import Unsatisfiable, complete, in_force, selection
from gpu_actors.gates import calls, errors, states
from gpu_actors.gates.errors_experiments import Refusal
from gpu_actors.gates.interface import deviations
from gpu_actors.gates.states_experiments import States
from gpu_actors.jobs import EngineJob, VerifyJob
from gpu_actors.verifier import Verifier
from roles.author import AuthorError
from roles.authors.composer.assembly import compose
from tests.unit.gpu_actors import tiny

BUILT = STAGES[:3]
DEADLINE_S = 180.0
SAME = "the same trees in every case"
Files = dict[str, str]


@dataclass(frozen=True)
class Case:
    """A small Target, and the choices that an engine for it is made with."""

    name: str
    checkpoint: str
    facts: Facts
    change: Mapping[str, Choice] = field(default_factory=dict)


def facts(family: str, **changes: Any) -> Facts:
    """Those of a tiny checkpoint, with other values by name, whichever part they belong to."""
    held = tiny.facts(family)
    parts, changes = {}, {"isa": ("avx2", "fma")} | changes
    for part in ("model", "platform", "workload"):
        own = getattr(held, part)
        parts[part] = own.model_copy(update={k: v for k, v in changes.items() if k in type(own).model_fields})
    return held.model_copy(update=parts)


def cases() -> list[Case]:
    """From the cheapest to the dearest: an engine of torch alone needs no compiler."""
    plain = facts("llama", compiler=None)
    avx = {"isa": ("avx2", "fma", "avx512f"), "step": "graph"}
    return [
        Case("torch", "llama", plain),
        Case("sampling", "qwen3", facts("qwen3", compiler=None, decoding="sample"),
             {"weight_fusion": "fused", "kv_layout": "token_major"}),
        Case("native", "llama-bf16", facts("llama", weights="bf16"), {"attention": "native"}),
        Case("compiled", "llama", facts("llama", step="graph")),
        Case("bfloat16", "qwen3-bf16", facts("qwen3", weights="bf16", dtype="bfloat16", **avx),
             {"weight_fusion": "fused", "cpp-vectors.LANES": 16}),
        Case("attention bias", "llama-biased", facts("llama", compiler=None, attention_bias=True)),
        Case("mlp bias", "llama-biased", biased := facts("llama", compiler=None, mlp_bias=True)),
        Case("fused mlp bias", "llama-biased", biased, {"weight_fusion": "fused"}),
        Case("qk norm and bias", "llama-biased", facts("qwen3", compiler=None, attention_bias=True)),
        Case("sliding window", "llama", facts("llama", compiler=None, sliding_window=16)),
        Case("gelu", "llama", facts("llama", compiler=None, activation="gelu")),
        Case("scaled rope", "llama", facts("llama", compiler=None, rope_type="llama3")),
        Case("batch", "llama", facts("llama", compiler=None, kind="batch")),
    ]  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What a case's engine is made of: the tree after each stage, and the contracts in force."""

    trees: tuple[Files, ...]
    rows: tuple[Contract, ...]


@dataclass
class Baseline:
    """What is so before anything is mutated."""

    gaps: bool
    made: Made | None = None
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Gate -> the data of its finding."""


WORK = Path()
"""Folder of this measurement; workers are forked after it is set."""
BASELINES: dict[str, Baseline] = {}


@cache
def seed() -> dict[str, list[Any]]:
    return read_seed()


@cache
def originals() -> Knowledge:
    return read_knowledge()


def gaps_of(case: Case, knowledge: Knowledge) -> list[str]:
    rows = seed()
    table = coverage(case.facts, knowledge, rows["models"], rows["platforms"], rows["test_contracts"])
    return [f"{gap.kind} {gap.subject}: {gap.detail}" for gap in table.gaps]


def make(case: Case, knowledge: Knowledge) -> Made:
    """The trees of a case. Raises what stops a composition: KnowledgeGap, Unsatisfiable, UserError, AuthorError."""
    trees, choices = [], {}
    for number in range(1, len(BUILT) + 1):
        contracts = [c for c in knowledge.contracts.values() if c.stage in BUILT[:number]]
        owned = {contract.id for contract in contracts}
        fragments = [f for f in knowledge.fragments.values() if f.contract in owned]
        known = {name for c in contracts for name in c.decisions} | {f.id for f in fragments}
        change = {name: v for name, v in case.change.items() if name.partition(".")[0] in known}
        choices = complete(change, contracts, fragments, case.facts)
        trees.append(compose(selection(contracts, fragments, case.facts, choices), case.facts, choices)[0])
    built = [c for c in knowledge.contracts.values() if c.stage in BUILT]
    return Made(tuple(trees), tuple(in_force(built, case.facts, choices)))


def judge(case: Case, files: Files, rows: tuple[Contract, ...], number: int, evidence: str = "") -> tuple[str, Any]:
    """(first gate that fails or "", verdict) of the tree after `number` stages. Equal questions are asked once."""
    key = sha256_json([case.name, files, [row.model_dump(mode="json") for row in rows], number])
    answer = WORK / "answers" / f"{key}.json"
    if answer.exists() and not evidence:
        return str(json.loads(answer.read_text())), None
    folder = WORK / "trees" / f"tree_{key[:24]}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    tree = tree_sha256(folder)
    kernels = WORK / "cache" / "kernels" / tree / "compiled-engines"
    if not kernels.exists() and (WORK / "compiled").exists():
        shutil.copytree(WORK / "compiled", kernels)  # found by the hash of their source: only another one is built
    engine = EngineJob(tree=tree, tree_dir=str(folder), checkpoint=str(WORK / case.checkpoint), facts=case.facts)
    job = VerifyJob(
        candidate=case.name, engine=engine, stages=BUILT[:number], levels=("L0", "L1", "L2"), rows=rows,
        contracts=tuple(originals().contracts), seed=11, deadline_s=DEADLINE_S, evidence_dir=evidence,
    )  # fmt: skip
    verdict = None
    try:
        verdict = Verifier(WORK / "cache").verify(job)
        failed = next((f"gate {gate.gate}: {gate.summary[:160]}" for gate in verdict.failures), "")
    except UserError as error:  # a gate that has no formula for this model judges nothing, and lets nothing pass
        failed = f"gate forward: {error}"[:200]
    answer.parent.mkdir(parents=True, exist_ok=True)
    answer.write_text(json.dumps(failed))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(kernels.parent, ignore_errors=True) if not evidence else None
    return failed, verdict


def prepare(console: Console) -> None:
    """Checkpoints, and the baseline of each case: covered Targets must pass every gate."""
    for family in ("llama", "qwen3"):
        if not (WORK / family).exists():
            tiny.write_checkpoint(WORK / family, family)
            for name, change in (("bf16", "half"), ("biased", "bias")):
                other = WORK / f"{family}-{name}"
                shutil.copytree(WORK / family, other)
                tensors = load_file(other / "model.safetensors")
                if change == "half":
                    tensors = {key: tensor.bfloat16() for key, tensor in tensors.items()}
                else:
                    tensors |= {key.replace(".weight", ".bias"): tensor[:, 0].contiguous()
                                for key, tensor in tensors.items() if "_proj" in key}  # fmt: skip
                save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    for case in cases():
        found = gaps_of(case, originals())
        baseline = BASELINES[case.name] = Baseline(bool(found))
        if not found:
            baseline.made = make(case, originals())
            evidence = WORK / "evidence"
            failed, verdict = judge(case, baseline.made.trees[-1], baseline.made.rows, 3, str(evidence))
            if failed:
                raise UserError(f"case {case.name}: without any mutation the engine fails {failed}")
            for gate in verdict.gates:
                text = (evidence / f"{gate.evidence[0].sha256}.json").read_text()
                baseline.evidence[gate.gate] = json.loads(text)["data"]
            for library in (WORK / "cache" / "kernels").rglob("*.so"):
                (WORK / "compiled").mkdir(exist_ok=True)
                shutil.copy(library, WORK / "compiled" / library.name)
        console.print(f"case {case.name}: {'not covered: ' + found[0][:90] if found else 'passes every gate'}")


@dataclass(frozen=True)
class Row:
    """One mutation, and who noticed it."""

    table: str
    id: str
    field: str
    place: str
    what: str
    by: str
    """`coverage: ...`, `gate ...`; empty when nobody noticed."""
    note: str = ""
    """Of one that nobody noticed: what is known of it."""


def noticed(mutation: Mutation) -> Row:
    try:
        by, note = ("", "the row's type refuses it") if mutation.row is None else _noticed(mutation.row)
    except Exception as error:  # a fault of ours, and no notice: hours of measuring must not end with it
        by, note = "", f"a gate of ours failed: {type(error).__name__}: {error}"
    return Row(mutation.table, mutation.id, mutation.field, mutation.place, mutation.what, by, note)


def _noticed(row: Contract | Fragment) -> tuple[str, str]:
    known = originals()
    contracts, fragments = dict(known.contracts), dict(known.fragments)
    if isinstance(row, Contract):
        contracts[row.id] = row
    else:
        fragments[row.id] = row
    knowledge = Knowledge(contracts, fragments)
    covered: list[Case] = []
    for case in cases():
        gaps = gaps_of(case, knowledge)
        if gaps and not BASELINES[case.name].gaps:
            return f"coverage ({case.name}): {gaps[0][:200]}", ""
        if not gaps:
            covered.append(case)
    made: list[tuple[Case, Made]] = []
    notes = []
    for case in covered:
        try:
            made.append((case, make(case, knowledge)))
        except (KnowledgeGap, Unsatisfiable, UserError, AuthorError) as error:
            notes.append(f"composition stops ({case.name}): {error}"[:160])
    for case, one in made:
        if fault := on_paper(BASELINES[case.name], one, case.facts):
            return f"{fault} ({case.name})"[:260], ""
    differs = False
    for case, one in made:
        before = BASELINES[case.name].made
        for number in (3, 1, 2):
            if before is None or one.trees[number - 1] != before.trees[number - 1]:
                differs = True
                rows = tuple(r for r in one.rows if r.stage in BUILT[:number])
                if failed := judge(case, one.trees[number - 1], rows, number)[0]:
                    return f"{failed} ({case.name})", ""
    return "", "; ".join(notes[:1]) or ("other trees pass" if differs else SAME)


def on_paper(baseline: Baseline, made: Made, facts: Facts) -> str:
    """What the gates say of the changed rows without running anything."""
    for number, stage in enumerate(BUILT, 1):
        rows = [row for row in made.rows if row.stage == stage and row.module]
        try:
            if fault := next(deviations(made.trees[number - 1], rows), ""):
                return f"gate interface_{stage}: {fault}"
        except SyntaxError as error:
            return f"gate tree: {error}"
    if baseline.made is None or made.trees != baseline.made.trees:
        return ""
    for stage in BUILT:
        rows = [row for row in made.rows if row.stage == stage and row.module]
        data = baseline.evidence
        shown = {tuple(item[:3]): Refusal(**_tuples(item[3])) if item[3] else None
                 for item in data[f"errors_{stage}"]["refusals"]}  # fmt: skip
        if fault := next(errors.faults(rows, shown), ""):
            return f"gate errors_{stage}: {fault}"
        moves: dict[Any, States] = {tuple(i[:3]): (i[3], i[4]) for i in data[f"states_{stage}"]["states"]}
        if fault := next(states.faults(rows, moves), ""):
            return f"gate states_{stage}: {fault}"
        recorded = data[f"calls_{stage}"]
        if fault := next(calls.faults(rows, made.rows, recorded["calls"], recorded["values"], facts), ""):
            return f"gate calls_{stage}: {fault}"
    return ""


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"words": {name: tuple(texts) for name, texts in fields["words"].items()}}


def used() -> list[Contract | Fragment]:
    """The contracts and fragments that some covered case needs."""
    needed: dict[str, Contract | Fragment] = {}
    for case in cases():
        if (made := BASELINES[case.name].made) is None:
            continue
        needed |= {f"contract {row.id}": row for row in made.rows}
        known = originals()
        choices = complete(case.change, known.contracts.values(), known.fragments.values(), case.facts)
        chosen = selection(known.contracts.values(), known.fragments.values(), case.facts, choices)
        needed |= {f"fragment {fragment.id}": fragment for _, fragment in chosen}
    acceptance = [c for c in originals().contracts.values() if c.stage == "acceptance"]
    return [*needed.values(), *acceptance]


def report(rows: list[Row], planned: int) -> Iterator[Any]:
    """The table by field, the totals, and what nobody noticed."""
    table = Table("table", "field", "mutations", "noticed", "share", title="who notices a wrong value")
    every, right = Counter((r.table, r.field) for r in rows), Counter((r.table, r.field) for r in rows if r.by)
    for key in sorted(every):
        table.add_row(*key, str(every[key]), str(right[key]), f"{right[key] / every[key]:.0%}")
    yield table
    for row in rows:
        if not row.by:
            yield f"unnoticed: {row.table} {row.id} {row.place}, {row.what}: {row.note}"
    sites: dict[tuple[str, str, str], list[bool]] = {}
    for row in rows:
        sites.setdefault((row.table, row.id, row.place), []).append(bool(row.by))
    seen, whole = sum(map(any, sites.values())), sum(map(all, sites.values()))
    total = sum(right.values())
    yield Counter(row.by.partition(":")[0].partition(" (")[0] for row in rows if row.by).most_common()
    same = sum(not row.by and row.note == SAME and row.table == "fragments" for row in rows)
    yield (
        f"{total} of {len(rows)} mutations noticed ({total / len(rows):.1%}) of {planned} planned; "
        f"of {len(sites)} values {whole} ({whole / len(sites):.1%}) by every mutation, "
        f"{seen} ({seen / len(sites):.1%}) by one at least; "
        f"{same} of the unnoticed ones leave every tree as it was"
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder of the measurement; what it holds is not done again")],
    sample: Annotated[int, typer.Option(min=0, help="So many mutations at random; 0 is all")] = 0,
    seed_: Annotated[int, typer.Option("--seed", help="Which ones")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutations judged at once")] = 1,
    minutes: Annotated[float, typer.Option(min=0.1, help="Start no mutation after this")] = 120.0,
    only: Annotated[str, typer.Option(help="Fields that start with this")] = "",
) -> None:
    """Mutate the seed's knowledge and tell who notices."""
    global WORK
    end = time.monotonic() + 60 * minutes
    WORK = out.resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    console = Console(width=180, soft_wrap=True)
    prepare(console)
    planned = [m for row in used() for m in mutations(row) if m.field.startswith(only)]
    if sample:
        planned = random.Random(seed_).sample(planned, min(sample, len(planned)))
    kept = WORK / "rows.jsonl"
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    done = {(r.table, r.id, r.place, r.what): r for line in lines for r in [Row(**json.loads(line))]}
    wanted = [(m.table, m.id, m.place, m.what) for m in planned]
    left = [m for m, key in zip(planned, wanted, strict=True) if key not in done]
    random.Random(seed_).shuffle(left)  # whatever is left when time is up is a fair sample
    console.print(f"{len(planned)} mutations, {len(planned) - len(left)} known, seed {seed_}, {jobs} at once")
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool, kept.open("a") as file:
        waiting: set[Future[Row]] = set()
        queue = iter(left)
        while True:
            while len(waiting) < 2 * jobs and time.monotonic() < end and (item := next(queue, None)):
                waiting.add(pool.submit(noticed, item))
            if not waiting:
                break
            future = next(as_completed(waiting))
            waiting.remove(future)
            row = future.result()
            done[row.table, row.id, row.place, row.what] = row
            file.write(json.dumps(row.__dict__) + "\n")
            file.flush()
    found = [done[key] for key in wanted if key in done]
    for part in report(found, len(planned)):
        console.print(part)


if __name__ == "__main__":
    typer.run(main)
