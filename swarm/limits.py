"""The limits of a run as they are now: those of its Target, with what a person has changed since.

A change is one whole file in the run's folder. The driver and the process that calls providers both look at it, so that
it holds at once, while the run goes on as well as in the next driver.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.whole_files import replace_text
from swarm.target import Budget


class Change(Frozen):
    """The limits of a run that a person has set; None: as its Target says."""

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    tokens: int | None = Field(None, ge=0)
    minutes: float | None = Field(None, gt=0, allow_inf_nan=False)
    device_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @property
    def given(self) -> dict[str, float]:
        return {name: value for name, value in self.model_dump().items() if value is not None}


class Limits:
    """A reader of them. Cheap to ask: the file is read again only when it is another one."""

    def __init__(self, budget: Budget, file: Path | None = None):
        self.target = budget
        """As the Target has them."""
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._now = budget

    @property
    def now(self) -> Budget:
        """Raises UserError for a file that somebody else wrote and that holds no limits."""
        if self._file is None:
            return self.target
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return self.target
        seen = (found.st_mtime_ns, found.st_ino)
        if seen != self._seen:
            self._now = self.target.model_copy(update=read_change(self._file).given)
            self._seen = seen
        return self._now


def read_change(file: Path) -> Change:
    """What a person has set so far. Raises UserError for a file that holds something else."""
    try:
        return Change.model_validate_json(file.read_text(encoding="utf-8")) if file.exists() else Change()
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(f"{file} holds no limits: {wrong}") from error


def change(file: Path, wanted: Change, used: Mapping[str, float]) -> Change:
    """Sets limits of a run, those that were set before included. Raises UserError for one below what is used already,
    and changes none then."""
    for name, value in wanted.given.items():
        if value < used[name]:
            raise UserError(f"budget.{name} can't be {value:g}: {used[name]:.4g} is used already")
    whole = read_change(file).model_copy(update=wanted.given)
    replace_text(file, whole.model_dump_json(exclude_none=True) + "\n")
    return whole
