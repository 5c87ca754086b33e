"""The shape of the repository: which package may import which, what ships, and what the project files promise."""

import ast
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import ray.autoscaler
import yaml
from jsonschema import Draft7Validator
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
ARROWS = {
    "swarm": {"roles", "ckb", "gpu_actors", "benchmarks"},
    "gpu_actors": {"benchmarks", "ckb"},
    "roles": {"ckb"},
    "benchmarks": {"ckb"},
    "ckb": set(),
}
"""Package -> the packages of ours that it may import."""
FORBIDDEN = {"swarm": {"torch"}, "roles": {"ray", "git"}, "ckb": {"ray", "litellm"}, "gpu_actors": {"litellm"}}
"""Package -> what it must do without, at any level of any function."""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules(package: str) -> list[Path]:
    """The modules of a package, without the stand-alone scripts, which may import all."""
    files = (ROOT / package).rglob("*.py")
    return sorted(f for f in files if "knowledge" not in f.parts and not f.name.startswith("run_"))


def imported(source: str) -> set[str]:
    """Top-level names of everything that a module imports, function bodies included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def violations(package: str, source: str) -> set[str]:
    names = imported(source)
    return (names & ARROWS.keys()) - ARROWS[package] - {package} | names & (FORBIDDEN.get(package, set()) | {"tests"})


@pytest.mark.parametrize("package", ARROWS)
def test_arrows_between_packages_go_one_way(package: str) -> None:
    files = modules(package)
    assert files
    wrong = {
        str(f.relative_to(ROOT)): bad for f in files if (bad := violations(package, f.read_text(encoding="utf-8")))
    }
    assert wrong == {}


def test_a_wrong_arrow_is_noticed_wherever_it_hides() -> None:
    hidden = "def f():\n    from swarm.paths import home\n    import torch.nn\n"
    assert violations("gpu_actors", hidden) == {"swarm"}
    assert violations("swarm", hidden) == {"torch"}
    assert violations("ckb", "import gpu_actors.jobs as j") == {"gpu_actors"}


def test_the_wheel_holds_the_five_packages_and_no_tests() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    shipped = {f.name for f in ROOT.iterdir() if f.is_dir() and any(fnmatch(f.name, p) for p in patterns)}
    assert shipped == set(ARROWS)
    for package in ARROWS:
        assert (ROOT / package / "py.typed").exists()
        assert (ROOT / package / "__init__.py").exists()


def test_every_requirement_has_an_exact_pin_that_its_range_admits() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            (spec,) = pin.specifier
            assert spec.operator == "==", line
            pins[canonical(pin.name)] = Version(spec.version)
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = PYPROJECT["project"]["dependencies"] + [line for extra in extras.values() for line in extra]
    for requirement in map(Requirement, wanted):
        if requirement.name == PYPROJECT["project"]["name"]:
            assert requirement.extras <= extras.keys(), "an extra may take in another of ours"
            continue
        assert pins[canonical(requirement.name)] in requirement.specifier, requirement


def test_litellm_is_pinned_exactly_because_some_of_its_releases_were_compromised() -> None:
    (litellm,) = (r for r in map(Requirement, PYPROJECT["project"]["dependencies"]) if r.name == "litellm")
    assert re.fullmatch(r"==[\d.]+", str(litellm.specifier))
    assert not any(bad in litellm.specifier for bad in ("1.82.7", "1.82.8", "1.107.0"))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_rules_for_agents_fit_on_a_page() -> None:
    lines = (ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()
    assert 10 < len(lines) <= 60
    assert "## Never" in lines
    assert (ROOT / "CLAUDE.md").read_text(encoding="utf-8") == "@AGENTS.md\n"


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "exec make test"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test" in readme
    assert "make demo" in readme


def test_cluster_yaml_is_what_the_cluster_launcher_takes() -> None:
    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8"))
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    assert [error.message for error in Draft7Validator(schema).iter_errors(cluster)] == []
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        assert "RAY_AUTH_MODE=token" in commands[-1], "ray start is open to everyone without it"
        assert "ENGINESMITH_HOME" in cluster["setup_commands"][0]
