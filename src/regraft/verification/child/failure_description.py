"""Describe a difference for a reproducer, as JSON values: how to build the model, its weights and
the call that shows it."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import torch

from regraft.execution.nested import map_leaves
from regraft.verification.child import call_arguments
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.drivers.driver_protocol import Subject

if TYPE_CHECKING:
    from regraft.verification.child.call_arguments import Call
    from regraft.verification.child.call_recording import Recorded
    from regraft.verification.child.comparison_setting import Setting

MODULE_KEY = "__module_at__"


def describe_failure(
    subject: Subject,
    seed: int,
    setting: Setting | None,
    run: tuple[Recorded | None, Call] | None,
    difference: Difference,
) -> dict[str, Any]:
    """Return a JSON-able failure with "recipe", "seed", "path", "max_abs", "max_rel" and "kind"
    ("build", "call" or "dropout"); tensors are a base64 text of `torch.save`.

    `run` is the recorded call, None for the whole model, with the call that fails; without
    `setting` or `run` it is a failure to build. A call adds "dtype", "training", "module" (path, ""
    for the whole model), "function" (name, "" for a module), "shapes", "inputs" (label) and "data".
    """
    failure: dict[str, Any] = {
        "recipe": dict(subject.recipe),
        "seed": seed,
        "path": difference.path,
        "max_abs": difference.absolute,
        "max_rel": difference.relative,
    }
    if setting is None or run is None:
        return {**failure, "kind": "build"}
    entry, call = run
    failure.update(
        kind="dropout" if call.label == "dropout" else "call",
        dtype=setting.dtype,
        training=setting.training,
        module=(entry.path or "") if entry else "",
        function=entry.definition if entry and entry.path is None else "",
        shapes=call_arguments.shapes(call),
        inputs=call.label,
        data=_encode_tensors(setting, call),
    )
    return failure


def _encode_tensors(setting: Setting, call: Call) -> str:
    """Return the arguments and the original's weights, as `torch.save` writes them, in base64; ""
    where they cannot be pickled. The keys are "args", "kwargs" and "state"."""
    state = dict(setting.pair.original.state_dict())
    payload = {
        "args": _without_references(call.args),
        "kwargs": _without_references(dict(call.kwargs)),
        "state": state,
    }
    buffer = io.BytesIO()
    try:
        torch.save(payload, buffer)
    except Exception:  # noqa: BLE001 - arguments that cannot be pickled; the reproducer then names the inputs only
        return ""
    return base64.b64encode(buffer.getvalue()).decode()


def _without_references(value: Any) -> Any:
    """Return a copy of a nested value with each reference to a module replaced by {MODULE_KEY:
    path}, so that loading does not need this package."""
    return map_leaves(
        value,
        lambda leaf: (
            {MODULE_KEY: leaf.path} if isinstance(leaf, call_arguments.ModuleRef) else leaf
        ),
    )
