"""Unit tests never start Ray: a cluster costs ten seconds, and what needs one belongs to tests/ray."""

from typing import NoReturn

import pytest
import ray


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a unit test called ray.init: move it to tests/ray")


@pytest.fixture(autouse=True)
def ray_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", refuse)
