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
