"""What this machine is and has."""

import json
import os
import sys
from pathlib import Path

import pytest

from ckb.errors import UserError
from ckb.schemas.platforms import PlatformOperator
from swarm import platform
from swarm.cli import main
from swarm.doctor import OperatorFinding, examine, isa_finding
from tests.unit.gpu_actors.broken_packages import install_flashinfer


def test_the_platform_is_what_the_kernel_says() -> None:
    found = platform.detect("cpu")
    assert 1 <= found.cores <= len(os.sched_getaffinity(0))
    assert found.name
    assert 2**28 < found.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert set(found.isa) <= set(platform.KERNEL_ISA)
    assert found == platform.detect("cpu"), "facts of one machine must not vary"


def test_affinity_limits_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert platform.physical_cores() == 1


def test_two_cpus_are_no_device_of_one_machine() -> None:
    with pytest.raises(UserError, match=r"hardware.count: 2 CPUs asked for"):
        platform.detect("cpu", 2)


def test_a_compiler_counts_only_with_ninja_and_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert platform.kernel_compiler() is None
    monkeypatch.setenv("CXX", sys.executable)
    assert (platform.kernel_compiler() is not None) == (
        platform.find_tool("ninja") is not None and platform.python_headers().is_file()
    )


def test_doctor_names_each_lack_with_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.delenv("ENGINESMITH_MODEL", raising=False)
    findings = examine()
    assert {f.what for f in findings} >= {"system", "python", "processor", "memory", "disk", "git", "ray", "sandbox"}
    assert all(f.consequence for f in findings if f.state != "fine")
    assert next(f for f in findings if f.what == "models").consequence == "enginesmith fetch smollm2-135m"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)  # which may name a compiler by its whole path
    assert main(["doctor", "--json"]) == 1
    bare = {f["what"]: f for f in json.loads(capsys.readouterr().out)}
    assert bare["git"]["state"] == "missing"
    assert bare["c++ compiler"]["state"] == "limited"
    assert "slower" in bare["c++ compiler"]["consequence"]
    assert (bare["cpp"]["status"], bare["cpp"]["state"]) == ("absent", "limited")
    assert "Instead: torch operators" in bare["cpp"]["consequence"]


def test_doctor_shows_each_operator_with_its_state_speed_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of everything that this machine has, and one of what changed: a package that answers wrong numbers."""
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    rows = {line.split()[0]: line for line in shown.out.splitlines() if " cpu " in line}
    assert "usable" in rows["torch"]
    assert "GB/s" in rows["torch"]
    assert "matrix-vector product in float32" in shown.out
    assert rows["flash_attn"].split()[:3] == ["flash_attn", "cpu", "absent"]
    assert "trying torch" in shown.err
    install_flashinfer(tmp_path / "site", "answers zeros", monkeypatch)
    findings = {f.what: f for f in examine() if isinstance(f, OperatorFinding)}
    assert findings["flashinfer"].status == "installed"
    assert "wrong numbers" in findings["flashinfer"].why
    assert "Instead: torch scaled_dot_product_attention" in findings["flashinfer"].consequence
    assert findings["torch"].tried
    assert findings["torch"].tried.tried, "known from before"


def test_an_instruction_set_needs_no_run() -> None:
    entry = PlatformOperator(name="avx512f", state="usable", fallback="avx2: half the width")
    here = platform.detect("cpu")
    has = isa_finding(entry, here.model_copy(update={"isa": ("avx512f",)}))
    assert (has.status, has.state, has.consequence) == ("usable", "fine", "")
    lacks = isa_finding(entry, here.model_copy(update={"isa": ()}))
    assert (lacks.status, lacks.state, lacks.consequence) == ("absent", "limited", "Instead: avx2: half the width")
