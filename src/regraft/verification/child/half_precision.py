"""Measure how far results in half precision are, in either version, from the original's results in
float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child.comparison_terms import HALVES

FEWEST = 256  # elements of a result whose mean error says something
_LARGEST_ERROR = (
    0.1  # of the original; beyond it, the float64 results are of other weights or noise
)


def differing_halves(
    original: Mapping[str, Any], changed: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both versions of each dense result in half precision that has at least
    FEWEST elements, all finite, and is not equal in both versions."""
    for path, value in original.items():
        other = changed.get(path)
        is_half = isinstance(value, torch.Tensor) and value.dtype in HALVES
        is_dense = is_half and value.layout is torch.strided
        if is_dense and value.numel() >= FEWEST and are_alike(other, value):
            is_finite = bool(torch.isfinite(value).all() and torch.isfinite(other).all())
            if is_finite and not torch.equal(value, other):
                yield path, value, other


def mean_errors(original: Any, changed: Any, exact: Any) -> tuple[float, float] | None:
    """Return the mean distance of both versions of a result from the exact result, relative to the
    mean size of the exact result; None where it cannot judge them: it is not in float64 (because
    the original casts to half precision itself), not finite or zero everywhere, or the original is
    far from it."""
    is_double = are_alike(exact, original, dtype=False) and exact.dtype == torch.float64
    if not is_double or not bool(torch.isfinite(exact).all()):
        return None
    scale = float(exact.abs().mean())
    if not scale:
        return None
    original_error, changed_error = (
        float((value.double() - exact).abs().mean()) / scale for value in (original, changed)
    )
    return (original_error, changed_error) if original_error <= _LARGEST_ERROR else None
