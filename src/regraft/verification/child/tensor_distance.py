"""Measure how far two tensors are apart, in few passes over their memory: models have millions of
gradients, and a proof compares them hundreds of times."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

# The tolerances of torch.testing, relative and absolute; those of float32 for float64, which may
# have been computed in float32: by a norm that casts its input, for example.
_ABSOLUTE_TOLERANCE = 1e-5
_RELATIVE_TOLERANCES = {
    torch.float16: 1e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1.3e-6,
    torch.float64: 1.3e-6,
}
_MARGIN = 1.05  # half precision rounds the tolerance itself


class Distance(NamedTuple):
    """The distance of two tensors of one shape.

    absolute    the largest absolute difference among places where both are finite, 0.0 for none;
                of tensors without floating point the number of elements that differ
    relative    this difference relative to `scale`, 0.0 for a scale of 0.0; without floating point
                the part of the elements that differ
    scale       the largest finite magnitude of the first tensor, 0.0 for none
    all_finite  whether both tensors are finite everywhere; False also where that is not known
    """

    absolute: float
    relative: float
    scale: float
    all_finite: bool


def measure(original: Any, changed: Any) -> Distance:
    """Return the distance of two tensors of one shape: by values, computed in float64, for floating
    point, else by the number of unequal elements."""
    if not original.numel():
        return Distance(0.0, 0.0, 0.0, True)
    if not original.is_floating_point():
        count = float((original != changed).sum())
        return Distance(count, count / original.numel(), 0.0, not original.is_complex())
    original_double, changed_double = original.double(), changed.double()
    differences = torch.sub(original_double, changed_double).abs_()
    absolute = float(differences.max())
    all_finite = math.isfinite(absolute)  # a difference of NaN or infinity is not finite
    if not all_finite:
        absolute = _largest_finite(differences)
    scale = magnitude(original_double)
    return Distance(absolute, absolute / scale if scale else 0.0, scale, all_finite)


def magnitude(tensor: Any) -> float:
    """Return the largest finite magnitude of a tensor; 0.0 where it has no finite number."""
    if not tensor.numel():
        return 0.0
    if tensor.is_complex() or tensor.dtype is torch.bool:
        tensor = tensor.abs() if tensor.is_complex() else tensor.double()
    largest = max(abs(float(value)) for value in torch.aminmax(tensor))
    return largest if math.isfinite(largest) else _largest_finite(tensor.double().abs())


def is_certainly_close(original: Any, gap: Distance) -> bool | None:
    """Return whether two tensors are close by the tolerances of torch.testing for their number
    format (float64 by those of float32), as far as their distance decides it; else None."""
    tolerance = _RELATIVE_TOLERANCES.get(original.dtype)
    if tolerance is None or not gap.all_finite:
        return None
    if gap.absolute <= _ABSOLUTE_TOLERANCE / _MARGIN:
        return True
    if gap.absolute > _MARGIN * (_ABSOLUTE_TOLERANCE + tolerance * gap.scale):
        return False
    return None


def _largest_finite(magnitudes: Any) -> float:
    """Return the largest finite number of a tensor that is not negative; 0.0 for none."""
    finite = magnitudes[torch.isfinite(magnitudes)]
    return float(finite.max()) if finite.numel() else 0.0
