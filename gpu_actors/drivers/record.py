"""Writes down what the functions that contracts name are given and return: types, shapes, dtypes, devices, no values
but integers.

The functions are wrapped only between `record` and `recorded`, in the process that runs the stage tests. Nothing is
timed there: the benchmarker starts processes of its own, and never asks for either.
"""

import sys
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from functools import cached_property, wraps
from inspect import Signature, signature
from types import FunctionType, ModuleType
from typing import Any

import torch

from .stages import PARTS, module

MOST = 200
"""Different calls of one function that are kept: its first ones."""
ABSTRACT: dict[str, Any] = {
    "Mapping": Mapping,
    "Callable": Callable,
    "Iterator": Iterator,
    "AsyncIterator": AsyncIterator,
}
CALLS: dict[str, dict[Hashable, dict[str, Any]]] = {}
"""`module:name` -> what tells a call from others -> that call. A decode step makes hundreds of calls and hardly a new
one, so only a new one is described."""
SOURCES: dict[int, tuple[Any, list[Any]]] = {}
"""id of an object -> a weak reference to it, and [function, index] of who returned it last."""
UNDO: list[Callable[[], None]] = []


def source_of(value: Any) -> list[Any] | None:
    """Which function returned this very object last, and at which place."""
    reference, source = SOURCES.get(id(value), (None, None))
    return source if reference is not None and reference() is value else None


def outline(value: Any, depth: int = 2) -> Hashable:
    """What `describe` depends on: two values with one outline have one description."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        found: Hashable = (value.shape, value.dtype, value.device.type)
    elif isinstance(value, int):
        return kind, int(value)
    elif isinstance(value, list | tuple | dict):
        inner = list(value)[:3] + (list(value.values())[:3] if isinstance(value, dict) else [])
        found = (len(value), *(outline(item, depth - 1) for item in inner)) if depth else len(value)
    else:
        found = None
    source = source_of(value)
    return kind, found, tuple(source) if source else None


def describe(value: Any, depth: int = 2) -> dict[str, Any]:
    """What a value is, as JSON."""
    if isinstance(value, torch.Tensor):
        found: dict[str, Any] = {
            "tensor": list(value.shape),
            "dtype": str(value.dtype)[6:],
            "device": value.device.type,
        }
    else:
        abstract = [name for name, kind in ABSTRACT.items() if isinstance(value, kind)]
        found = {"kinds": [kind.__name__ for kind in type(value).__mro__] + abstract}
    if isinstance(value, int):
        found["value"] = int(value)
    if isinstance(value, list | tuple | dict):
        found["length"] = len(value)
        if depth:
            found["items"] = [describe(item, depth - 1) for item in list(value)[:3]]
            if isinstance(value, dict):
                found["values"] = [describe(item, depth - 1) for item in list(value.values())[:3]]
    if source := source_of(value):
        found["from"] = source
    return found


def note(
    key: str, shape: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, bound: bool
) -> None:
    """`shape`: the function's own; `bound`: its first argument is self or cls."""
    calls = CALLS.setdefault(key, {})
    if len(calls) < MOST:
        given = tuple(outline(value) for value in args[bound:])
        named = tuple((name, outline(value)) for name, value in kwargs.items())
        parts = tuple(outline(part) for part in result) if isinstance(result, tuple) else ()
        outlined = given, named, outline(result), parts
        if outlined not in calls:
            arguments = dict(shape.bind(*args, **kwargs).arguments)
            if bound:
                arguments.pop(next(iter(shape.parameters)))
            call: dict[str, Any] = {
                "takes": {name: describe(value) for name, value in arguments.items()},
                "returns": describe(result),
            }
            if isinstance(result, tuple):
                call["parts"] = [describe(part) for part in result]
            calls[outlined] = call
    for index, part in enumerate(result if isinstance(result, tuple) else (result,)):
        try:
            SOURCES[id(part)] = (weakref.ref(part), [key, index])
        except TypeError:  # numbers and containers can't be followed
            continue


def wrapped(key: str, function: Callable[..., Any], *, bound: bool) -> Callable[..., Any]:
    """The function, noting each call that returns. `bound`: its first argument is self or cls."""
    shape = signature(function)

    @wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        note(key, shape, args, kwargs, result, bound=bound)
        return result

    return noted


def record(functions: dict[str, list[str]]) -> dict[str, Any]:
    """Wraps functions, classes and methods by module (without .py) and name. What isn't there, or is a constant, is
    left alone."""
    for file, names in functions.items():
        held = module(file)
        for name in names:
            owner, _, member = name.rpartition(".")
            holder: Any = getattr(held, owner, None) if owner else held
            kind = getattr(holder, member, None)
            if holder is None or kind is None:
                continue
            if isinstance(kind, type):
                _member(f"{file}:{name}", kind, "__init__")
            elif owner:
                _member(f"{file}:{name}", holder, member)
            elif callable(kind):  # a function, or what a decorator such as functools.cache made of one
                _everywhere(kind, wrapped(f"{file}:{name}", kind, bound=False))
    return {}


def _everywhere(original: Any, other: Any) -> None:
    """Modules that import a function by name hold a reference of their own."""
    prefix = f"{PARTS['package']}."
    for held in [m for name, m in list(sys.modules.items()) if name.startswith(prefix)]:
        for name in [name for name, value in vars(held).items() if value is original]:
            setattr(held, name, other)


def _member(key: str, holder: type, name: str) -> None:
    own = name in vars(holder)
    plain = next((vars(kind)[name] for kind in holder.__mro__ if name in vars(kind)), None)
    if isinstance(plain, classmethod):
        other: Any = classmethod(wrapped(key, plain.__func__, bound=True))
    elif isinstance(plain, cached_property):
        other = cached_property(wrapped(key, plain.func, bound=True))
        other.__set_name__(holder, name)
    elif isinstance(plain, property) and plain.fget:
        other = property(wrapped(key, plain.fget, bound=True))
    elif isinstance(plain, FunctionType):
        other = wrapped(key, plain, bound=True)
    else:
        return
    setattr(holder, name, other)
    UNDO.append(lambda: setattr(holder, name, plain) if own else delattr(holder, name))


def recorded(constants: dict[str, list[str]]) -> dict[str, Any]:
    """What was noted, and what the named constants are. Everything is as it was before `record` afterwards."""
    for undo in reversed(UNDO):
        undo()
    prefix = f"{PARTS['package']}."
    for held in [m for name, m in list(sys.modules.items()) if name.startswith(prefix)]:
        for name, value in [*vars(held).items()]:
            if isinstance(value, FunctionType) and value.__code__ is NOTED:
                setattr(held, name, value.__wrapped__)  # type: ignore[attr-defined]
    values = {
        f"{file}:{name}": describe(_constant(module(file), name)) for file, ns in constants.items() for name in ns
    }
    calls = {key: list(found.values()) for key, found in CALLS.items()}
    UNDO.clear()
    CALLS.clear()
    SOURCES.clear()
    return {"calls": calls, "values": values}


def _constant(held: ModuleType, name: str) -> Any:
    """A constant of a module; of a class when the name has a dot."""
    value: Any = held
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


NOTED = wrapped("", lambda: None, bound=False).__code__
OPERATIONS = {"record": record, "recorded": recorded}
