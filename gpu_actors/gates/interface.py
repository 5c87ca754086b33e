"""Level 1, on the text of a tree: each module offers what the contracts in force demand of it, by name and parameters.

Parameters are exact, names and order: other modules and the gates call by both. A class without `takes` must be made
without arguments; what a contract says nothing of is the implementer's. C++ functions are compared by types too.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ckb import native, syntax
from ckb.hashing import sha256_json
from ckb.records import Contract, Function, Stage
from gpu_actors.gates.base import Finding, Subject, failed, for_each_stage, passed

CALLED: dict[str, tuple[str, ...]] = {
    "setup": ("DTYPE", "setup"),
    "linear": ("pack", "linear"),
    "rms-norm": ("rms_norm",),
    "rope": ("rope",),
    "silu-mul": ("silu_mul",),
    "attention": ("attention",),
    "kv-cache": ("KVCache", "KVCache.append", "KVCache.keys", "KVCache.values", "KVCache.bytes"),
    "checkpoint": ("Weights", "Checkpoint", "Checkpoint.take", "Checkpoint.finish"),
    "weights": ("load_weights",),
    "model": ("Model", "Model.forward", "Model.head", "Model.step"),
    "sampler": ("Sampler", "Sampler.from_request", "Sampler.__call__"),
    "request": ("Request", "QueueFull"),
    "scheduler": ("Scheduler", "Scheduler.submit", "Scheduler.cancel", "Scheduler.close"),
    "tokenizer": ("Tokenizer", "Tokenizer.encode", "Tokenizer.decode", "Tokenizer.chat"),
    "text-stream": ("TextStream", "TextStream.feed", "TextStream.end"),
    "engine": ("Engine.load", "Engine.generate", "Engine.stream", "Engine.logits", "Engine.tokenizer"),
    "api-request": ("parse",),
    "api-answer": ("Answer", "Answer.pieces", "Answer.whole", "Answer.chunk"),
    "server": ("application",),
    "serve-command": ("main",),
}
"""Contract -> the names by which the drivers of the gates call an engine: they must be among what it offers."""


def rows_of(subject: Subject, stage: Stage) -> list[Contract]:
    """The contracts in force that a stage must fulfil with a module."""
    return [row for row in subject.job.rows if row.stage == stage and row.module]


def evidence(subject: Subject, rows: Sequence[Contract]) -> dict[str, object]:
    """Which rows were executed, by hash, and of which version of the knowledge base."""
    hashes = {row.id: sha256_json(row.model_dump(mode="json")) for row in rows}
    return {"ckb_version": subject.job.ckb_version, "contracts": hashes}


def interface(subject: Subject, stage: Stage) -> Finding:
    """Each module offers what the contracts in force demand of it, by name and parameters."""
    rows = rows_of(subject, stage)
    names = sorted({row.module for row in rows})
    files = {name: (subject.tree_dir / name).read_text("utf-8") for name in names if (subject.tree_dir / name).exists()}
    found = list(deviations(files, rows))
    if found:
        return failed(f"{len(found)} deviation(s): {'; '.join(found)}", deviations=found, **evidence(subject, rows))
    subject.call("record", functions=named(rows))
    count = sum(len(row.interface) + len(row.native) for row in rows)
    return passed(f"{count} names of {len(rows)} contracts in {len(names)} modules", **evidence(subject, rows))


def named(rows: Sequence[Contract], *, constants: bool = False) -> dict[str, list[str]]:
    """Module without .py -> what its contracts name and can be called, or its constants."""
    found: dict[str, list[str]] = {}
    for row in rows:
        names = [function.name for function in row.interface if is_constant(function) == constants]
        found.setdefault(Path(row.module).stem, []).extend(names)
    return found


def is_constant(function: Function) -> bool:
    """`NORMS`, `Class.LIMIT`: by its spelling, since a function without parameters has the same columns."""
    return function.name.rpartition(".")[2].isupper()


def deviations(files: Mapping[str, str], rows: Sequence[Contract]) -> Iterator[str]:
    """What the text of a tree does otherwise than its contracts say, one sentence each."""
    parsed: dict[str, ast.Module] = {}
    places: dict[tuple[str, int], str] = {}
    for row in rows:
        if other := places.get((row.module, row.order)):
            yield f"{row.id} and {other} have the same place, {row.order}, in {row.module}"
        places[row.module, row.order] = row.id
        offered = {function.name for function in row.interface}
        if unsaid := [name for name in CALLED.get(row.id, ()) if name not in offered]:
            yield f"{row.id}: the gates call {', '.join(unsaid)}, which the contract doesn't offer"
        if row.module not in files:
            yield f"{row.id}: there is no {row.module}"
            continue
        if row.module not in parsed:
            parsed[row.module] = ast.parse(files[row.module])
        module = parsed[row.module]
        for function in row.interface:
            yield from (f"{row.id}: {row.module}: {fault}" for fault in python(module, function))
        if row.native:
            text = native.source(module)
            for function in row.native:
                yield from (f"{row.id}: C++ of {row.module}: {fault}" for fault in cpp(text, function))


def python(module: ast.Module, function: Function) -> Iterator[str]:
    node = syntax.find(module, function.name)
    if node is None:
        yield f"no {function.name}"
        return
    given, wanted = syntax.parameters(module, node), [tensor.name for tensor in function.takes]
    if given is None:
        if wanted:
            yield f"{function.name} is nothing that can be called with ({', '.join(wanted)})"
        return
    if is_constant(function):
        yield f"{function.name} is no constant"
    if not wanted:
        given = given[: len(given) - syntax.optional(module, node)]
    if given != wanted:
        yield f"{function.name} takes ({', '.join(given)}), the contract says ({', '.join(wanted)})"


def cpp(text: str, function: Function) -> Iterator[str]:
    name = function.name.partition("<")[0]
    if not function.takes and not function.returns:
        if not native.is_type(text, name):
            yield f"no type {name}"
        return
    kind = native.constant(text, name)
    if not function.takes:
        if kind != function.returns[0].dtype:
            yield f"{name} is {kind or 'not there'}, the contract says {function.returns[0].dtype}"
        return
    found = native.function(text, name)
    if found is None:
        yield f"no function {name}"
        return
    returned = function.returns[0].dtype if function.returns else "void"
    if found.returns != returned:
        yield f"{name} returns {found.returns}, the contract says {returned}"
    if len(found.takes) != len(function.takes):
        yield f"{name} takes {len(found.takes)} arguments, the contract says {len(function.takes)}"
        return
    for (kind, given), tensor in zip(found.takes, function.takes, strict=True):
        if given and tensor.name[0] != "_" and given != tensor.name:
            yield f"{name} takes {given}, the contract says {tensor.name}"
        wanted = native.spaced(tensor.dtype)
        if kind != wanted and not (wanted.startswith("(") and kind in found.templates):
            yield f"{name}'s {tensor.name} is {kind}, the contract says {wanted}"


GATES = for_each_stage("interface", interface)
