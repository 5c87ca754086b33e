"""How long a device was held, shared out to the calls that held it at once."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Share:
    """One call's part of the device's time."""

    seconds: float = 0.0


class Meter:
    """Time of a device that several calls may hold at once: every second goes in equal parts to those that hold it, so
    that the shares of all calls sum to the time that anybody held it. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._holding: list[Share] = []
        self._last = 0.0

    @contextmanager
    def holding(self) -> Iterator[Share]:
        """The share is whole when the block has been left."""
        share = Share()
        with self._lock:
            self._share_out()
            self._holding.append(share)
        try:
            yield share
        finally:
            with self._lock:
                self._share_out()
                self._holding = [other for other in self._holding if other is not share]

    def _share_out(self) -> None:
        """What passed since the last change of holders goes to these."""
        now = self._clock()
        for share in self._holding:
            share.seconds += (now - self._last) / len(self._holding)
        self._last = now
