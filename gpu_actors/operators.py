"""Whether the operator libraries of this machine work: one small real kernel of each, in the sandbox.

Whatever a library does there (it does not import, crashes, hangs, takes all memory, answers wrong numbers) becomes a
row of the table. What is right is computed here, in float64, from the inputs that the child was given.
"""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from platform import python_version
from statistics import median
from typing import Any, Literal

import numpy as np

from ckb.facts import PlatformFacts
from ckb.hashing import sha256_file
from ckb.operators import CPP
from ckb.schemas.platforms import Measurement, OperatorState, TriedOperator
from gpu_actors import processes
from gpu_actors.child import DRIVERS, Child, ChildFailure
from gpu_actors.gpus import grant
from gpu_actors.lease import Lease, physical_devices
from gpu_actors.machine import ForeignLoad
from gpu_actors.nvml import driver_version
from gpu_actors.operators_cache import Cache
from gpu_actors.operators_inputs import Problem, attention, product
from gpu_actors.readable import site_folders
from gpu_actors.sandbox import Confinement
from gpu_actors.say import Say, silent

DRIVER = DRIVERS / "operators.py"
SOURCES = (DRIVER, DRIVERS / "operators_triton.py", Path(__file__), Path(__file__).with_name("operators_inputs.py"))
"""What a row's meaning depends on: tried again when one of them changes."""
PACKAGES: dict[str, tuple[str, str]] = {
    "torch": ("torch", "torch"),
    CPP: ("torch", "torch"),
    "triton": ("triton", "triton"),
    "flash_attn": ("flash_attn", "flash-attn"),
    "flashinfer": ("flashinfer", "flashinfer-python"),
    "mlx": ("mlx", "mlx"),
}
"""Operator that can be tried -> the package that is imported, and the distribution that holds it."""
ALONE = ("mlx", "torch")
"""What does not stand on torch's tensors; torch itself."""
ATTENTION = ("flash_attn", "flashinfer")
REPEATS = 5
WHY_LENGTH = 300


@dataclass(frozen=True)
class Rules:
    """What one try may take."""

    mode: Literal["auto", "none"] = "auto"
    """As in sandbox.Confinement: the confinement that engines will have."""
    deadline_s: float = 120.0
    """For one library, from its import to the last answer. Some compile their kernels first."""
    memory_bytes: int = 0
    """Most resident memory of the child; 0 is half of the machine's."""


STANDARD = Rules()


def try_operators(
    names: Iterable[str],
    platform: PlatformFacts,
    cache_dir: Path,
    *,
    rules: Rules = STANDARD,
    again: bool = False,
    say: Say = silent,
) -> tuple[TriedOperator, ...]:
    """One row for each name, in their order; `untried` is one that is here and that no kernel of ours calls. `again`:
    also those that were tried before. Raises UserError where the sandbox can't be set up.
    """
    wanted = tuple(dict.fromkeys(names))
    kept = Cache(cache_dir / "operators")
    tries = {name: Try(name, platform, rules) for name in wanted}
    rows = {name: row for name, one in tries.items() if (row := one.known() or (not again and kept.get(one.key)))}
    if missing := [name for name in wanted if name not in rows]:
        say(f"trying {', '.join(missing)} with a small kernel each, once for a machine and its versions")
        with (
            Lease(physical_devices(platform.accelerator), exclusive=False, on_wait=say),
            Workshop(platform, rules) as shop,
        ):
            for name in missing:
                torch = rows.get("torch")
                if torch and torch.state != "usable" and name not in ALONE:
                    rows[name] = tries[name].row("installed", why=f"it stands on torch, which is {torch.words}")
                    continue
                rows[name], lasting = tries[name].run(shop)
                kept.put(tries[name].key, rows[name], lasting=lasting)
    return tuple(rows[name] for name in wanted)


class Workshop:
    """The child that tries one library after the other; after a failure the next one gets a child of its own, since
    nobody knows what the last one has left behind. A context manager."""

    def __init__(self, platform: PlatformFacts, rules: Rules):
        self._given = grant(platform.accelerator)
        self._rules = rules
        self._child: Child | None = None

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        if self._child:
            self._child.close()
        self._child = None

    @property
    def confinement(self) -> Confinement:
        return Confinement(
            mode=self._rules.mode,
            memory_bytes=self._rules.memory_bytes or processes.memory_bytes() // 2,
            devices=self._given.devices,
            environment=self._given.environment,
            operators=tuple(module for module, _ in PACKAGES.values()),
        )

    def child(self) -> Child:
        if self._child is None:
            self._child = Child(DRIVER, self.confinement)
        return self._child


