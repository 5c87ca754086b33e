"""Level 0: that the tree is the one that was asked about, small, and made of nothing but itself and what is allowed."""

import ast
import secrets
from dataclasses import replace
from pathlib import Path

from ckb.audit import violations
from ckb.fingerprints import copied_spans
from ckb.hashing import tree_files, tree_sha256
from ckb.violations import Violation
from gpu_actors.child import ChildFailure
from gpu_actors.gates import native
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.evidence import Modules, Objects, Spans, Text, Told, Watched
from gpu_actors.readable import FORBIDDEN_PACKAGES

LINE_LIMIT = 1200


def tree(subject: Subject) -> Finding:
    """Only Python modules, the hash is the job's, every module parses, and together they have at most 1,200 lines."""
    if strange := not_modules(subject.tree_dir):
        return failed(f"a tree holds Python modules only, its hash covers nothing else; found {strange[:5]}")
    found = tree_sha256(subject.tree_dir)
    if found != subject.job.engine.tree:
        return failed(f"the tree's hash is {found}, the job is about {subject.job.engine.tree}")
    lines = 0
    for path in tree_files(subject.tree_dir):
        source = path.read_text(encoding="utf-8", errors="replace")
        lines += len(source.splitlines())
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deep
            return failed(f"{path.name} does not parse: {str(error) or type(error).__name__}")
    if not lines or lines > LINE_LIMIT:
        return failed(f"the tree has {lines:,} lines of Python; the limit is {LINE_LIMIT:,}, and there must be some")
    return passed(f"tree {found[:12]}, {lines} lines of at most {LINE_LIMIT}", lines=lines)


def not_modules(root: Path) -> list[str]:
    """Files that the tree's hash does not cover: data, sources of another language, links. What Python and an engine's
    own kernel build write (__pycache__) is no part of a tree."""
    covered = set(tree_files(root))
    files = (p for p in root.rglob("*") if p.is_symlink() or p.is_file())
    return sorted(str(p.relative_to(root)) for p in files if p not in covered and "__pycache__" not in p.parts)


def loaded_modules(subject: Subject) -> Finding:
    """What the engine's process has imported: its own modules from its own folder, and no forbidden package."""
    reply = subject.call("loaded")
    package, modules = reply.value("package", str), reply.value("modules", dict[str, str])
    forbidden = sorted({name.partition(".")[0] for name in modules} & set(FORBIDDEN_PACKAGES))
    root = subject.tree_dir.resolve()
    own = {name: file for name, file in modules.items() if name.startswith(package + ".")}
    outside = sorted(name for name, file in own.items() if not Path(file).resolve().is_relative_to(root))
    if forbidden or outside or not own:
        return failed(
            f"forbidden packages {forbidden}, modules from outside the tree {outside}, own modules {len(own)}"
        )
    return passed(f"{len(own)} modules, all from the tree; no forbidden package", modules=sorted(own))


def watched(subject: Subject) -> Finding:
    """What the engine's process, and its server's, tried since they began (drivers/watch.py) is nothing forbidden, and
    the watch still tells."""
    candidate, told = subject.job.candidate, subject.child.told
    asked, done, failure = secrets.token_hex(8), {}, None
    try:
        if subject.child.alive:
            reply = subject.call("mark", nonce=asked)
            done = {name: reply.value(name, list[str]) for name in ("imports", "loaded", "started")}
    except ChildFailure as ended:  # what it told before is in the pipe
        failure = ended
    told.read()
    rows = told.rows(candidate, "watched")
    if not rows and done and (what := told.changed(asked, subject.tree_dir)):
        rows = (Violation(candidate=candidate, gate="watched", kind="runtime", file="", line=0, what=what),)
    if rows:
        summary = f"{len(rows)} violation(s); {place(rows[0])}"
        return replace(failed(summary, violations=[place(row) for row in rows]), violations=rows)
    if failure:
        raise failure
    return passed(f"nothing forbidden among {len(done.get('imports', ()))} imports", **done)


def place(row: Violation) -> str:
    return f"{row.file}:{row.line} {row.what}" if row.file else row.what


def audit(subject: Subject) -> Finding:
    """What the tree imports, executes and loads, from its syntax trees alone (ckb.audit)."""
    found = violations(subject.tree_dir, subject.job.engine.operators)
    if found:
        told = [f"{item.file}:{item.line} {item.what}" for item in found]
        rows = tuple(
            Violation(
                candidate=subject.job.candidate,
                gate="audit",
                kind="static",
                file=item.file,
                line=item.line,
                what=item.what,
            )
            for item in found
            if not item.unreadable  # which says nothing of where it comes from
        )
        return replace(failed(f"{len(found)} violation(s); {told[0]}", violations=told), violations=rows)
    operators = ", ".join(subject.job.engine.operators)
    return passed(f"nothing but the standard library, an engine's libraries and {operators}")


def copied(subject: Subject) -> Finding:
    """That no span of 8 or more normalised lines is a pinned framework release's (ckb.fingerprints)."""
    root = subject.tree_dir
    paths = tree_files(root)
    files = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8", errors="replace") for p in paths}
    if spans := copied_spans(files):
        told = [str(span) for span in spans]
        rows = tuple(
            Violation(
                candidate=subject.job.candidate,
                gate="copied",
                kind="copied",
                file=span.file,
                line=span.first,
                what=f"lines {span.first} to {span.last} are in {span.project} {span.release}, {span.source}",
            )
            for span in spans
        )
        return replace(failed(f"{len(spans)} copied span(s): {'; '.join(told)}", spans=told), violations=rows)
    return passed(f"no span of {len(files)} files is in the table of fingerprints")


WATCHED = Gate("watched", "provenance", "execution", watched, level="L0", evidence=Watched)
STATIC = (
    Gate("tree", "provenance", "execution", tree, level="L0", evidence=Text),
    Gate("audit", "provenance", "execution", audit, level="L0", evidence=Told),
    Gate("copied", "provenance", "execution", copied, level="L0", evidence=Spans),
)
RUNTIME = (
    Gate("loaded_modules", "provenance", "execution", loaded_modules, level="L0", evidence=Modules),
    Gate("native_objects", "provenance", "execution", native.objects, level="L0", evidence=Objects),
    WATCHED,
)
