"""Level 0: that what a candidate compiled computes and does no more, whatever its source looked like.

The parent reads every shared object below the folders that the candidate may write, as the loader would: names that are
looked up elsewhere, and functions that run before anybody calls one. It sees no system call that is written in machine
code, and no address that is computed; the audit refuses the assembler that both need (ckb.audit_native).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ckb.audit_native import refused_symbol
from ckb.violations import Violation
from gpu_actors import shared_objects
from gpu_actors.gates.base import Finding, Subject, failed, passed
from gpu_actors.observed import files_below, gone_code
from gpu_actors.shared_objects import Unreadable

GATE = "native_objects"
MOST = 2000
"""Objects that are read. A verdict compiles a handful; Triton one for each of its launchers."""
SHOWN = 40
TRITON = re.compile(r"triton/[A-Z2-7]{52}/(?:cuda_utils|__triton_launcher)(?:\.[\w-]+)?\.so")
"""Where Triton puts the two extensions that it compiles for itself, below a kernel cache: a folder by the hash of their
source. They may reach into the interpreter and find the driver's library, and still run no text and no program. Where
there is no device to launch on, nobody needs them."""


def objects(subject: Subject) -> Finding:
    """No object that the candidate could load asks for more than what computes, or runs when it is loaded."""
    folders = subject.child.writable
    cuda = subject.facts.platform.accelerator == "cuda"
    gone = gone_code(subject.child.sandbox.pid, folders)
    told = [(name, "its code is loaded, and the file is gone") for name in gone]
    names: list[str] = []
    for path, name in found_below(folders):
        if wrong := what_is_wrong(path, triton=cuda and TRITON.fullmatch(name) is not None):
            told.append((name, wrong))
        elif wrong is not None:
            names.append(name)
        if len(names) + len(told) > MOST:
            told.append((name, f"is one of more than {MOST:,} objects"))
            break
    if told:
        rows = tuple(
            Violation(candidate=subject.job.candidate, gate=GATE, kind="runtime", file=name[-200:], line=0, what=what)
            for name, what in sorted(told)[:SHOWN]
        )
        said = [f"{row.file}: {row.what}" for row in rows]
        found = failed(f"{len(told)} violation(s); {said[0]}", violations=said, objects=sorted(names)[:SHOWN])
        return replace(found, violations=rows)
    return passed(f"{len(names)} shared object(s) ask for what computes, and run nothing when loaded",
                  objects=sorted(names)[:SHOWN])  # fmt: skip


def found_below(folders: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    """Every file below some folders, with its name from there."""
    for folder in folders:
        for file in sorted(files_below((folder,))):
            yield Path(file), Path(file).relative_to(folder).as_posix()


def what_is_wrong(path: Path, *, triton: bool = False) -> str | None:
    """Empty for an object that only computes, None for a file that is no object (or is gone)."""
    try:
        found = shared_objects.read(path)
    except Unreadable as error:
        return f"is a shared object that can't be read: {str(error)[:160]}"
    except OSError as error:
        return None if isinstance(error, FileNotFoundError) else f"can't be looked at: {error.strerror}"
    if found is None:
        return None
    reasons = [f"asks for {name}: {why}" for name in sorted(found.asks) if (why := refused_symbol(name, triton=triton))]
    reasons += [f"runs {name or 'a function without a name'} when it is loaded" for name in found.starts]
    reasons += ["finds its own functions by running code when it is loaded"] * found.resolves
    return "; ".join(reasons[:5])
