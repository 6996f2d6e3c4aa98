"""Make a subject that calls its model several times in a row: state that the model keeps of a call
must not show in the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, map_tensors, tensors
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_variants import narrow_tensors
from regraft.verification.child.checks.mask_variants import masked_calls
from regraft.verification.child.checks.repeated_calls import InTurn
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.session import Session, build_seeded, switch_mode


def subject_called_repeatedly(
    subject: Subject, names: Mapping[str, Any], session: Session
) -> Subject | None:
    """Return a subject that makes its last call for seed 0, then other calls (other values, another
    mask, a single row), then the last call again, all on one model and for every seed.

    `names` are the arguments of the last call by parameter. None where the original refuses the
    last call, or all the other calls.
    """
    call = subject.calls(0)[-1]
    model = switch_mode(build_seeded(0, subject.build, session.original), False)
    varied_calls = [
        varied_call
        for varied_call in _varied_calls(call, names)
        if _is_accepted(model, varied_call)
    ]
    if not varied_calls or not _is_accepted(model, call):
        return None
    turn_calls = [call, *varied_calls, call]
    turn_arguments = tuple((turn_call.args, dict(turn_call.kwargs)) for turn_call in turn_calls)
    combined_call = Call(turn_arguments, {}, "several calls in a row", "calls in a row")

    def build(module: ModuleType) -> Any:
        """Return the subject's model of a module, wrapped to make several calls."""
        return InTurn(subject.build(module))

    recipe = {**subject.recipe, "in_turn": True}
    return replace(
        subject,
        name=f"{subject.name} called in a row",
        build=build,
        calls=lambda seed: (combined_call,),
        recipe=recipe,
    )


def _varied_calls(call: Call, names: Mapping[str, Any]) -> Iterator[Call]:
    """Yield a call with larger values, so that what a model keeps of the largest is not that of the
    last call, a call with other values, a call with another mask where it has a mask, and a call
    with a single row where it has several rows."""
    if any(tensor.is_floating_point() for tensor in tensors(call)):
        yield map_tensors(call, lambda tensor: tensor * 2 if tensor.is_floating_point() else tensor)
    yield map_tensors(call, _vary_values)
    yield from list(masked_calls(call, names))[:1]
    rows = next((tensor.shape[0] for tensor in tensors(call) if tensor.dim() > 0), 0)
    if rows > 1:
        yield narrow_tensors(call, rows, 1, slice(0, 1), "one row")


def _vary_values(tensor: Any) -> Any:
    """Return a tensor with other values.

    Real numbers are negated and halved, the order of integers is reversed, and booleans stay.
    """
    if tensor.is_floating_point():
        return tensor * -0.5
    return tensor.flip(-1) if tensor.dim() > 0 and tensor.dtype != torch.bool else tensor


def _is_accepted(model: Any, call: Call) -> bool:
    """Return whether a model runs on a call without an error."""
    return execute(Target(model), call, Plan(gradients=False)).error is None
