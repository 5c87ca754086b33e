"""What a child may read: package folders without frameworks, wherever they lie, and what stands around them."""

import json
import sys
import time
from pathlib import Path

import pytest

from gpu_actors import readable
from gpu_actors.sandbox import Confinement, Sandbox, wait_for

FORBIDDEN = (
    "vllm", "vllm.py", "vllm-0.9.dist-info", "vllm-0.9+cu128.egg-info", "vllm-0.9-py3.11.egg", "vllm.egg-link",
    "vllm.libs", "__editable__.vllm-0.9.pth", "__editable___vllm_0_9_finder.py", "tensorrt-llm-1.0.dist-info",
    "Transformers-4.0-py3.8.egg-info", "mlx_lm", "anything.pth", "~ransformers", "ckb",
    "__editable___enginesmith_0_1_0_finder.py", "transformers-4.9-py3-none-any.whl",
)  # fmt: skip
FREE = (
    "torch", "mlx", "mlx-0.29.dist-info", "typing_extensions.py", "_yaml", "raylib", "flash_attn_2_cuda.so",
    "numpy.libs",
)  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_an_entry_of_a_forbidden_package_is_known_in_each_of_its_forms(name: str) -> None:
    assert readable.forbidden_entry(Path("/nowhere/site-packages") / name)


@pytest.mark.parametrize("name", FREE)
def test_other_packages_are_left_alone(name: str) -> None:
    assert not readable.forbidden_entry(Path("/nowhere/site-packages") / name)


def prefix(folder: Path) -> Path:
    """What an interpreter's prefix may hold: its own packages, those of other versions, conda's stores, an engine's
    source tree, and headers that only have a framework's name."""
    for name in (
        "bin/python", "lib/python3.11/os.py", "lib/python3.11/site-packages/transformers/__init__.py",
        "lib/python3.11/site-packages/torch/__init__.py", "lib/python3.11/site-packages/typing_extensions.py",
        "lib/python3.11/site-packages/torch/include/transformers/attention.h", "lib/python3.11/site-packages/x.pth",
        "lib/python3.9/site-packages/vllm/core.py", "local/lib/python3.11/dist-packages/sglang/srt.py",
        "local/lib/python3.11/dist-packages/six.py", "conda-meta/history", "pkgs/transformers-4.0-py_0/x/model.py",
        "envs/other/lib/python3.12/site-packages/lmdeploy/a.py", "src/vllm/__init__.py", "share/doc/transformers/text",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("SOURCE = 1\n")
    (folder / "lib64").symlink_to("lib")
    return folder


def test_nothing_forbidden_lies_below_what_is_granted_and_all_else_does(tmp_path: Path) -> None:
    root = prefix(tmp_path / "prefix")
    read, listed = readable.granted([root, root / "lib64", root / "lib/python3.11"])
    files = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and "lib64" not in p.parts]
    hidden = {p.relative_to(root).as_posix() for p in files if not any(p.is_relative_to(r) for r in read)}
    assert hidden == {
        "lib/python3.11/site-packages/transformers/__init__.py", "lib/python3.11/site-packages/x.pth",
        "lib/python3.9/site-packages/vllm/core.py", "local/lib/python3.11/dist-packages/sglang/srt.py",
        "pkgs/transformers-4.0-py_0/x/model.py", "envs/other/lib/python3.12/site-packages/lmdeploy/a.py",
        "src/vllm/__init__.py",
    }  # fmt: skip
    assert root in listed
    assert root not in read
    assert not any(path.is_symlink() for path in read)


def test_a_root_without_anything_forbidden_is_granted_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert readable.granted([tmp_path]) == ((tmp_path,), ())
    assert readable.granted([tmp_path / "absent"]) == ((), ())


