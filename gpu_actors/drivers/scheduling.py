"""Experiments on an engine's scheduler, without its model: what runs is the experiment's."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from .stages import module

WAIT_S = 10.0
"""For a thread that does what is expected at once; one that does not must end too."""
MOST = 1000
"""Tokens of a request that nobody stops."""


def schedule(requests: int, cancelled: int, failing: int, max_waiting: int) -> dict[str, Any]:
    """Submits `requests` to a scheduler while its first one is held up, cancels one, lets one fail; cancels the first
    once it has ended.

    The run of request i yields i and i + 100. Returns what each was given, its state, in which order they were run and
    how many were refused.
    """
    scheduling = module("scheduler")
    gate, started = threading.Event(), threading.Event()
    order: list[int] = []

    def run(request: Any) -> Iterator[int]:
        started.set()
        gate.wait(WAIT_S)
        number = request.prompt[0]
        order.append(number)
        yield number
        if number == failing:
            raise RuntimeError("this request was made to fail")
        yield number + 100

    scheduler = scheduling.Scheduler(run, max_waiting)
    said: list[list[int | None]] = [[] for _ in range(requests)]
    held = [scheduling.Request([i], 2, said[i].append) for i in range(requests)]
    refused = 0
    for i, request in enumerate(held):
        try:
            scheduler.submit(request)
        except scheduling.QueueFull:
            refused += 1
        if i == 0:
            started.wait(WAIT_S)  # the first one is running now, and no longer waits
    scheduler.cancel(held[cancelled])
    gate.set()
    end = time.monotonic() + WAIT_S  # before it is closed, which may stand in the queue, too
    while time.monotonic() < end and any(said[i][-1:] != [None] for i in range(requests - refused)):
        time.sleep(0.001)
    scheduler.close()
    scheduler.cancel(held[0])  # which has ended
    return {"said": said, "states": [request.state for request in held], "order": order, "refused": refused}


def leave(after: int) -> dict[str, Any]:
    """Cancels a request once it was given `after` tokens, while it makes the next. Returns how many it made in all, how
    many it was given, and its state."""
    scheduling = module("scheduler")
    given: list[int | None] = []
    reached, gone = threading.Event(), threading.Event()
    made = 0

    def run(request: Any) -> Iterator[int]:
        nonlocal made
        for made in range(1, MOST + 1):
            if made > after:
                reached.set()
                gone.wait(WAIT_S)
            yield made

    scheduler = scheduling.Scheduler(run, 1)
    request = scheduling.Request([0], MOST, given.append)
    scheduler.submit(request)
    reached.wait(WAIT_S)
    scheduler.cancel(request)
    gone.set()
    scheduler.close()
    return {"made": made, "given": len([token for token in given if token is not None]), "state": request.state}


OPERATIONS = {"schedule": schedule, "leave": leave}
