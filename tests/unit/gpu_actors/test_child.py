"""Whatever a child does instead of answering is a typed failure, and never an exception of another kind."""

import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from gpu_actors.child import Child, ChildFailure, Event, Reply
from gpu_actors.sandbox import Confinement

DRIVER = """
import os, time

def reply_fd():
    import sys
    frame = sys._getframe()
    while "reply_fd" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["reply_fd"]

def add(x, y, scale):
    return {"sum": x + y, "scale": scale}

def count(n, emit):
    for i in range(n):
        emit(i)
    return {"done": True}

def fail():
    raise ValueError("seventeen is too many")

def say(data):
    os.write(reply_fd(), bytes.fromhex(data))
    time.sleep(60)

OPERATIONS = {"add": add, "count": count, "fail": fail, "say": say, "leave": lambda: os._exit(0),
              "crash": lambda: os.abort(), "sleep": lambda: time.sleep(60)}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "odd.py"
    path.write_text(DRIVER)
    return path


def start(driver: Path) -> Child:
    return Child(driver, Confinement(read=(driver,)))


def test_arrays_events_and_exceptions_arrive_and_the_child_stays_usable(driver: Path) -> None:
    with start(driver) as child:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        reply = child.call("add", 20.0, x=x, y=x, scale=2.5)
        np.testing.assert_array_equal(reply.arrays["sum"], 2 * x)
        assert reply.values == {"scale": 2.5}
        with pytest.raises(ChildFailure, match="ValueError: seventeen is too many") as caught:
            child.call("fail", 20.0)
        assert (caught.value.kind, caught.value.error_type) == ("RAISED", "ValueError")
        *events, last = child.stream("count", 20.0, n=3)
        assert [event.value for event in events if isinstance(event, Event)] == [0, 1, 2]
        assert last == Reply({"done": True}, {})


@pytest.mark.parametrize(
    ("op", "data", "kind", "message"),
    [
        ("say", b"\xff\xfe\x00 rubbish\n", "PROTOCOL", "something else than JSON"),
        ("say", b'{"id": 99, "values": {}, "arrays": []}\n', "PROTOCOL", "answered request 99, asked was 1"),
        ("say", b'{"id": 1, "values": 5, "arrays": []}\n', "PROTOCOL", "malformed header"),
        ("say", b"[1, 2]\n", "PROTOCOL", "no reply"),
        ("say", b"\x80\x04cos\nabort\n(tR.\n", "PROTOCOL", "something else than JSON"),  # a pickle, which nobody loads
        (
            "say",
            b'{"id": 1, "values": {}, "arrays": [{"name": "x", "dtype": "object", "shape": [1]}]}\n',
            "PROTOCOL",
            "dtype 'object'",
        ),
        (
            "say",
            b'{"id": 1, "values": {}, "arrays": [{"name": "x", "dtype": "int64", "shape": [99999999999]}]}\n',
            "PROTOCOL",
            "the limit is",
        ),
        ("say", b"[" * 100_000 + b"\n", "PROTOCOL", "something else than JSON"),
        ("say", b'{"id": 1, "values": {"seconds": NaN}, "arrays": []}\n', "PROTOCOL", "something else than JSON"),
        ("say", b'{"id": 1, "values": {"seconds": 1e999}, "arrays": []}\n', "PROTOCOL", "something else than JSON"),
        (
            "say",
            b'{"id": 1, "values": {}, "arrays": [{"name": "x", "dtype": "int64", "shape": [1e300]}]}\n',
            "PROTOCOL",
            "the limit is",
        ),
        ("leave", None, "CRASHED", "exit status 0"),
        ("crash", None, "CRASHED", r"exit status 13[49]"),
        ("sleep", None, "TIMEOUT", "no answer within the deadline"),
    ],
)
def test_anything_else_than_an_answer_is_a_failure_that_names_it(
    driver: Path, op: str, data: bytes | None, kind: str, message: str
) -> None:
    with start(driver) as child:
        arguments = {"data": data.hex()} if data else {}
        with pytest.raises(ChildFailure, match=message) as caught:
            child.call(op, 1.5 if op == "sleep" else 20.0, **arguments)
        assert caught.value.kind == kind
        assert not child.sandbox.running
        with pytest.raises(ChildFailure, match="had ended before"):
            child.call("add", 1.0)


def test_a_stream_without_end_is_cut_off(driver: Path) -> None:
    with start(driver) as child, pytest.raises(ChildFailure, match="more than the 4 events") as caught:
        list(child.stream("count", 20.0, most_events=4, n=10**9))
    assert caught.value.kind == "PROTOCOL"
    begun = time.monotonic()
    with start(driver) as child, pytest.raises(ChildFailure) as caught:
        for _ in child.stream("count", 2.0, n=10**9):
            pass
    assert caught.value.kind == "TIMEOUT"
    assert time.monotonic() - begun < 15


def test_words_that_utf_8_can_not_hold_arrive_spelled_out(driver: Path) -> None:
    answer = b'{"id": 1, "error": {"type": "ValueError", "message": "\\ud800", "trace": ""}}\n'
    with start(driver) as child, pytest.raises(ChildFailure) as caught:
        child.call("say", 20.0, data=answer.hex())
    assert caught.value.kind == "RAISED"
    assert str(caught.value).encode().endswith(b"\\ud800")


def test_a_failure_crosses_processes_whole() -> None:
    failure = ChildFailure("RAISED", "ValueError: no", "ValueError", "line 1")
    found = pickle.loads(pickle.dumps(failure))
    assert type(found) is ChildFailure
    assert (found.kind, str(found), found.error_type, found.trace) == (
        "RAISED",
        "ValueError: no",
        "ValueError",
        "line 1",
    )
