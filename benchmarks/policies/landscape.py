"""NK landscapes (Kauffman): N choices of two values each, of which every one's worth depends on K others.

With K = 0 each choice can be made by itself; with K = N - 1 a landscape is noise. In between neighbours resemble each
other, and there are local optima: what a search over design choices meets too.
"""

import itertools
import random
from dataclasses import dataclass
from functools import cached_property

Point = tuple[int, ...]
"""One assignment: a 0 or 1 for each choice."""


@dataclass(frozen=True)
class Landscape:
    """A seeded landscape: the same numbers for the same (n, k, seed)."""

    n: int
    k: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.k < self.n:
            raise ValueError(f"k lies between 0 and n - 1 = {self.n - 1}, got {self.k}")

    @cached_property
    def _tables(self) -> list[tuple[tuple[int, ...], dict[Point, float]]]:
        """For each choice: itself with those that it depends on, and its worth for each of their values, 0 to 1."""
        rng = random.Random(f"landscape {self.n} {self.k} {self.seed}")
        tables = []
        for choice in range(self.n):
            others = rng.sample([i for i in range(self.n) if i != choice], self.k)
            values = {bits: rng.random() for bits in itertools.product((0, 1), repeat=self.k + 1)}
            tables.append(((choice, *others), values))
        return tables

    @cached_property
    def worth(self) -> dict[Point, float]:
        """Every assignment with the mean worth of its choices, 0 to 1; larger is better."""
        points = itertools.product((0, 1), repeat=self.n)
        return {p: sum(values[tuple(p[i] for i in of)] for of, values in self._tables) / self.n for p in points}

    @cached_property
    def points(self) -> list[Point]:
        """All 2^n assignments, the best first."""
        return sorted(self.worth, key=self.worth.__getitem__, reverse=True)

    def best(self, share: float) -> set[Point]:
        """The best `share` of all assignments."""
        return set(self.points[: round(share * len(self.points))])