class Try:
    """One library on one machine."""

    def __init__(self, name: str, platform: PlatformFacts, rules: Rules):
        self.name = name
        self.device = "cuda" if platform.accelerator == "cuda" and name != CPP else "cpu"
        self._platform = platform
        self._rules = rules
        self._module, self._distribution = PACKAGES.get(name, (name, name))
        self._origin = origin(self._module)

    def known(self) -> TriedOperator | None:
        """The row of what is not there, or of what nothing of ours calls: no run is needed to see that."""
        if self._origin is None:
            return self.row("absent", why=f"no package {self._module} is installed where engines can import it")
        if self.name == CPP and self._platform.compiler is None:
            return self.row("absent", why="no C++ compiler with ninja and Python's headers")
        if self.name not in PACKAGES:
            return self.row("untried", why=f"it is installed, and no kernel of ours calls {self._module}")
        return None

    @property
    def libraries(self) -> dict[str, str]:
        """Versions that the outcome may depend on."""
        found = {"python": python_version(), self._module: installed_version(self._distribution)}
        if self.name not in ALONE:
            found["torch"] = installed_version("torch")
        if self.name == CPP and self._platform.compiler:
            found["compiler"] = compiler_version(self._platform.compiler)
        if self.device == "cuda":
            found["driver"] = driver_version()
        return found

    @property
    def key(self) -> list[Any]:
        """All that the row depends on. A package that was installed anew is another one, whatever its version."""
        machine = self._platform.model_dump(mode="json", exclude={"operators", "count", "memory_bytes"})
        package = [str(self._origin), self._origin.stat().st_mtime_ns] if self._origin else []
        sources = [sha256_file(path) for path in SOURCES]
        return [self.name, self.device, machine, self.libraries, package, self._rules.mode, sources]

    def run(self, shop: Workshop) -> tuple[TriedOperator, bool]:
        """The row, and whether it will last until something is installed or changed."""
        draws = np.random.default_rng()
        make = attention if self.name in ATTENTION else product
        problem = make(self.device, REPEATS, self._platform.cores, draws)
        child = shop.child()
        others = ForeignLoad(child)
        isolation = child.sandbox.isolation
        try:
            answers, seconds = self._attempt(child, problem)
        except ChildFailure as failure:
            shop.clear()
            return self.row("installed", why=reason(failure, self._rules), sandbox=isolation), lasts(failure)
        share = others.share()
        if why := problem.wrong(answers):
            shop.clear()
            return self.row("installed", why=why, sandbox=isolation), True
        speeds = speeds_of(problem, seconds, self._machine)
        return self.row("usable", speeds=speeds, foreign_cpu=share, sandbox=isolation), True

    def _attempt(self, child: Child, problem: Problem) -> tuple[np.ndarray[Any, np.dtype[Any]], list[float]]:
        """Answers and seconds of the runs. Raises ChildFailure."""
        how = {"dtype": problem.dtype, "threads": problem.threads, "copies": problem.copies}
        counts = {"launches": problem.launches, "repeats": REPEATS}
        values = {"name": self.name, "device": self.device, **how, **counts}
        reply = child.call("attempt", self._rules.deadline_s, **values, **problem.arrays)
        seconds = reply.value("seconds", list[float])
        if len(seconds) != REPEATS or min(seconds) <= 0:
            raise ChildFailure("PROTOCOL", f"{REPEATS} positive times were asked for, it answered {seconds}")
        return reply.array("answers"), seconds

    @property
    def _machine(self) -> str:
        here = self._platform
        if self.device != here.accelerator:
            return f"the host of {here.name}"
        return f"{here.name} ({here.architecture or 'architecture unknown'})"

    def row(
        self,
        state: OperatorState,
        *,
        why: str = "",
        speeds: tuple[Measurement, ...] = (),
        foreign_cpu: float = 0.0,
        sandbox: str = "",
    ) -> TriedOperator:
        return TriedOperator(
            name=self.name,
            device=self.device,
            state=state,
            why=why,
            speeds=speeds,
            foreign_cpu=foreign_cpu,
            libraries={} if state == "absent" else self.libraries,
            machine=self._machine,
            tried="" if state in ("absent", "untried") else datetime.now(UTC).isoformat(timespec="seconds"),
            sandbox=sandbox,
        )


def speeds_of(problem: Problem, seconds: list[float], source: str) -> tuple[Measurement, ...]:
    """Median of the runs, as a rate and as a time."""
    middle = median(seconds)
    what = f"{problem.what}, median of {len(seconds)} runs"
    return (
        Measurement(what=what, value=problem.read_bytes / middle / 1e9, unit="GB/s", source=source),
        Measurement(what=what, value=1e3 * middle, unit="ms", source=source),
    )


def reason(failure: ChildFailure, rules: Rules) -> str:
    """One line that says what the library did. Of a failed build it holds the first error of the compiler."""
    if failure.kind == "TIMEOUT":
        return f"it hung: no answer within {rules.deadline_s:g} s"
    lines = [" ".join(line.split()) for line in str(failure).splitlines() if line.strip()]
    errors = [line for line in lines[1:] if "error" in line.lower()]
    return ": ".join([*lines[:1], *errors[:1]])[:WHY_LENGTH] or failure.kind


def lasts(failure: ChildFailure) -> bool:
    """Whether the same will happen at the next try: not where load or another process's memory may be the cause."""
    return (
        failure.kind == "RAISED" and "out of memory" not in str(failure).lower() and "Memory" not in failure.error_type
    )


def origin(module: str) -> Path | None:
    """The file that a child would import a package from, found without running any of it."""
    spec = PathFinder.find_spec(module, [str(folder) for folder in site_folders()])
    if spec is None:
        return None
    if spec.origin and Path(spec.origin).is_file():
        return Path(spec.origin)
    return next((Path(place) for place in spec.submodule_search_locations or ()), None)


def installed_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


@cache
def compiler_version(command: str) -> str:
    """First line of `--version`, "unknown" where it has none."""
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0]
