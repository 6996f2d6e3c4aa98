"""A test whether results differ by no more than the original network's own rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from regraft.execution.compare import equal_elements
from regraft.splitting.checking.result_difference import as_plain_value

ROUNDINGS = 4  # times that the weights are rounded
MOST = 2.0  # times the change that the roundings make in the result


def is_rounding(model: torch.nn.Module, call: dict[str, Any], got: Any, expected: Any) -> bool:
    """Return whether `got` differs from `expected`, the original's result, by no more than the
    original's own results do when its weights are moved by roundings; False where their structures,
    types or shapes differ.

    The exact result for weights that were rounded differently is as good an answer as the one for
    these weights (backward error; Higham, Accuracy and Stability of Numerical Algorithms, section
    1.5). A result may also be so near to the original's result in double precision, if the
    original's own result is so near to it.
    """
    results = [
        result
        for result in (run_rounded(model, call, seed) for seed in range(ROUNDINGS))
        if has_same_structure(result, expected)
    ]
    if not results or not has_same_structure(got, expected):
        return False
    changes = [
        MOST * max((change for change in leaf_differences if change < float("inf")), default=0.0)
        for leaf_differences in zip(
            *(differences(result, expected) for result in results), strict=True
        )
    ]

    def is_near(left: Any, right: Any) -> bool:
        """Return whether every leaf differs by no more than its number in `changes`."""
        return all(map(float.__le__, differences(left, right), changes))

    if is_near(got, expected):
        return True
    exact = run_in_double(model, call, expected)
    return has_same_structure(exact, expected) and is_near(expected, exact) and is_near(got, exact)


def differences(result: Any, reference: Any) -> list[float]:
    """Return the largest difference of each pair of leaves, in order; for a pair whose first leaf
    is no tensor, 0 if the leaves are equal, else infinity. Raise ValueError where the numbers of
    leaves differ."""
    leaf_pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(reference), strict=True)
    return [
        largest_difference(left, right)
        if isinstance(left, torch.Tensor)
        else 0.0
        if left == right
        else float("inf")
        for left, right in leaf_pairs
    ]


def run_rounded(model: torch.nn.Module, call: dict[str, Any], seed: int) -> Any:
    """Return the original's result with every weight and buffer moved up or down by half a unit in
    its last place; None if it raises."""
    generator = torch.Generator().manual_seed(seed)

    def move_weight(value: torch.Tensor) -> torch.Tensor:
        """Return a tensor whose numbers moved up or down, at random, by half a unit in their last
        place."""
        sign = torch.randint(0, 2, value.shape, generator=generator).double() * 2 - 1
        return (value.double() * (1 + sign * torch.finfo(value.dtype).eps / 2)).to(value.dtype)

    return run_with_weights(model, call, move_weight)


def run_in_double(model: torch.nn.Module, call: dict[str, Any], expected: Any) -> Any:
    """Return the original's result in double precision, cast to the types of `expected`; None if it
    raises or has another form."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        result = run_with_weights(
            model,
            {key: change_floats(argument, torch.Tensor.double) for key, argument in call.items()},
            torch.Tensor.double,
        )
    finally:
        torch.set_default_dtype(default)
    leaves, form = pytree.tree_flatten(result)
    expected_leaves, expected_form = pytree.tree_flatten(expected)
    if form != expected_form:
        return None
    return pytree.tree_unflatten(map(cast_leaf, leaves, expected_leaves), form)


def cast_leaf(leaf: Any, expected_leaf: Any) -> Any:
    """Return a tensor in the dtype of the expected one; any other leaf as it is."""
    if isinstance(leaf, torch.Tensor) and isinstance(expected_leaf, torch.Tensor):
        return leaf.type_as(expected_leaf)
    return leaf


def run_with_weights(
    model: torch.nn.Module, call: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]
) -> Any:
    """Return the original's result with floating weights and buffers `change(tensor)` instead of
    its own, which stay as they are; None where the original raises."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    try:
        with torch.no_grad():
            weights = {key: change_floats(tensor, change) for key, tensor in tensors.items()}
            return torch.func.functional_call(model, weights, kwargs=call)
    except Exception:  # noqa: BLE001  (with other weights it may take another way, and whatever raises there)
        return None


def change_floats(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a tensor of floating-point numbers changed, any other value as it is."""
    return change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def has_same_structure(result: Any, reference: Any) -> bool:
    """Return whether results have equal structure, types and shapes."""
    (leaves, form), (reference_leaves, reference_form) = (
        pytree.tree_flatten(result),
        pytree.tree_flatten(reference),
    )
    return form == reference_form and all(
        leaf_type(leaf) == leaf_type(reference_leaf)
        for leaf, reference_leaf in zip(leaves, reference_leaves, strict=True)
    )


def leaf_type(value: Any) -> Any:
    """Return the dtype and shape of a tensor, or the type of any other value."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    return type(as_plain_value(value))


def largest_difference(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the largest absolute difference of two elements at one place; infinity if at a place
    one is NaN or infinite and the other is something else."""
    equal = equal_elements(result, reference)
    if bool(equal.all()):
        return 0.0
    distance = (
        (result - reference).abs()
        if result.is_complex()
        else (result.double() - reference.double()).abs()
    )
    return float(distance[~equal].double().nan_to_num(math.inf, math.inf).max())
