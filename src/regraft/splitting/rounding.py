"""How much of a result is rounding in the original network itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROUNDINGS = 4  # of the weights
MOST = 2.0  # times what these change in the result


def is_rounding(model: torch.nn.Module, call: dict[str, Any], got: Any, expected: Any) -> bool:
    """Whether two results differ by no more than the original does when the last bits of its weights are others.

    The exact result for weights that were rounded differently is as good an answer as the one for these weights
    (backward error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.5). A result may also be
    so near to what the original gives in double precision, where the original's own is.
    """
    results = [one for one in (rounded(model, call, seed) for seed in range(ROUNDINGS)) if alike(one, expected)]
    if not results or not alike(got, expected):
        return False
    changes = [
        MOST * max((change for change in several if change < float("inf")), default=0.0)
        for several in zip(*(differences(one, expected) for one in results), strict=True)
    ]

    def near(one: Any, other: Any) -> bool:
        return all(map(float.__le__, differences(one, other), changes))

    if near(got, expected):
        return True
    exact = in_double(model, call, expected)
    return alike(exact, expected) and near(expected, exact) and near(got, exact)


def differences(one: Any, other: Any) -> list[float]:
    """How far the parts of two results of equal structure are from each other; only tensors may differ at all."""
    leaves = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return [
        farthest(left, right) if isinstance(left, torch.Tensor) else 0.0 if left == right else float("inf")
        for left, right in leaves
    ]


def rounded(model: torch.nn.Module, call: dict[str, Any], seed: int) -> Any:
    """What the original gives with every weight moved by half a unit in its last place; None where it raises."""
    generator = torch.Generator().manual_seed(seed)

    def moved(value: torch.Tensor) -> torch.Tensor:
        sign = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
        return (value.double() * (1 + sign * torch.finfo(value.dtype).eps / 2)).to(value.dtype)

    return run(model, call, moved)


def in_double(model: torch.nn.Module, call: dict[str, Any], expected: Any) -> Any:
    """What the original gives in double precision, in the types of `expected`; None where it raises."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        result = run(
            model, {key: of_numbers(one, torch.Tensor.double) for key, one in call.items()}, torch.Tensor.double
        )
    finally:
        torch.set_default_dtype(default)
    leaves, form = pytree.tree_flatten(result)
    wanted, wanted_form = pytree.tree_flatten(expected)
    if form != wanted_form:
        return None

    def typed(one: Any, like: Any) -> Any:
        return one.type_as(like) if isinstance(one, torch.Tensor) and isinstance(like, torch.Tensor) else one

    return pytree.tree_unflatten(map(typed, leaves, wanted), form)


def run(model: torch.nn.Module, call: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What the original gives with other weights and buffers; None where it raises."""
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    try:
        with torch.no_grad():
            weights = {key: of_numbers(one, change) for key, one in held.items()}
            return torch.func.functional_call(model, weights, kwargs=call)
    except Exception:  # noqa: BLE001  (with other weights it may take another way, and whatever raises there)
        return None


def of_numbers(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


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
