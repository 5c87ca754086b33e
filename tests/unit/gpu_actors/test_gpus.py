"""Which NVIDIA devices are leased and passed on, however they are spelled, and what is refused."""

import sys
from pathlib import Path

import pytest

from ckb.errors import UserError
from gpu_actors.engine_process import confinement
from gpu_actors.gpus import VARIABLE, Gpu, grant, visible
from gpu_actors.lease import Lease, physical_devices
from gpu_actors.operators import STANDARD, Workshop
from tests.unit.gpu_actors import tiny

UUIDS = ("GPU-d0", "GPU-c1", "GPU-b2", "GPU-a3")
"""By NVML's index; the minor number of each is 3 less the index."""
SLICE = "MIG-77"
"""Of the device of index 2."""


class Library:
    """The functions of pynvml that tell which device is which."""

    class NVMLError(Exception):
        pass

    def __init__(self, present: bool = True, count: int = 4, names: tuple[str, ...] = ("H200",), denied: int = -1):
        self.present, self.count, self.names, self.denied = present, count, names, denied
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.present:
            raise self.NVMLError("Library Not Found")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == self.denied:
            raise self.NVMLError("Insufficient Permissions")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != SLICE:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> int:
        return {SLICE: 2}[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return UUIDS[handle]

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        return 3 - handle

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.names[handle % len(self.names)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of device files as of a host with four devices."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "sda"):
        (folder / name).touch()
    (folder / "nvidia-caps").mkdir()
    monkeypatch.setattr("gpu_actors.gpus.FOLDER", folder)
    return folder


def given(library: Library) -> tuple[list[str], dict[str, str]]:
    found = grant("cuda", library)
    return [Path(path).name for path in found.devices], dict(found.environment)


EVERYONE_S = ["nvidiactl", "nvidia-uvm", "nvidia-caps"]


@pytest.mark.parametrize("spelled", ["1", " 1 ", "GPU-c1", "GPU-c", "1,GPU-c1"])
def test_a_candidate_gets_the_files_of_the_visible_device_and_no_other_however_it_is_spelled(
    spelled: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    monkeypatch.setenv(VARIABLE, spelled)
    assert given(library) == ([*EVERYONE_S, "nvidia2"], {VARIABLE: "GPU-c1"}), "a number means another one in there"
    assert library.open == 0
    assert grant("cpu").devices == ()


def test_several_devices_a_slice_and_all_devices_are_each_passed_whole(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "3,0")
    assert given(Library()) == ([*EVERYONE_S, "nvidia0", "nvidia3"], {VARIABLE: "GPU-a3,GPU-d0"})
    monkeypatch.setenv(VARIABLE, SLICE)
    assert given(Library()) == ([*EVERYONE_S, "nvidia1"], {VARIABLE: SLICE})
    assert visible(Library()) == (Gpu(uuid="GPU-b2", minor=1, visible_as=SLICE),)
    monkeypatch.delenv(VARIABLE)
    assert given(Library()) == ([*EVERYONE_S, "nvidia0", "nvidia1", "nvidia2", "nvidia3"], {VARIABLE: ",".join(UUIDS)})


def test_numbers_count_the_devices_that_this_process_may_open(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    assert given(Library(denied=0)) == ([*EVERYONE_S, "nvidia2"], {VARIABLE: "GPU-c1"})
    assert physical_devices("cuda", Library(denied=0)) == ("cuda-GPU-c1",)


@pytest.mark.parametrize(
    ("spelled", "said"),
    [
        ("4", "names 4, which is 0 of the 4 devices"),
        ("1,-1", "names -1, which is 0 of the 4 devices"),
        ("GPU-", "names GPU-, which is 4 of the 4 devices"),
        ("MIG-nobody", "means: Not Found"),
        ("", "no NVIDIA device is visible: 4 there"),
    ],
)
def test_an_entry_that_is_no_one_device_is_refused(
    spelled: str, said: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, spelled)
    with pytest.raises(UserError, match=said):
        grant("cuda", Library())
    with pytest.raises(UserError, match=said):
        physical_devices("cuda", Library())


def test_numbers_of_unlike_devices_are_refused_since_cuda_counts_them_in_another_order(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(UserError, match="name it by its UUID"):
        grant("cuda", Library(names=("H200", "L4")))
    monkeypatch.setenv(VARIABLE, "GPU-c1")
    assert given(Library(names=("H200", "L4")))[0][-1] == "nvidia2"


def test_where_nobody_tells_whose_a_file_is_one_device_is_passed_and_several_are_refused(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(
        UserError, match=r"which of 4 files .*nvidiaN a candidate may use is not known: NVML is not there"
    ):
        grant("cuda", Library(present=False))
    for name in ("nvidia0", "nvidia1", "nvidia3"):
        (host / name).unlink()
    assert given(Library(present=False)) == ([*EVERYONE_S, "nvidia2"], {}), "its own variable stays"
    assert given(Library(count=1)) == ([*EVERYONE_S, "nvidia2"], {VARIABLE: "GPU-d0"}), "a container numbers anew"
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(UserError, match=r"which of 1 files .* NVML says GPU-d0: 3, GPU-c1: 2, "):
        grant("cuda", Library())
    (host / "nvidia2").unlink()
    with pytest.raises(UserError, match="which of 0 files"):
        grant("cuda", Library(present=False))


def test_whoever_runs_a_candidate_or_a_library_on_a_device_passes_what_is_leased(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Library())  # type: ignore[arg-type]
    monkeypatch.setenv(VARIABLE, "1")
    facts = tiny.facts()
    platform = facts.platform.model_copy(update={"accelerator": "cuda"})
    tree = tiny.write_engine(tmp_path / "engine")
    job = tiny.engine_job(tree, tmp_path).model_copy(update={"facts": facts.model_copy(update={"platform": platform})})
    rules = confinement(job, tmp_path / "cache", environment={"X": "1"})
    wanted = tuple(str(host / name) for name in (*EVERYONE_S, "nvidia2"))
    assert rules.devices == wanted
    assert rules.environment.keys() >= {VARIABLE, "X", "TRITON_CACHE_DIR"}
    assert rules.environment[VARIABLE] == "GPU-c1"
    with Workshop(platform, STANDARD) as shop:
        assert (shop.confinement.devices, shop.confinement.environment) == (wanted, {VARIABLE: "GPU-c1"})
    on_cpu = confinement(tiny.engine_job(tree, tmp_path), tmp_path / "cache")
    assert (on_cpu.devices, VARIABLE in on_cpu.environment) == ((), False)


def test_two_spellings_of_one_device_are_one_lease_and_no_variable_leases_every_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(spelled: str | None, library: Library) -> tuple[str, ...]:
        monkeypatch.delenv(VARIABLE, raising=False)
        if spelled is not None:
            monkeypatch.setenv(VARIABLE, spelled)
        return physical_devices("cuda", library)

    everyone = names(None, Library())
    assert everyone == ("cuda-GPU-a3", "cuda-GPU-b2", "cuda-GPU-c1", "cuda-GPU-d0"), "in one order"
    assert names("1", Library()) == names("GPU-c1", Library()) == names("GPU-c1,1", Library()) == ("cuda-GPU-c1",)
    assert names(SLICE, Library()) == ("cuda-GPU-b2",), "two slices share a device's memory"
    assert names("3,1", Library(present=False)) == ("cuda-1", "cuda-3")
    assert physical_devices("cpu") == ("cpu",)
    with Lease(names("GPU-c1", Library()), exclusive=True, folder=tmp_path):
        for spelled in ("1", None):
            with (
                pytest.raises(UserError, match="device cuda-GPU-c1 has been leased"),
                Lease(names(spelled, Library()), exclusive=True, patience_s=0, folder=tmp_path),
            ):
                pass
        with Lease(names("0,2,3", Library()), exclusive=True, patience_s=0, folder=tmp_path):
            pass  # whoever could not have all holds none