def test_what_is_installed_later_is_hidden_too_and_looking_again_is_quick(tmp_path: Path) -> None:
    root = prefix(tmp_path / "prefix")
    readable.granted([root])
    site = root / "lib/python3.11/site-packages"
    (site / "sglang").mkdir()
    assert not any((site / "sglang").is_relative_to(path) for path in readable.granted([root])[0])
    readable.readable_system()
    start = time.process_time()
    readable.readable_system()
    assert time.process_time() - start < 1.0, "it is asked for at the start of each child"


ATTEMPTS = """
import json, sys
root, checkpoint = sys.argv[1:]

def attempt(action):
    try:
        action()
        return "done"
    except BaseException as error:
        return type(error).__name__

def imported(folder, name):
    sys.path.insert(0, f"{root}/{folder}")
    __import__(name)

print(json.dumps({
    "the interpreter's": attempt(lambda: imported("lib/python3.11/site-packages", "transformers")),
    "through a link": attempt(lambda: open(f"{root}/lib64/python3.11/site-packages/transformers/__init__.py")),
    "another version's": attempt(lambda: open(f"{root}/lib/python3.9/site-packages/vllm/core.py")),
    "the distribution's": attempt(lambda: imported("local/lib/python3.11/dist-packages", "sglang.srt")),
    "unpacked": attempt(lambda: open(f"{root}/pkgs/transformers-4.0-py_0/x/model.py")),
    "a checkout": attempt(lambda: imported("src", "vllm")),
    "model code of a checkpoint": attempt(lambda: open(f"{checkpoint}/modeling_own.py")),
    "weights": attempt(lambda: open(f"{checkpoint}/model.safetensors")),
    "a header": attempt(lambda: open(f"{root}/lib/python3.11/site-packages/torch/include/transformers/attention.h")),
    "another package": attempt(lambda: imported("local/lib/python3.11/dist-packages", "six")),
}))
"""


def test_a_child_can_neither_import_nor_read_a_framework_of_any_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in front of an interpreter with packages of its own once left those readable."""
    root, checkpoint = prefix(tmp_path / "prefix"), tmp_path / "checkpoint"
    checkpoint.mkdir()
    for name in ("modeling_own.py", "model.safetensors"):
        (checkpoint / name).write_text("x = 1\n")
    monkeypatch.setattr(readable, "SYSTEM", (*readable.SYSTEM, str(root), str(root / "lib64")))
    argv = [sys.executable, "-I", "-S", "-B", "-c", ATTEMPTS, str(root), str(checkpoint)]
    with Sandbox(argv, Confinement(data=(checkpoint,))) as child:
        assert wait_for(child, time.monotonic() + 60) == 0, child.output
        child.drain()
        found = json.loads(child.output)
    if "no Landlock" in child.isolation:
        pytest.skip(f"this kernel confines less: {child.isolation}")
    done = {name for name, outcome in found.items() if outcome == "done"}
    assert done == {"weights", "a header", "another package"}, found


def test_no_framework_that_is_installed_on_this_machine_is_readable() -> None:
    read = {*readable.readable_system()[0], *readable.readable_packages()}
    folders = [*readable.site_folders(), *readable._places(Path(sys.base_prefix).resolve())[1]]
    installed = [f / name for f in folders for name in readable.REFERENCE_PACKAGES if (f / name).is_dir()]
    assert installed, "transformers is a dependency"
    assert not [path for path in installed if any(path.is_relative_to(granted) for granted in read)]


def test_a_reference_may_use_what_transformers_imports_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("transformers", "accelerate", "vllm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(readable, "site_folders", lambda: (tmp_path,))
    assert readable.reference_packages() == (tmp_path / "transformers", tmp_path / "accelerate")
    assert readable.readable_packages() == ()


def test_what_a_package_adds_of_its_own_folder_to_the_path_is_no_place_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once ray was imported here, every child looked for colorama inside ray, which it may not read: a step that made
    torch import its compiler failed."""
    inner = tmp_path / "ray" / "thirdparty_files"
    for folder in (tmp_path, inner):
        (folder / "a-1.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(inner), str(tmp_path), *sys.path])
    found = readable.site_folders()
    assert tmp_path.resolve() in found
    assert inner.resolve() not in found
