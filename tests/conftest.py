"""Marks and skips that the whole suite shares. A skip says what is missing and how to get it."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SMOLLM2 = TESTS.parent / "models" / "smollm2-135m-instruct"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests under tests/ray and tests/gpu carry the mark of their folder, and run alone."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in ("ray", "gpu"):
            item.add_marker(folder)
            item.add_marker("alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not Path("/dev/nvidiactl").exists():
        pytest.skip("no NVIDIA device on this machine")
    if item.get_closest_marker("model") and not (SMOLLM2 / "config.json").is_file():
        pytest.skip("the model is missing: enginesmith fetch smollm2-135m")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the real checkpoint. A test that asks for it is marked `model`."""
    if not (SMOLLM2 / "config.json").is_file():
        pytest.skip("the model is missing: enginesmith fetch smollm2-135m")
    return SMOLLM2
