"""Several calls in a row: what a model remembers of the first must not show in the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child.checks.decoding import InTurn
from regraft.verify.child.checks.masks import masked_calls
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import Call, map_leaves, tensors
from regraft.verify.child.variants import narrowed


def in_turn(subject: Subject, names: Mapping[str, Any], session: Session) -> Subject | None:
    """Return a subject that makes its last call, others of the same shapes, one of one row, and the first again.

    None where the original takes no second call.
    """
    call = subject.calls(0)[-1]
    model = in_mode(seeded(0, subject.build, session.original), False)
    others = [other for other in _others(call, names) if _runs(model, other)]
    if not others or not _runs(model, call):
        return None
    turns = [call, *others, call]
    given = tuple((turn.args, dict(turn.kwargs)) for turn in turns)
    whole = Call(given, {}, "several calls in a row", "calls in a row")

    def build(module: ModuleType) -> Any:
        return InTurn(subject.build(module))

    recipe = {**subject.recipe, "in_turn": True}
    return replace(
        subject, name=f"{subject.name} called in a row", build=build, calls=lambda seed: (whole,), recipe=recipe
    )


def _others(call: Call, names: Mapping[str, Any]) -> Iterator[Call]:
    """Yield a call with other values, with another mask, and with a row or a step less."""
    yield _mapped(call, _turned)
    yield from list(masked_calls(call, names))[:1]
    rows = next((tensor.shape[0] for tensor in tensors(call) if tensor.dim() > 0), 0)
    if rows > 1:
        yield narrowed(call, rows, 1, slice(0, 1), "one row")


def _turned(tensor: Any) -> Any:
    """Return a tensor with its values in another order, or the numbers themselves, where they are such, halved."""
    if tensor.is_floating_point():
        return tensor * -0.5
    return tensor.flip(-1) if tensor.dim() > 0 and tensor.dtype != torch.bool else tensor


def _mapped(call: Call, change: Any) -> Call:
    def each(leaf: Any) -> Any:
        return change(leaf) if isinstance(leaf, torch.Tensor) else leaf

    return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each))


def _runs(model: Any, call: Call) -> bool:
    return execute(Target(model), call, Plan(gradients=False)).error is None
