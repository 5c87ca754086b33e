"""`enginesmith doctor`: what this machine has for the main job, and what follows from each lack."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from platform import python_version, release
from typing import Literal

from ckb.errors import UserError
from ckb.facts import Frozen, PlatformFacts
from ckb.operators import PlannedOperator, planned
from ckb.schemas.platforms import OperatorState, Platform, PlatformOperator, TriedOperator
from gpu_actors.operators import PACKAGES
from gpu_actors.say import Say, silent
from swarm import platform
from swarm.paths import free_gib, home, models_dir, store_dir

GIB = 2**30
DISK_GIB = 3.0
"""A model, its cache and some runs."""


class Finding(Frozen):
    """One thing that the main job may need."""

    what: str
    found: str
    state: Literal["fine", "limited", "missing"]
    """limited: the main job runs without it, with less; missing: it can't run."""
    consequence: str = ""
    """What follows from the lack, and what mends it."""


class OperatorFinding(Finding):
    """One operator library or instruction set; `found` is its speed, or why it has none."""

    device: str
    """What its kernel runs on: cpu, cuda."""
    status: OperatorState
    speed: str = ""
    why: str = ""
    """Why it is not usable."""
    tried: TriedOperator | None = None
    """The run that showed it; None for what needs none: an instruction set."""


