"""How much of a result is rounding in the original network itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

ROUNDINGS = 4  # of the weights
MOST = 2.0  # times what these change in the result


def is_rounding(model: torch.nn.Module, call: dict[str, Any], got: Any, expected: Any) -> bool:
    """Whether two results differ by no more than the original does when the last bits of its weights are others.

    The exact result for weights that were rounded differently is as good an answer as the one for these weights
    (backward error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.5).
    """
    results = [one for one in (rounded(model, call, seed) for seed in range(ROUNDINGS)) if alike(one, expected)]
    if not results or not alike(got, expected):
        return False
    leaves = zip(*(pytree.tree_leaves(one) for one in (got, expected)), strict=True)
    for place, (one, other) in enumerate(leaves):
        if not isinstance(one, torch.Tensor):
            if one != other:
                return False
            continue
        changes = [farthest(pytree.tree_leaves(each)[place], other) for each in results]
        if farthest(one, other) > MOST * max((change for change in changes if change < float("inf")), default=0.0):
            return False
    return True


def rounded(model: torch.nn.Module, call: dict[str, Any], seed: int) -> Any:
    """What the original gives with every weight moved by half a unit in its last place; None where it raises."""
    generator = torch.Generator().manual_seed(seed)

    def moved(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
        return (value.double() * (1 + sign * torch.finfo(value.dtype).eps / 2)).to(value.dtype)

    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    try:
        with torch.no_grad():
            return torch.func.functional_call(model, {key: moved(one) for key, one in held.items()}, kwargs=call)
    except Exception:  # noqa: BLE001  (with other weights it may take another way, and whatever raises there)
        return None


def alike(one: Any, other: Any) -> bool:
    """Whether results have equal structure, types and shapes."""
    (left, left_form), (right, right_form) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return left_form == right_form and all(kind(a) == kind(b) for a, b in zip(left, right, strict=True))


def kind(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, torch.Tensor) else type(value)


def farthest(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference: infinite where one value is not a number, or infinite, and the other is another."""
    same = (one == other) | (one.isnan() & other.isnan())
    if bool(same.all()):
        return 0.0
    distance = (one - other).abs() if one.is_complex() else (one.double() - other.double()).abs()
    return float(distance[~same].double().nan_to_num(float("inf")).max())
