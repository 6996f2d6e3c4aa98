"""Other inputs for a recorded call, chosen so that small mistakes become large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.tree import Call

AS_RECORDED = "as recorded"
SMALL = "inputs and parameters x 0.01"


def variants(call: Call) -> tuple[Call, ...]:
    """Return the call and its perturbations; masks, integers and flags stay as recorded.

    Small inputs make an epsilon visible, large ones a missing scale, constant rows a variance of zero.
    """
    made = [Call(call.args, call.kwargs, AS_RECORDED)]
    made += [_mapped(call, f"inputs x {factor:g}", _scaled(factor)) for factor in (1e-3, 1e-2, 10.0)]
    made.append(_mapped(call, "constant rows", _constant_rows))
    made.append(_mapped(call, SMALL, _scaled(1e-2)))
    return tuple(made)


def off_by_one_rounding(call: Call) -> Call:
    """The call with every number of its inputs moved by about one unit in its last place, up or down."""
    generator = torch.Generator().manual_seed(0)

    def moved(tensor: Any) -> Any:
        signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor) * 2 - 1
        return tensor * (1 + signs * torch.finfo(tensor.dtype).eps)

    return _mapped(call, call.label, moved)


def _mapped(call: Call, label: str, fn: Callable[[Any], Any]) -> Call:
    def each(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not tree.is_mask(leaf):
            return fn(leaf)
        return leaf

    return Call(tree.map_leaves(call.args, each), tree.map_leaves(dict(call.kwargs), each), label)


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda tensor: tensor * factor


def _constant_rows(tensor: Any) -> Any:
    """Multiples of a quarter: sums and means of them are exact, so the variance is exactly zero."""
    if tensor.dim() == 0:
        return tensor
    first = torch.round(tensor.select(-1, 0) * 4) / 4
    return first.unsqueeze(-1).expand_as(tensor).clone()
