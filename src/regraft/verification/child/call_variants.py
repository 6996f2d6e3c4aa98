"""Make variants of a recorded call that show small mistakes: inputs of other magnitudes, memory
layouts and row counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call

AS_RECORDED = "as recorded"
SMALL = "inputs and parameters x 0.01"
STRIDED = "inputs not contiguous"
SINGLE_ROW, NO_ROWS, SHORTER = "one row", "no rows", "one step shorter"
ROWS, ALL = slice(0, 1), slice(None)  # dimensions
BEYOND = "an index beyond the largest"
LAID_OUT = (STRIDED, SINGLE_ROW, SHORTER, NO_ROWS, BEYOND)


def variants(call: Call) -> tuple[Call, ...]:
    """Return the call, labelled `AS_RECORDED`, then its perturbations; masks, integers and flags
    stay as recorded.

    The perturbations are inputs times 0.001, 0.01 and 10, constant rows, `SMALL`, and times 1000
    for inputs in float16. Small inputs make an epsilon visible, large ones a missing scale,
    constant rows a variance of zero.
    """
    calls = [Call(call.args, call.kwargs, AS_RECORDED)]
    calls += [
        _map_tensors(call, f"inputs x {factor:g}", _scale_by(factor))
        for factor in (1e-3, 1e-2, 10.0)
    ]
    calls.append(_map_tensors(call, "constant rows", _with_constant_rows))
    calls.append(_map_tensors(call, SMALL, _scale_by(1e-2)))
    if any(leaf.dtype == torch.float16 for leaf in call_arguments.tensors(call)):
        calls.append(_map_tensors(call, "inputs x 1000", _scale_by(1e3)))  # their squares overflow
    return tuple(calls)


def laid_out_calls(call: Call) -> tuple[Call, ...]:
    """Return the call in other layouts and sizes, labelled as in LAID_OUT: strides, one row, one
    step less, no rows, and where a tensor holds indices one beyond the largest, as padding or "no
    expert" often is. Sizes that are too small to be cut are skipped; the original may refuse
    some."""
    tensors = [tensor for tensor in call_arguments.tensors(call) if tensor.dim() > 0]
    calls = [call_arguments.map_tensors(call, _restride, STRIDED, call.beyond)]
    if tensors:
        rows = tensors[0].shape[0]
        calls += [narrow_tensors(call, rows, 1, ROWS, SINGLE_ROW)] if rows > 1 else []
        steps = next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), 0)
        if steps > 2:
            calls.append(narrow_tensors(call, steps, steps - 1, slice(1, None), SHORTER))
        calls.append(narrow_tensors(call, rows, 0, ROWS, NO_ROWS))
    if any(map(_is_index, tensors)):
        calls.append(_call_with_index_beyond(call))
    return tuple(calls)


def _call_with_index_beyond(call: Call) -> Call:
    """Return a call in which the last element of each tensor of indices is one more than the
    largest."""
    return call_arguments.map_tensors(
        call,
        lambda tensor: _with_index_beyond(tensor) if _is_index(tensor) else tensor,
        BEYOND,
        call.beyond,
    )


def _is_index(tensor: Any) -> bool:
    """Return whether a tensor of integers (32 or 64 bits) has elements and a largest element other
    than 1, so that it is no mask."""
    return (
        tensor.dtype in (torch.int32, torch.int64)
        and tensor.numel() > 0
        and bool(tensor.max() != 1)
    )


def _with_index_beyond(tensor: Any) -> Any:
    """Return a contiguous copy whose last element is one more than the largest."""
    result = tensor.clone(memory_format=torch.contiguous_format)
    result.view(-1)[-1] = tensor.max() + 1
    return result


def _restride(tensor: Any) -> Any:
    """Return a tensor of equal values with the first and the last dimension swapped in memory, if
    it has two dimensions or more; a smaller tensor as it is."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor


def narrow_tensors(call: Call, size: int, to: int, dims: slice, label: str) -> Call:
    """Return a call with the label `label`, in whose tensors each of the dimensions `dims` that has
    size `size` is narrowed to its first `to` elements. The tensors are copies."""

    def narrow(tensor: Any) -> Any:
        """Return a contiguous copy of a tensor, with the dimensions of the size narrowed."""
        for dim in range(tensor.dim())[dims]:
            if tensor.shape[dim] == size:
                tensor = tensor.narrow(dim, 0, to)
        return tensor.clone(memory_format=torch.contiguous_format)

    return call_arguments.map_tensors(call, narrow, label, call.beyond)


def inputs_off_by_rounding(call: Call, seed: int = 0) -> Call:
    """Return the call with every number of its floating inputs, except masks and its
    `exact_values`, moved by about one unit in its last place, up or down; the same way in each
    call with the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def move(tensor: Any) -> Any:
        """Return a floating tensor with its numbers moved."""
        moved = move_by_rounding(tensor, generator)
        for value in call.exact_values:
            moved = torch.where(call_arguments.holds_value(tensor, value), tensor, moved)
        return moved

    return _map_tensors(call, call.label, move)


def move_by_rounding(tensor: Any, generator: Any, dtype: Any = None) -> Any:
    """Return a tensor of floats with every number multiplied by 1 + eps or 1 - eps, chosen at
    random; eps is that of `dtype`, by default of the tensor's own format."""
    signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor) * 2 - 1
    return tensor * (1 + signs * torch.finfo(dtype or tensor.dtype).eps)


def _map_tensors(call: Call, label: str, fn: Callable[[Any], Any]) -> Call:
    """Return a copy of a call, with the label `label`, with `fn` applied to its floating tensors,
    except masks."""

    def map_tensor(tensor: Any) -> Any:
        """Return `fn` of a floating tensor that is no mask; any other tensor as it is."""
        return (
            fn(tensor)
            if tensor.is_floating_point() and not call_arguments.is_mask(tensor)
            else tensor
        )

    return call_arguments.map_tensors(call, map_tensor, label, call.beyond)


def _scale_by(factor: float) -> Callable[[Any], Any]:
    """Return a function that multiplies a tensor."""
    return lambda tensor: tensor * factor


def _with_constant_rows(tensor: Any) -> Any:
    """Return a tensor whose rows repeat one multiple of a quarter: sums and means of them are
    exact, so the variance is exactly zero. A tensor without rows or elements stays as it is.
    """
    if tensor.dim() == 0 or not tensor.numel():
        return tensor
    first = torch.round(tensor.select(-1, 0) * 4) / 4
    return first.unsqueeze(-1).expand_as(tensor).clone()
