"""The caller's own driver: a function `module -> (model, calls)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, build_seeded
from regraft.verify.child.tree import Call

Factory = Callable[[ModuleType], Any]


def subjects(spec: str, folder: str, function: Factory, session: Session) -> Iterator[Subject]:
    """Yield the one subject that the caller's function builds.

    The function gets the original or the changed module and returns a model and its calls: tuples
    of positional arguments or dictionaries of keywords. Where the calls have only one shape, calls
    with another batch size are derived from the first call.
    """
    model, entries = build_seeded(0, function, session.original)
    calls = tuple(_call(entry, number) for number, entry in enumerate(entries))
    if len({str(tree.shapes(call)) for call in calls}) < 2:
        calls += _with_other_batch(model, calls[:1])

    def build(module: ModuleType) -> Any:
        return function(module)[0]

    yield Subject(
        spec, "user", build, lambda _: calls, {"kind": "user", "driver": spec, "folder": folder}
    )


def _call(entry: Any, number: int) -> Call:
    """Return the recorded call for one entry of the caller's calls: keywords, positional arguments,
    or a single argument.
    """
    label = f"call {number}"
    if isinstance(entry, Mapping):
        return tree.snapshot((), entry, None, label)
    return tree.snapshot(
        tuple(entry) if isinstance(entry, tuple | list) else (entry,), {}, None, label
    )


def _with_other_batch(model: Any, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls with one row, or with three where they have one, that the original
    accepts."""
    accepted_calls = []
    for call in calls:
        resized_call = Call(
            tree.map_leaves(call.args, _resize_batch),
            tree.map_leaves(dict(call.kwargs), _resize_batch),
            "other batch",
        )
        if execute(Target(model), resized_call, Plan(gradients=False)).error is None:
            accepted_calls.append(resized_call)
    return tuple(accepted_calls)


def _resize_batch(leaf: Any) -> Any:
    """Return a tensor with its first row only, or three times over where it has one; other values
    unchanged."""
    if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
        return leaf
    return leaf[:1].clone() if leaf.shape[0] > 1 else torch.cat([leaf, leaf, leaf])
