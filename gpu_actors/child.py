"""The parent's end of the protocol: asks a child process, and turns everything that can go wrong there into data."""

import itertools
import json
import math
import os
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from gpu_actors.readable import FORBIDDEN_PACKAGES, site_folders
from gpu_actors.sandbox import REPLY_FD, REQUEST_FD, WATCH_FD, Confinement, Sandbox
from gpu_actors.watched import Told, rules

DRIVERS = Path(__file__).parent / "drivers"
ENGINE = DRIVERS / "engine.py"
"""Driver of an engine tree: its stages, and the whole."""
LINE_LIMIT = 64 * 1024**2
ARRAY_LIMIT = 4 * 1024**3
DTYPES = {"float32", "float64", "int64", "int32", "uint16", "bool"}

Kind = Literal["RAISED", "CRASHED", "TIMEOUT", "KILLED", "PROTOCOL"]
Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


class ChildFailure(Exception):
    """What a child did instead of answering. RAISED leaves it usable; after any other kind it is gone."""

    def __init__(self, kind: Kind, message: str, error_type: str = "", trace: str = ""):
        self.kind = kind
        self.error_type = error_type
        """Name of the exception class when the kind is RAISED."""
        self.trace = trace
        super().__init__(message)

    def __reduce__(self) -> tuple[type["ChildFailure"], tuple[Kind, str, str, str]]:
        """Exceptions are pickled with their message alone, which can't be read back here: it must cross processes."""
        return type(self), (self.kind, str(self), self.error_type, self.trace)


@dataclass(frozen=True)
class Reply:
    """What a child answered. It may be anything, so it is read through these two methods."""

    values: dict[str, Any]
    arrays: dict[str, Array] = field(default_factory=dict)

    def value(self, name: str, kind: type[T]) -> T:
        """A JSON value of exactly that type. Raises ChildFailure when it is missing or of another one."""
        try:
            return TypeAdapter(kind).validate_python(self.values.get(name), strict=True)
        except ValidationError:
            held = f"{self.values[name]!r}"[:80] if name in self.values else "nothing"
            raise ChildFailure("PROTOCOL", f"its reply must hold {name!r} as {kind}; found {held}") from None

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """An array, of whatever shape if none is given. Raises ChildFailure when it is missing or of another one."""
        if name not in self.arrays:
            raise ChildFailure("PROTOCOL", f"its reply holds no array {name!r}")
        array = self.arrays[name]
        if shape is not None and array.shape != shape:
            raise ChildFailure("PROTOCOL", f"its array {name!r} must be {shape}; found {array.shape}")
        return array


@dataclass(frozen=True)
class Event:
    """Something that a streaming operation said, with the parent's clock at the moment it was read."""

    value: Any
    at_ns: int


def finite(number: str) -> float:
    """A number of JSON. Raises ValueError for one that is none, or too large: no record can hold it."""
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is no finite number")
    return value


