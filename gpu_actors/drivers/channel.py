"""The child's end of the protocol: one JSON line a message, raw array bytes behind it, no pickle.

    request  {"id": 3, "op": "logits", "values": {...}, "arrays": [{"name": "x", "dtype": "float32", "shape": [2, 3]}]}
    reply    the same shape with "id" and "values"; or {"id": 3, "error": {"type": ..., "message": ..., "trace": ...}};
             or, before the reply, any number of {"id": 3, "event": 17}

An operation is a function of keyword arguments (values and arrays by name) that returns a dict of JSON values and
numpy arrays. One that has a parameter `emit` is given a function that sends an event at once.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from inspect import signature
from typing import Any, BinaryIO

import numpy as np

Operation = Callable[..., Any]


def serve(request_fd: int, reply_fd: int, operations: dict[str, Operation]) -> None:
    """Answers requests until the parent's end is closed."""
    requests = os.fdopen(request_fd, "rb")
    replies = os.fdopen(reply_fd, "wb")
    while line := requests.readline():
        header = json.loads(line)
        arguments = header["values"] | {item["name"]: read_array(requests, item) for item in header["arrays"]}
        try:
            answer(replies, header["id"], operations[header["op"]], arguments)
        except Exception as error:  # the candidate's code: whatever it raises is told to the parent, as data
            trace = "".join(traceback.format_exception(error)[-4:])[-2000:]
            failure = {"type": type(error).__name__, "message": str(error)[:1000], "trace": trace}
            send(replies, {"id": header["id"], "error": failure})
        sys.stdout.flush()


def answer(replies: BinaryIO, request: int, operation: Operation, arguments: dict[str, Any]) -> None:
    if "emit" in signature(operation).parameters:
        arguments["emit"] = lambda value: emit(replies, request, value)
    result = operation(**arguments)
    values = {k: v for k, v in result.items() if not isinstance(v, np.ndarray)}
    arrays = {k: np.ascontiguousarray(v) for k, v in result.items() if isinstance(v, np.ndarray)}
    items = [{"name": k, "dtype": str(v.dtype), "shape": list(v.shape)} for k, v in arrays.items()]
    send(replies, {"id": request, "values": values, "arrays": items}, *arrays.values())


def emit(replies: BinaryIO, request: int, value: Any) -> None:
    replies.write(b'{"id": %d, "event": %s}\n' % (request, json.dumps(value).encode()))
    replies.flush()


def send(replies: BinaryIO, header: dict[str, Any], *arrays: np.ndarray) -> None:
    replies.write(json.dumps(header).encode() + b"\n")
    for array in arrays:
        replies.write(array.reshape(-1).view(np.uint8).data)
    replies.flush()


def read_array(stream: BinaryIO, item: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(item["dtype"]), tuple(item["shape"])
    data = stream.read(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(shape).copy()
