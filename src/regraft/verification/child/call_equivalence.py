"""Say which recorded calls count as alike, so that replays of one stand for the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import torch

from regraft.execution.nested import map_leaves
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_recording import Recorded
from regraft.verification.child.checks.comparison_domain import (
    domain_of,
)
from regraft.verification.child.comparison_setting import (
    Setting,
)
from regraft.verification.child.session import Session
from regraft.verification.child.widened_calls import (
    module_of,
)


def count_form(entry: Recorded, context: str, session: Session) -> int:
    """Count an entry in `session.forms`, and return how many entries so far have its form in this
    context, itself included.

    Calls of one form count as alike but for their sizes, and these compare alike: with each other,
    with 1 and 2, and with the constants in the changed lines.
    """
    constants = domain_of(entry.definition, session).constants.sizes if session.beyond else ()
    limits = sorted({1, 2, *constants})
    sizes = sorted({size for tensor in call_arguments.tensors(entry.call) for size in tensor.shape})
    places = {
        size: (rank, bisect_left(limits, size), bisect_right(limits, size))
        for rank, size in enumerate(sizes)
    }
    form = f"{context} {describe_arguments(entry.call, places)}"
    session.forms[form] += 1
    return session.forms[form]


def element_count(call: Call) -> int:
    """Return the number of elements in the tensors of a call."""
    return sum(tensor.numel() for tensor in call_arguments.tensors(call))


def context_of(entry: Recorded, setting: Setting) -> str:
    """Return a text that is equal for recorded calls of a definition in the same setting, of
    modules that print alike, with the same plain attributes and configurations."""
    module = module_of(entry, setting)
    plain: dict[str, Any] = {}
    configs: dict[int, Any] = {}
    for path, submodule in module.named_modules() if module is not None else ():
        for name, value in vars(submodule).items():
            if isinstance(value, bool | int | float | str):
                plain[f"{path}.{name}"] = value
            elif hasattr(value, "to_dict"):
                configs[id(value)] = value
    settings = [str(config.to_dict()) for config in configs.values()]
    conditions = f"{setting.mode} {setting.dtype} {setting.seed} {setting.subject.light}"
    return f"{entry.definition} {module} {plain} {settings} {conditions}"


def describe_arguments(call: Call, places: Mapping[int, object] | None = None) -> Any:
    """Return the arguments of a call with the properties that distinguish calls in the place of
    tensors and objects, and with `places` in the place of the sizes of tensors."""
    return map_leaves((call.args, dict(call.kwargs)), lambda leaf: _describe_leaf(leaf, places))


def _describe_leaf(leaf: Any, places: Mapping[int, object] | None) -> Any:
    """Return the properties of an argument that distinguish calls: shape (or the `places` of its
    sizes), format and whether it is a mask for a tensor, a plain value as it is, the class name of
    any other object."""
    if isinstance(leaf, torch.Tensor):
        shape = tuple(size if places is None else places[size] for size in leaf.shape)
        return f"{shape} {leaf.dtype} {call_arguments.is_mask(leaf)}"
    return (
        leaf
        if leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype)
        else type(leaf).__name__
    )
