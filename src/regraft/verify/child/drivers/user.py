"""The caller's own driver: a function `module -> (model, calls)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, seeded
from regraft.verify.child.tree import Call

Factory = Callable[[ModuleType], Any]


def subjects(spec: str, folder: str, function: Factory, session: Session) -> Iterator[Subject]:
    """Yield the one subject that the caller's function builds.

    The function gets the
    original or the changed module and returns a model and its calls: tuples of positional arguments or dictionaries
    of keywords. Give calls of two shapes; otherwise a second batch size is derived from the first call.
    """
    model, given = seeded(0, function, session.original)
    calls = tuple(_call(entry, number) for number, entry in enumerate(given))
    if len({str(tree.shapes(call)) for call in calls}) < 2:
        calls += _other_batch(model, calls[:1])

    def build(module: ModuleType) -> Any:
        return function(module)[0]

    yield Subject(spec, "user", build, lambda _: calls, {"kind": "user", "driver": spec, "folder": folder})


def _call(entry: Any, number: int) -> Call:
    label = f"call {number}"
    if isinstance(entry, Mapping):
        return tree.snapshot((), entry, None, label)
    return tree.snapshot(tuple(entry) if isinstance(entry, tuple | list) else (entry,), {}, None, label)


def _other_batch(model: Any, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls with one row, or with three where they have one, if the original accepts that."""
    made = []
    for call in calls:
        other = Call(tree.map_leaves(call.args, _rebatch), tree.map_leaves(dict(call.kwargs), _rebatch), "other batch")
        if execute(Target(model), other, Plan(gradients=False)).error is None:
            made.append(other)
    return tuple(made)


def _rebatch(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
        return leaf
    return leaf[:1].clone() if leaf.shape[0] > 1 else torch.cat([leaf, leaf, leaf])
