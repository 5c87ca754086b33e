"""The experiments behind the error cases of contracts, of operators, cache, weights and model: each provokes one
refusal and tells what it looked like. Those of the engine and its server are in errors_engine_experiments.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu_actors import checkpoint
from gpu_actors.gates.base import Subject

Words = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Refusal:
    """How something was refused."""

    what: str
    """Name of the exception's class, `HTTP 400`, `exit status 2`; empty when it wasn't."""
    message: str = ""
    words: Words = field(default_factory=dict)
    """What a contract may ask of the message, in its words -> texts that must all stand in it."""
    any_class: bool = False
    """Whether the exception's class is left open."""
    note: str = ""
    """What else is wrong about it."""


def raised(
    subject: Subject, op: str, words: Words | None = None, *, any_class: bool = False, **arguments: Any
) -> Refusal:
    """The exception of an operation. Raises ChildFailure when the process crashes."""
    failure = subject.raised(op, **arguments)
    if failure is None:
        return Refusal("", "it returned", words or {}, any_class)
    return Refusal(failure.error_type, str(failure), words or {}, any_class)


def built(subject: Subject, compiler: str, words: Words) -> Refusal | None:
    """Set-up of a fresh copy with another compiler. None for an engine that compiles nothing."""
    if not any(row.native for row in subject.job.rows):
        return None
    return raised(subject, "setup_again", words, environment={"CXX": compiler}, tree_dir=str(subject.tree_dir))


def no_compiler(subject: Subject) -> Refusal | None:
    return built(subject, "/nowhere/c++", {"what was tried": ("/nowhere/c++",)})


def no_compilation(subject: Subject) -> Refusal | None:
    return built(subject, "c++ -include nothing-of-this-name.h", {"the compiler's words": ("nothing-of-this-name.h",)})


def past_capacity(subject: Subject) -> Refusal:
    facts, capacity, start = subject.facts.model, 8, 7
    row = np.ones((3, facts.kv_heads, facts.head_dim), dtype=np.float32)
    words = {"the last position": (str(start + len(row) - 1),), "the capacity": (str(capacity),)}
    return raised(subject, "cache", words, capacity=capacity, appends=[[0, start]], reads=[], k0=row, v0=row)


def tensor(subject: Subject) -> tuple[str, list[int]]:
    """A matrix of the checkpoint, and its shape."""
    name = "model.layers.0.mlp.up_proj.weight"
    return name, list(checkpoint.Checkpoint(subject.checkpoint).tensor(name).shape)


def taken(subject: Subject, tensors: list[tuple[str, list[int]]], words: Words, ignored: Any = None) -> Refusal:
    return raised(subject, "take", words, folder=str(subject.checkpoint), tensors=tensors, ignored=ignored)


def missing(subject: Subject) -> Refusal:
    return taken(subject, [("model.of_no_such_name", [1])], {"the tensor's name": ("model.of_no_such_name",)})


def taken_twice(subject: Subject) -> Refusal:
    return taken(subject, [tensor(subject)] * 2, {"the tensor's name": (tensor(subject)[0],)})


def other_shape(subject: Subject) -> Refusal:
    name, shape = tensor(subject)
    wrong = shape[::-1] if shape[0] != shape[1] else [2 * shape[0], shape[1] // 2]  # as many numbers, in another order
    words = {"the tensor's name": (name,), "its shape": (str(tuple(shape)),)}
    return taken(subject, [(name, wrong)], words | {"the shape that the engine is made for": (str(tuple(wrong)),)})


def left_over(subject: Subject) -> Refusal:
    first = min(checkpoint.Checkpoint(subject.checkpoint).names)  # of a long list only the start comes through
    return taken(subject, [], {"the tensor's name": (first,)}, ignored=["of_no_such_ending"])


def copy(subject: Subject, name: str, make: Callable[[Path], object]) -> str:
    """A folder that the child may read, made once."""
    folder = subject.copies / name
    if not folder.exists():
        make(folder)
    return str(folder)


def lacking(subject: Subject) -> Refusal:
    name = "model.layers.0.mlp.up_proj.weight"
    folder = copy(subject, "lacking_first", lambda to: checkpoint.renamed(subject.checkpoint, to, name))
    return raised(subject, "load_weights", {"the tensor's name": (name,)}, checkpoint=folder)


def unknown(subject: Subject) -> Refusal:
    subject.drop()  # all weights are read before the one that is too many is seen
    name = "model.layers.0.of_no_such_name.weight"
    folder = copy(subject, "with_another", lambda to: checkpoint.extended(subject.checkpoint, to, name))
    return raised(subject, "load_weights", {"the tensor's name": (name,)}, checkpoint=folder)


def cut_short(subject: Subject) -> Refusal:
    folder = copy(subject, "truncated", lambda to: checkpoint.truncated(subject.checkpoint, to))
    return raised(subject, "load_weights", any_class=True, checkpoint=folder)


def step_past_capacity(subject: Subject) -> Refusal:
    subject.load_model()
    words = {"the position": ("7",), "the capacity": ("5",)}
    return raised(subject, "step_at", words, position=7, capacity=5)


EXPERIMENTS: dict[tuple[str, str, str], Callable[[Subject], Refusal | None]] = {
    ("setup", "setup", "a machine without a compiler, at set-up and never at the first request"): no_compiler,
    ("setup", "setup", "a source that does not compile, at set-up and never at the first request"): no_compilation,
    ("kv-cache", "KVCache.append", "positions past the capacity"): past_capacity,
    ("checkpoint", "Checkpoint.take", "a tensor that is missing"): missing,
    ("checkpoint", "Checkpoint.take", "a tensor that was taken already"): taken_twice,
    ("checkpoint", "Checkpoint.take", "a tensor of another shape"): other_shape,
    ("checkpoint", "Checkpoint.finish", "a tensor that nobody took and no ending allows to ignore"): left_over,
    ("model", "Model.step", "a position past the cache's capacity"): step_past_capacity,
    ("weights", "load_weights", "a checkpoint that lacks a tensor"): lacking,
    ("weights", "load_weights", "a checkpoint with a tensor that the engine does not know"): unknown,
    ("weights", "load_weights", "a weight file that is cut short"): cut_short,
}
"""(contract, function, condition) -> what provokes it; None of an experiment: this Target has no such case."""
