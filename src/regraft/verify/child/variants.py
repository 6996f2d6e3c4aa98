"""Other inputs for a recorded call, chosen so that small mistakes become large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.tree import Call

AS_RECORDED = "as recorded"
SMALL = "inputs and parameters x 0.01"
# Calls of which the parameters are others for a while: `weights.altered` says how.
ZERO, LARGE, TINY = "parameters that are zero", "parameters x 1000", "parameters x 1e-6"
LOW, HALF = "biases of -100", "parameters in bfloat16, inputs in float32"
ALTERED = (SMALL, ZERO, LARGE, TINY, LOW, HALF)
STRIDED = "inputs not contiguous"
ONE_ROW, NO_ROWS, SHORTER = "one row", "no rows", "one step shorter"
ROWS, ALL = slice(0, 1), slice(None)  # dimensions
BEYOND = "an index beyond the largest"
LAID_OUT = (STRIDED, ONE_ROW, SHORTER, NO_ROWS, BEYOND)


def variants(call: Call) -> tuple[Call, ...]:
    """Return the call and its perturbations; masks, integers and flags stay as recorded.

    Small inputs make an epsilon visible, large ones a missing scale, constant rows a variance of zero.
    """
    made = [Call(call.args, call.kwargs, AS_RECORDED)]
    made += [_mapped(call, f"inputs x {factor:g}", _scaled(factor)) for factor in (1e-3, 1e-2, 10.0)]
    made.append(_mapped(call, "constant rows", _constant_rows))
    made.append(_mapped(call, SMALL, _scaled(1e-2)))
    if any(leaf.dtype == torch.float16 for leaf in tree.tensors(call)):
        made.append(_mapped(call, "inputs x 1000", _scaled(1e3)))  # their squares overflow
    return tuple(made)


def laid_out(call: Call) -> tuple[Call, ...]:
    """Return the call in other layouts and sizes: strides, one row, no rows, one step less; some may not fit.

    And with an index beyond the largest: what stands for nothing, padding or no expert, often is one.
    """
    tensors = [tensor for tensor in tree.tensors(call) if tensor.dim() > 0]
    made = [_mapped(call, STRIDED, _strided, masks=True)]
    if tensors:
        rows = tensors[0].shape[0]
        made += [narrowed(call, rows, 1, ROWS, ONE_ROW)] if rows > 1 else []
        steps = next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), 0)
        made += [narrowed(call, steps, steps - 1, slice(1, None), SHORTER)] if steps > 2 else []
        made.append(narrowed(call, rows, 0, ROWS, NO_ROWS))
    if any(_is_index(tensor) for tensor in tensors):
        made.append(_mapped(call, BEYOND, lambda tensor: _beyond(tensor) if _is_index(tensor) else tensor, masks=True))
    return tuple(made)


def _is_index(tensor: Any) -> bool:
    """Whether a tensor holds whole numbers, and not those of a mask."""
    return tensor.dtype in (torch.int32, torch.int64) and tensor.numel() > 0 and bool(tensor.max() != 1)


def _beyond(tensor: Any) -> Any:
    moved = tensor.clone(memory_format=torch.contiguous_format)
    moved.view(-1)[-1] = tensor.max() + 1
    return moved


def _strided(tensor: Any) -> Any:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor


def narrowed(call: Call, size: int, to: int, dims: slice, label: str) -> Call:
    """Narrow those of the given dimensions that have a size, in all tensors of a call."""

    def each(tensor: Any) -> Any:
        for dim in range(tensor.dim())[dims]:
            if tensor.shape[dim] == size:
                tensor = tensor.narrow(dim, 0, to)
        return tensor.clone(memory_format=torch.contiguous_format)

    return _mapped(call, label, each, masks=True)


def off_by_one_rounding(call: Call) -> Call:
    """The call with every number of its inputs moved by about one unit in its last place, up or down."""
    generator = torch.Generator().manual_seed(0)
    return _mapped(call, call.label, lambda tensor: rounded_otherwise(tensor, generator))


def rounded_otherwise(tensor: Any, generator: Any) -> Any:
    """Return a tensor with every number moved by about one unit in its last place, up or down."""
    signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor) * 2 - 1
    return tensor * (1 + signs * torch.finfo(tensor.dtype).eps)


def _mapped(call: Call, label: str, fn: Callable[[Any], Any], *, masks: bool = False) -> Call:
    """Apply a function to the floating tensors that are no masks, or with `masks` to all tensors."""

    def each(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return fn(leaf) if masks or (leaf.is_floating_point() and not tree.is_mask(leaf)) else leaf

    return Call(tree.map_leaves(call.args, each), tree.map_leaves(dict(call.kwargs), each), label, call.beyond)


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda tensor: tensor * factor


def _constant_rows(tensor: Any) -> Any:
    """Multiples of a quarter: sums and means of them are exact, so the variance is exactly zero."""
    if tensor.dim() == 0:
        return tensor
    first = torch.round(tensor.select(-1, 0) * 4) / 4
    return first.unsqueeze(-1).expand_as(tensor).clone()