def encodable(value: Any) -> Any:
    """The same JSON with what UTF-8 can't hold (half of a surrogate pair) spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [encodable(item) for item in value]
    if isinstance(value, dict):
        return {encodable(name): encodable(item) for name, item in value.items()}
    return value


class Child:
    """One child process that answers operations of one driver. Use it as a context manager."""

    def __init__(self, driver: Path, confinement: Confinement, *, forbidden: tuple[str, ...] = FORBIDDEN_PACKAGES):
        given = rules(forbidden, confinement)
        packages = [str(folder) for folder in site_folders()]
        setup = {"driver": str(driver), "packages": packages, "watch": given}
        python = [sys.executable, "-I", "-S", "-B", str(DRIVERS / "main.py")]
        argv = [*python, REQUEST_FD, REPLY_FD, json.dumps(setup), WATCH_FD]
        self.started_ns = time.perf_counter_ns()
        self.sandbox = Sandbox(argv, confinement)
        os.set_blocking(self.sandbox.request_fd, False)
        self.told = Told(self.sandbox.watch_fd, given=given)
        """What its watch says of it."""
        self.writable = (self.sandbox.private, *confinement.write)
        """Folders that it may write to."""
        self._buffer = bytearray()
        self._requests = 0
        self.alive = True

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.told.read()
        self.alive = False
        self.sandbox.close()

    def call(self, op: str, deadline_s: float, **arguments: Any) -> Reply:
        """Asks for one operation. Numpy arrays among the arguments travel as bytes. Raises ChildFailure."""
        for message in self.stream(op, deadline_s, **arguments):
            if isinstance(message, Reply):
                return message
        raise AssertionError("a stream ends with a reply or raises")

    def stream(
        self, op: str, deadline_s: float, *, most_events: int | None = None, **arguments: Any
    ) -> Iterator[Event | Reply]:
        """Asks for one operation and yields its events as they come, and at last its reply. Raises ChildFailure, also
        for more than `most_events`: whoever collects them must not run out of memory."""
        if not self.alive:
            raise ChildFailure("CRASHED", "the process had ended before")
        deadline = time.monotonic() + deadline_s
        self._requests += 1
        try:
            self._send(op, arguments, deadline)
            for count in itertools.count(1):
                header = self._header(deadline)
                if "event" in header:
                    if most_events is not None and count > most_events:
                        raise ChildFailure("PROTOCOL", f"it sent more than the {most_events} events asked for")
                    yield Event(header["event"], time.perf_counter_ns())
                    continue
                yield self._reply(header, deadline)
                return
        except ChildFailure as failure:
            if failure.kind != "RAISED":
                self.alive = False
                self.sandbox.kill(str(failure))
            raise

    def _send(self, op: str, arguments: dict[str, Any], deadline: float) -> None:
        arrays = {k: np.ascontiguousarray(v) for k, v in arguments.items() if isinstance(v, np.ndarray)}
        values = {k: v for k, v in arguments.items() if k not in arrays}
        items = [{"name": k, "dtype": str(v.dtype), "shape": list(v.shape)} for k, v in arrays.items()]
        header = {"id": self._requests, "op": op, "values": values, "arrays": items}
        self._write(json.dumps(header).encode() + b"\n", deadline)
        for array in arrays.values():
            self._write(array.tobytes(), deadline)

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            ready = select.select([], [self.sandbox.request_fd], [], max(0.0, deadline - time.monotonic()))[1]
            if not ready:
                raise self._timeout()
            try:
                view = view[os.write(self.sandbox.request_fd, view) :]
            except BrokenPipeError:
                raise self._ended() from None

    def _header(self, deadline: float) -> dict[str, Any]:
        if time.monotonic() > deadline:  # also when the next line is here: one that never stops writing must end
            raise self._timeout()
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_LIMIT:
                raise ChildFailure("PROTOCOL", f"it answered with a line of more than {LINE_LIMIT:,} bytes")
            self._fill(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            header = json.loads(line, parse_constant=finite, parse_float=finite)
        except (ValueError, RecursionError):
            raise ChildFailure("PROTOCOL", f"it answered with something else than JSON: {line[:80]!r}") from None
        if not isinstance(header, dict) or not header.keys() & {"event", "error", "values"}:
            raise ChildFailure("PROTOCOL", f"it answered with JSON that is no reply: {line[:80]!r}")
        if header.get("id") != self._requests:
            raise ChildFailure("PROTOCOL", f"it answered request {header.get('id')!r}, asked was {self._requests}")
        return encodable(header) if b"\\u" in line else header

    def _reply(self, header: dict[str, Any], deadline: float) -> Reply:
        try:
            if "error" in header:
                error = header["error"]
                message = f"{error['type']}: {error['message']}"
                raise ChildFailure("RAISED", message, str(error["type"]), str(error["trace"]))
            arrays = {str(item["name"]): self._array(item, deadline) for item in header["arrays"]}
            return Reply(dict(header["values"]), arrays)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ChildFailure("PROTOCOL", f"it answered with a malformed header: {error!r}") from None

    def _array(self, item: dict[str, Any], deadline: float) -> Array:
        shape = tuple(int(n) for n in item["shape"])
        if item["dtype"] not in DTYPES or any(n < 0 for n in shape):
            raise ValueError(f"array of dtype {item['dtype']!r} and shape {shape}")
        dtype = np.dtype(item["dtype"])
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > ARRAY_LIMIT:
            raise ValueError(f"an array of {size:,} bytes; the limit is {ARRAY_LIMIT:,}")
        while len(self._buffer) < size:
            self._fill(deadline)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return np.frombuffer(data, dtype).reshape(shape)

    def _fill(self, deadline: float) -> None:
        """Reads what is there, waiting for it until the deadline."""
        while not select.select([self.sandbox.reply_fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise self._timeout()
        data = os.read(self.sandbox.reply_fd, 1 << 20)
        if not data:
            raise self._ended()
        self._buffer += data

    def _timeout(self) -> ChildFailure:
        return ChildFailure("TIMEOUT", f"no answer within the deadline{self._last_words()}")

    def _ended(self) -> ChildFailure:
        status = self.sandbox.wait(5.0)
        if self.sandbox.killed:
            return ChildFailure("KILLED", f"ended by the harness: {self.sandbox.killed}")
        how = f"exit status {status}" if status is not None else "its pipe closed while it went on"
        return ChildFailure("CRASHED", f"the process ended without an answer ({how}){self._last_words()}")

    def _last_words(self) -> str:
        lines = self.sandbox.output.strip().splitlines()[-3:]
        return "; its last output: " + " | ".join(lines)[-400:] if lines else ""
