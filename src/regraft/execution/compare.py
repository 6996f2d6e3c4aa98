"""Comparisons of two values: exactly, or up to the tolerances of torch.testing."""

from __future__ import annotations

import math
from typing import Any

import torch


def are_equal(left: Any, right: Any, *, equal_nan: bool = True) -> bool:
    """Return whether two plain values have one type and are equal.

    equal_nan: NaN equals NaN.
    """
    return type(left) is type(right) and bool(
        left == right
        or (equal_nan and isinstance(left, float) and math.isnan(left) and math.isnan(right))
    )


def are_alike(left: Any, right: Any, *, dtype: bool = True) -> bool:
    """Return whether two values are tensors of one shape and layout and, with `dtype`, of one
    number format."""
    return (
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.shape == right.shape
        and left.layout == right.layout
        and (not dtype or left.dtype == right.dtype)
    )


def identical(left: Any, right: Any) -> bool:
    """Return whether two tensors hold the same values in the same format; NaN equals NaN."""
    if not are_alike(left, right):
        return False
    left, right = as_strided(left), as_strided(right)
    return bool(torch.equal(left, right) or equal_elements(left, right).all())


def as_strided(tensor: Any) -> Any:
    """Return a tensor with all its elements: a sparse one as a dense one, any other unchanged."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def equal_elements(left: Any, right: Any) -> Any:
    """Return a mask of the places where two tensors of one shape are equal; NaN equals NaN."""
    return (left == right) | (torch.isnan(left) & torch.isnan(right))


def is_narrow(tensor: Any) -> bool:
    """Return whether a tensor holds floats of eight bits, in which PyTorch does not compute."""
    return bool(tensor.is_floating_point()) and tensor.dtype.itemsize == 1


def widened(tensor: Any) -> Any:
    """Return a tensor of floats of eight bits in float32; any other tensor as it is."""
    return tensor.float() if is_narrow(tensor) else tensor


def describe_mismatch(
    value: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None
) -> str:
    """Return how a tensor differs from the expected one in the words of torch.testing; "" where it
    is close, in the same number format and on the same device.

    rtol, atol: both or none; None for the tolerances of the number format. NaN equals NaN.
    """
    try:
        torch.testing.assert_close(value, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as problem:
        return str(problem) or type(problem).__name__
    return ""
