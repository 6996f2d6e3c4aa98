"""Make variants of a recorded call that run with other parameters (zero, tiny or huge ones), or
with inputs of other number formats and layouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, map_tensors, tensors
from regraft.verification.child.checks.value_variants import EXTREME, VALUES
from regraft.verification.child.parameter_alterations import (
    ALTERATIONS,
    BIASES,
    BUFFERS,
    FEW_ROWS,
    LARGE,
    PAIRED,
    ZERO,
)
from regraft.verification.child.weights import stable_buffers


def altered_calls(
    call: Call,
    compared_numbers: Collection[float] = (),
    *,
    ties: bool = False,
    chooses: bool = False,
) -> Iterator[Call]:
    """Yield a call for each of ALTERATIONS, that of rows in pairs for `ties` only, that of few rows
    where the definition chooses among results, and one in which all biases are a number with which
    changed lines compare, and all other parameters zero; `weights.change_parameters` applies the
    alteration while the call runs.

    Layers give that number itself then, so that `>` and `>=` differ. Where every result is zero or
    the same, or a softmax is saturated, gradients are those of ties and rounding.
    """
    left_out = {PAIRED: not ties, FEW_ROWS: not chooses}
    for label in (label for label in ALTERATIONS if not left_out.get(label)):
        yield replace(call, label=label, beyond=EXTREME if label in (ZERO, LARGE) else VALUES)
    for number in compared_numbers:
        label = f"{BIASES}{number!r}"
        yield replace(call, label=label, beyond=EXTREME, exact_values=(number,))


def calls_with_other_buffers(call: Call, module: Any) -> Iterator[Call]:
    """Yield a call that runs with other values in the buffers of the checkpoint that drawing
    parameters leaves as they are; nothing for a module without such, and for None."""
    if stable_buffers(module):
        yield replace(call, label=BUFFERS, beyond=VALUES)


def calls_in_other_layouts(call: Call) -> Iterator[Call]:
    """Yield a call with inputs in bfloat16, with the last dimensions transposed in memory, and with
    channels last, each where that changes the layout or format of a tensor."""
    layouts: Mapping[str, Callable[[Any], Any]] = {
        "inputs in bfloat16": lambda tensor: (
            tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        ),
        "the last dimensions transposed in memory": _transposed_in_memory,
        "channels last": _with_channels_last,
    }
    for label, change in layouts.items():
        changed_call = map_tensors(call, change, label, "layouts")
        if _changes_layout(call, changed_call):
            yield changed_call


def _transposed_in_memory(tensor: Any) -> Any:
    """Return a tensor of equal values whose last two dimensions are swapped in memory; a tensor of
    fewer than two dimensions as it is."""
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _with_channels_last(tensor: Any) -> Any:
    """Return a tensor of four dimensions with its channels last in memory; other tensors
    unchanged."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _changes_layout(call: Call, changed_call: Call) -> bool:
    """Return whether any tensor has another layout or format in one of two calls."""
    old_layouts, new_layouts = (
        [(tensor.stride(), tensor.dtype) for tensor in tensors(side_call)]
        for side_call in (call, changed_call)
    )
    return old_layouts != new_layouts
