"""What a person orders a run to do while it goes on: files in RUN/orders, which the driver takes up.

An order is one whole file. The driver journals it and then removes it, so that none is lost and none obeyed twice: the
state of a run stays a function of its journal.
"""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.whole_files import replacing
from roles.briefs import RoleName

LONGEST_NOTE = 4000
"""Characters: it is paid with every brief that carries it."""


class Stopped(UserError):
    """A person stopped the run. It can be taken up again."""


class Pause(Frozen):
    """Begin nothing new until the run is told to go on. What is under way ends as usual; no device is held then."""

    do: Literal["pause"] = "pause"


class Unpause(Frozen):
    do: Literal["unpause"] = "unpause"


class Stop(Frozen):
    """End the driver at the next step, as Ctrl-C would, but for what is under way, which is journalled first."""

    do: Literal["stop"] = "stop"


class Steer(Frozen):
    """A note that the next brief of a role carries, or the next of every role."""

    do: Literal["steer"] = "steer"
    text: str = Field(min_length=1, max_length=LONGEST_NOTE)
    role: RoleName | None = None


Order = Annotated[Pause | Unpause | Stop | Steer, Field(discriminator="do")]
ORDER: TypeAdapter[Order] = TypeAdapter(Order)


def give(folder: Path, order: Order) -> Path:
    """Writes an order. The file is gone once a driver has taken it up."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    with replacing(path) as draft:
        draft.write_bytes(ORDER.dump_json(order) + b"\n")
    return path


def given_at(name: str) -> float:
    """Seconds since 1970, of an order by the name of its file."""
    digits = name.partition("-")[0]
    return int(digits) / 1e9 if digits.isdecimal() else 0.0


def waiting(folder: Path) -> Iterator[tuple[Path, Order | str]]:
    """The orders that nobody has taken up, oldest first; a text says why one can't be read."""
    for path in sorted(folder.glob("*.json")):
        try:
            yield path, ORDER.validate_json(path.read_bytes())
        except ValidationError as error:
            wrong = error.errors()[0]
            yield path, f"{'.'.join(map(str, wrong['loc'])) or 'the file'}: {wrong['msg']}"
