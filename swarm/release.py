"""Writes the accepted engine's folder: whole or not at all."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.hashing import sha256, sha256_json
from ckb.records import Choice
from ckb.space import selection
from gpu_actors.benchmark_jobs import Benchmark
from gpu_actors.jobs import Verdict
from roles.briefs import Span
from swarm.ablation import Ablation, results
from swarm.accepted import in_full
from swarm.context import Context
from swarm.events import Merged
from swarm.paths import engines_dir, home
from swarm.target import Target

MANIFEST_FORMAT = 2


class Manifest(Frozen):
    """What is known of an engine: manifest.json, beside its modules."""

    format: int = MANIFEST_FORMAT
    engine: str
    """Folder name, and the package name that imports it."""
    tree: str
    """ckb.hashing.tree_sha256 of the modules."""
    run: str
    commit: str
    checkpoint: str
    """Hugging Face directory that it was made for, as the Target names it."""
    target: Target
    plan: str
    """Hash of the frozen plan."""
    ckb_version: int
    contracts: dict[str, str]
    """Contract id -> hash of the row."""
    fragments: dict[str, str]
    """Fragment id -> hash of the row; empty for an author that does not compose."""
    choices: dict[str, Choice]
    authors: tuple[str, ...]
    """Who answered as implementer for the tree: composer, litellm, ..."""
    spans: tuple[Span, ...]
    """Bill of materials: which lines came from which fragment. Lines that nobody composed are in none."""
    files: dict[str, str]
    """File -> sha256."""
    lines: int
    verdicts: tuple[Verdict, ...]
    """All that this very tree passed, in order: the gates of its stages or its round, acceptance on the fixed prompts
    and on fresh ones."""
    benchmark: Benchmark
    ablations: tuple[Ablation, ...] = ()
    """What each mechanism that was kept in a round is worth in this very tree."""


def write_engine(context: Context, merged: Merged, benchmark: Benchmark) -> str:
    """Writes engines/<target>/engine_<tree>/ and points engines/<target>/latest at it; returns its path below home().

    The folder is made beside its place and renamed, so that nobody ever sees half an engine.
    """
    assert context.state.started, "a run starts before it releases"
    if bad := context.state.violation_in(merged):
        raise UserError(f"{merged.tree[:12]} can't be released: {bad.row.candidate}, {bad.row.what}")
    if not in_full(context.state.passed(merged.tree), context.facts):
        ways = ", ".join(verdict.acceptance for verdict in context.state.passed(merged.tree)) or "none"
        raise UserError(f"{merged.tree[:12]} can't be released: it needs a full acceptance, it passed {ways}")
    name = f"engine_{merged.tree[:8]}"
    files = context.workspace.files(merged.commit)
    parent = engines_dir() / context.state.started.target
    draft = parent / f".{name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        for path, text in files.items():
            (draft / path).write_text(text, encoding="utf-8")
        manifest = manifest_of(context, name, merged, files, benchmark)
        (draft / "manifest.json").write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        publish(draft, parent / name)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return (parent / name).relative_to(home()).as_posix()


def manifest_of(context: Context, name: str, merged: Merged, files: dict[str, str], benchmark: Benchmark) -> Manifest:
    submitted = context.state.candidates[merged.candidate].submitted
    return Manifest(
        engine=name,
        tree=merged.tree,
        run=context.files.root.name,
        commit=merged.commit,
        checkpoint=context.target.model.path,
        target=context.target,
        plan=context.plan.sha256,
        ckb_version=context.plan.ckb_version,
        contracts={
            i: sha256_json(context.knowledge.contracts[i].model_dump(mode="json")) for i in context.plan.contract_ids
        },
        fragments={
            i: sha256_json(context.knowledge.fragments[i].model_dump(mode="json")) for i in composed_of(context, merged)
        },
        choices=merged.choices,
        authors=tuple(sorted({context.state.candidates[m.candidate].submitted.author for m in context.state.merges})),
        spans=submitted.spans if submitted.tree == merged.tree else tuple(spans_of(context, merged.commit, files)),
        files={path: sha256(text.encode()) for path, text in sorted(files.items())},
        lines=sum(text.count("\n") for text in files.values()),
        verdicts=tuple(context.state.passed(merged.tree)),
        benchmark=benchmark,
        ablations=results(context.state, context.plan, merged),
    )


def spans_of(context: Context, commit: str, files: Iterable[str]) -> Iterator[Span]:
    """The bill of materials of a merge of several candidates: each line has the span that it had in the tree of the
    candidate that brought it."""
    by_commit = {c.submitted.commit: c.submitted.spans for c in context.state.candidates.values()}
    for file in files:
        open_span: Span | None = None
        for number, written in enumerate(context.workspace.written(commit, file), 1):
            spans = by_commit.get(written.commit, ())
            theirs = next((s for s in spans if s.file == written.file and s.first <= written.line <= s.last), None)
            if open_span and theirs and (open_span.contract, open_span.fragment) == (theirs.contract, theirs.fragment):
                open_span = open_span.model_copy(update={"last": number})
                continue
            if open_span:
                yield open_span
            here = {"file": file, "first": number, "last": number}
            open_span = theirs.model_copy(update=here) if theirs else None
        if open_span:
            yield open_span


def composed_of(context: Context, merged: Merged) -> list[str]:
    """Ids of the fragments that a composed tree consists of, from the choices that it was made with."""
    submitted = context.state.candidates[merged.candidate].submitted
    if not submitted.spans:
        return []
    contracts = [context.knowledge.contracts[name] for name in context.plan.contract_ids]
    used = selection(contracts, context.knowledge.fragments.values(), context.facts, merged.choices)
    return sorted(fragment.id for _, fragment in used)


def publish(draft: Path, place: Path) -> None:
    """Puts a finished folder in its place, and points `latest` at it. A folder of the same tree is replaced."""
    old = place.with_name(f"{draft.name}.old")
    if place.exists():
        place.rename(old)
    draft.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    link = place.with_name(f"{draft.name}.link")
    link.unlink(missing_ok=True)
    link.symlink_to(place.name)
    link.replace(place.with_name("latest"))
