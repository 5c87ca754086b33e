"""How long a run was worked on: while a driver was at work and a person had not paused it."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class WorkingTime:
    """Made of the journal's events, in their order. Moments are seconds since 1970."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    """First and last event of each driver (epoch)."""
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of each."""
    paused_from: float | None = None
    """When the present pause began; None: the run goes on."""

    def note(self, epoch: int, at: float) -> None:
        """Takes in that a driver did something."""
        if self.spans and epoch > len(self.spans):
            self.unpause(self.spans[-1][1])  # whoever takes a run up wants it to go on
        while len(self.spans) < epoch:
            self.spans.append((at, at))
        first, _ = self.spans[epoch - 1]
        self.spans[epoch - 1] = (first, max(at, first))

    def pause(self, at: float) -> None:
        if self.paused_from is None:
            self.paused_from = at

    def unpause(self, at: float) -> None:
        if self.paused_from is not None:
            self.pauses.append((self.paused_from, at))
            self.paused_from = None

    def paused_in(self, epoch: int) -> bool:
        """Whether the driver of an epoch waits to be told to go on."""
        return self.paused_from is not None and len(self.spans) == epoch

    @property
    def seconds(self) -> float:
        """Up to the last event."""
        return self.since(0.0, self.spans[-1][1]) if self.spans else 0.0

    def since(self, moment: float, now: float) -> float:
        """Seconds from a moment on; `now`: up to which the present driver is at work."""
        if not self.spans:
            return 0.0
        *ended, (begun, _) = self.spans
        return _behind(moment, [*ended, (begun, now)]) - self.paused_since(moment, now)

    def paused_since(self, moment: float, now: float) -> float:
        """Seconds from a moment on for which the run was paused."""
        present = [(self.paused_from, now)] if self.paused_from is not None else []
        return _behind(moment, [*self.pauses, *present])


def _behind(moment: float, spans: Iterable[tuple[float, float]]) -> float:
    """Seconds of some spans that lie behind a moment."""
    return sum(max(0.0, last - max(first, moment)) for first, last in spans)
