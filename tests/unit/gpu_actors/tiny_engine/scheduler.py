import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class QueueFull(Exception):
    pass


@dataclass(eq=False)
class Request:
    prompt: list[int]
    max_new_tokens: int
    emit: Callable[[int | None], None]
    sampler: object = None
    state: str = "waiting"


class Scheduler:
    def __init__(self, run: Callable[[Request], Iterator[int]], max_waiting: int = 8):
        self.run, self.max_waiting = run, max_waiting
        self.waiting: deque[Request | None] = deque()
        self.changed = threading.Condition()
        self.worker = threading.Thread(target=self.work, daemon=True)
        self.worker.start()

    def submit(self, request: Request) -> None:
        with self.changed:
            if len(self.waiting) >= self.max_waiting:
                raise QueueFull(f"{self.max_waiting} requests are waiting")
            self.waiting.append(request)
            self.changed.notify()

    def cancel(self, request: Request) -> None:
        request.state = "cancelled"

    def close(self) -> None:
        with self.changed:
            self.waiting.append(None)
            self.changed.notify()
        self.worker.join()

    def work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting)
                request = self.waiting.popleft()
            if request is None:
                return
            self.serve(request)

    def serve(self, request: Request) -> None:
        if request.state == "waiting":
            request.state = "running"
            try:
                for token in self.run(request):
                    if request.state == "cancelled":
                        break
                    request.emit(token)
                else:
                    request.state = "finished"
            except RuntimeError:
                request.state = "failed"
        request.emit(None)
