# ---
# contract: scheduler
# title: First come, first served, one at a time
# applies_to: workload.kind == 'single_stream'
# parameters:
#   MAX_WAITING: [64]
# ---
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator


class Scheduler:
    """Admits requests into a bounded queue and runs them in order on a thread of its own."""

    def __init__(self, run: Callable[[Request], Iterator[int]], max_waiting: int = MAX_WAITING):
        self.run, self.max_waiting = run, max_waiting
        self.waiting: deque[Request | None] = deque()
        self.changed = threading.Condition()
        self.worker = threading.Thread(target=self._work, daemon=True)
        self.worker.start()

    def submit(self, request: Request) -> None:
        """Admit a request. Raises QueueFull when `max_waiting` wait already."""
        with self.changed:
            if len(self.waiting) >= self.max_waiting:
                raise QueueFull(f"{self.max_waiting} requests are waiting already")
            self.waiting.append(request)
            self.changed.notify()

    def cancel(self, request: Request) -> None:
        """Stop a request before its next token; one that has ended stays as it is."""
        with self.changed:
            if request.state in ("waiting", "running"):
                request.state = "cancelled"

    def close(self) -> None:
        """End the worker after the requests that were admitted."""
        with self.changed:
            self.waiting.append(None)
            self.changed.notify()
        self.worker.join()

    def _move(self, request: Request, old: State, new: State) -> bool:
        with self.changed:
            if request.state == old:
                request.state = new
            return request.state == new

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting)
                request = self.waiting.popleft()
            if request is None:
                return
            self._serve(request)

    def _serve(self, request: Request) -> None:
        try:
            if self._move(request, "waiting", "running"):
                for token in self.run(request):
                    if request.state != "running":
                        break
                    request.emit(token)
                self._move(request, "running", "finished")
        except Exception:  # the boundary of one request: the next one must still be served
            logging.exception("a request failed")
            self._move(request, "running", "failed")
        request.emit(None)