def examine(*, probe: bool = False, say: Say = silent) -> list[Finding]:
    """Looks at this machine. Starts `--version` commands, one empty sandbox, and a small kernel of each operator
    library that was not tried before (`probe`: of each). `say` is told what takes seconds."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        system,
        processor,
        disk,
        devices,
        tools,
        packages,
        sandbox,
        data,
    )
    found = [finding for check in checks for finding in check()]
    return [*found, *operators(probe=probe, say=say)]


def lack(what: str, found: str, consequence: str, *, needed: bool = False) -> Finding:
    return Finding(what=what, found=found, state="missing" if needed else "limited", consequence=consequence)


def fine(what: str, found: str) -> Finding:
    return Finding(what=what, found=found, state="fine")


def system() -> Iterator[Finding]:
    yield fine("system", f"Linux {release()}")
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        yield fine("python", python_version())
    else:
        yield lack("python", python_version(), "3.11 or 3.12 is needed: make PYTHON=python3.12 install", needed=True)


def processor() -> Iterator[Finding]:
    isa = platform.cpu_isa()
    yield fine("processor", f"{platform.cpu_name()}, {platform.physical_cores()} core(s)")
    if "avx2" in isa or "asimd" in isa:
        yield fine("instruction sets", " ".join(isa))
    else:
        yield lack("instruction sets", " ".join(isa) or "none known", "no vector kernels: torch's operators are used")
    memory = platform.memory_limit() / GIB
    if memory >= 4:
        yield fine("memory", f"{memory:.1f} GiB")
    else:
        yield lack(
            "memory", f"{memory:.1f} GiB", "the demo needs about 4 GiB: lower search.parallel, or a larger machine"
        )


def disk() -> Iterator[Finding]:
    free = free_gib(home())
    if free >= DISK_GIB:
        yield fine("disk", f"{free:.1f} GiB free at {home()}")
    else:
        advice = f"about {DISK_GIB:.0f} GiB are wanted: free some, or set ENGINESMITH_HOME to another disk"
        yield lack("disk", f"{free:.1f} GiB free at {home()}", advice)


def devices() -> Iterator[Finding]:
    found = platform.gpus()
    if not found:
        yield lack("cuda devices", "none", "Targets with hardware.accelerator: cuda can't run here; cpu can")
    for gpu in found:
        yield fine("cuda device", f"{gpu.name}, {gpu.memory_bytes / GIB:.0f} GiB, capability {gpu.capability}")


def tools() -> Iterator[Finding]:
    git = version_line("git")
    yield fine("git", git) if git else lack("git", "none", "every candidate is a git branch: install git", needed=True)
    compiler = os.environ.get("CXX", "c++")
    line = version_line(compiler)
    without = "engines use torch's own operators and are slower"
    yield fine("c++ compiler", line) if line else lack("c++ compiler", f"no {compiler}", f"{without}: install g++")
    ninja = platform.find_tool("ninja")
    yield fine("ninja", ninja) if ninja else lack("ninja", "none", f"{without}: pip install ninja")
    headers = platform.python_headers()
    advice = f"{without}: install the python3-dev package of this Python"
    yield fine("python headers", str(headers)) if headers.is_file() else lack("python headers", "none", advice)


def version_line(command: str) -> str:
    """First line of `command --version`, or "" without such a command."""
    if not shutil.which(command):
        return ""
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout.splitlines() or [""])[0]


def packages() -> Iterator[Finding]:
    for name in ("ray", "torch", "transformers", "pyarrow"):
        yield package(name, "make install")
    model = os.environ.get("ENGINESMITH_MODEL", "")
    if model:
        yield fine("language model", f"{model} (ENGINESMITH_MODEL)")
    else:
        yield lack("language model", "none", "the built-in composer answers every role; `init` can't read free words")


def package(name: str, install: str) -> Finding:
    try:
        return fine(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return lack(name, "not installed", f"the main job needs it: {install}", needed=True)


def sandbox() -> Iterator[Finding]:
    from gpu_actors.layers import NOTHING_OPEN
    from gpu_actors.sandbox import Confinement, Sandbox

    try:
        with Sandbox([sys.executable, "-c", "pass"], Confinement()) as child:
            child.wait(30)
            words = child.isolation
    except UserError as error:
        yield lack("sandbox", "can't be set up", str(error), needed=True)
        return
    left = words.partition("; open: ")[2]
    if left != NOTHING_OPEN:
        yield lack("sandbox", words, f"generated code is less confined, open is: {left}{without_bubblewrap(words)}")
    else:
        yield fine("sandbox", words)


def without_bubblewrap(words: str) -> str:
    """What mends most of what is open, where it is missing."""
    return (
        "" if "bubblewrap" in words else ". Install bubblewrap (the program bwrap), if user namespaces are allowed here"
    )


def operators(*, probe: bool, say: Say) -> Iterator[Finding]:
    """Operator libraries on every kind of device of this machine, and the instruction sets that its row names."""
    from ckb.build import read_seed
    from ckb.operators import describing
    from swarm.operators import try_here

    platforms = [row for row in read_seed()["platforms"] if isinstance(row, Platform)]
    kinds: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda") if platform.gpus() else ("cpu",)
    for kind in kinds:
        here = platform.detect(kind)
        rows = describing(here, platforms)
        listed = [operator for row in rows for operator in row.operators]
        names = [operator.name for operator in listed if operator.name in PACKAGES]
        try:
            tried = try_here(names, here, again=probe, say=say)
        except UserError as error:
            yield lack(f"operators on {kind}", "not tried", str(error))
            return
        own = [operator for operator in tried if operator.device == kind]  # C++ is the host's on every kind
        yield from (tried_finding(operator) for operator in planned(own, rows))
        yield from (isa_finding(entry, here) for entry in listed if entry.name in platform.KERNEL_ISA)


def tried_finding(planned: PlannedOperator) -> OperatorFinding:
    operator = planned.operator
    needed = operator.name == "torch" and operator.device == "cpu"
    failed: Literal["limited", "missing"] = "missing" if needed else "limited"
    return OperatorFinding(
        what=operator.name,
        found=operator.words,
        state="fine" if operator.state == "usable" else failed,
        consequence=f"Instead: {planned.fallback}" if planned.fallback else "",
        device=operator.device,
        status=operator.state,
        speed=operator.speed,
        why=operator.why,
        tried=operator,
    )


def isa_finding(entry: PlatformOperator, here: PlatformFacts) -> OperatorFinding:
    """An instruction set: the processor says whether it has it."""
    there = entry.name in here.isa
    return OperatorFinding(
        what=entry.name,
        found=f"the processor {'has' if there else 'lacks'} it",
        state="fine" if there else "limited",
        consequence=f"Instead: {entry.fallback}" if entry.fallback and not there else "",
        device="cpu",
        status="usable" if there else "absent",
        why="" if there else "the processor lacks it",
    )


def data() -> Iterator[Finding]:
    models = sorted(str(p.parent.relative_to(models_dir())) for p in config_files(models_dir()))
    if models:
        yield fine("models", ", ".join(models))
    else:
        yield lack("models", f"none in {models_dir()}", "enginesmith fetch smollm2-135m")
    yield from knowledge_base(store_dir())


def knowledge_base(place: Path | str) -> Iterator[Finding]:
    if isinstance(place, Path) and not (place / "versions").is_dir():
        yield fine("knowledge base", "the seed; the first run builds the store from it")
        return
    from ckb.store import Store
    from ckb.versions import NoStore

    try:
        yield fine("knowledge base", f"version {Store(place).latest} at {place}")
    except NoStore:
        yield fine("knowledge base", f"the seed; the first run builds the store at {place} from it")
    except (UserError, OSError) as error:
        yield lack("knowledge base", f"{place} can't be read", f"{error}: see to ENGINESMITH_STORE", needed=True)


def config_files(folder: Path) -> list[Path]:
    """config.json of each model one or two folders down, unfinished downloads left out."""
    found = [*folder.glob("*/config.json"), *folder.glob("*/*/config.json")]
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
