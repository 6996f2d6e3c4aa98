"""Calls with other parameters: results that are zero, tiny, huge or negative, and other number formats and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.values import EXTREME, VALUES
from regraft.verify.child.tree import Call, map_leaves, tensors
from regraft.verify.child.variants import HALF, LARGE, LOW, TINY, ZERO

Alteration = Callable[[str, Any], Any]
ALTERATIONS: Mapping[str, Alteration] = {
    ZERO: lambda name, value: torch.zeros_like(value),
    LARGE: lambda name, value: value * 1e3,
    TINY: lambda name, value: value * 1e-6,
    LOW: lambda name, value: torch.full_like(value, -100.0) if name.endswith("bias") else None,
    HALF: lambda name, value: value.to(torch.bfloat16),
}


def altered_calls(call: Call) -> Iterator[Call]:
    """Yield a call for each of ALTERATIONS; `weights.changed` makes them while the call runs.

    Where every result is zero, or a softmax is saturated, gradients are those of ties and rounding.
    """
    for label in ALTERATIONS:
        yield replace(call, label=label, beyond=EXTREME if label in (ZERO, LARGE) else VALUES)


def laid_out_calls(call: Call) -> Iterator[Call]:
    """Yield a call with tensors of another layout or number format than the parameters."""
    layouts: Mapping[str, Callable[[Any], Any]] = {
        "inputs in bfloat16": lambda tensor: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor,
        "the last dimensions transposed in memory": _transposed,
        "channels last": _channels_last,
    }
    for label, change in layouts.items():

        def each(leaf: Any, change: Callable[[Any], Any] = change) -> Any:
            return change(leaf) if isinstance(leaf, torch.Tensor) else leaf

        other = Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), label, "layouts")
        if _differs(call, other):
            yield other


def _transposed(tensor: Any) -> Any:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _channels_last(tensor: Any) -> Any:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _differs(call: Call, other: Call) -> bool:
    """Whether any tensor has another layout or format in one of two calls."""
    before, after = ([(tensor.stride(), tensor.dtype) for tensor in tensors(side)] for side in (call, other))
    return before != after
