"""Whether a difference is rounding: by the original, by exact results and by other roundings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child.comparison_terms import HALVES, Check
from regraft.verification.child.tensor_distance import Distance, magnitude, measure

# An element-wise bound of a few units in the last place is too tight where large terms cancel:
# there two correct orders of summation differ. A float64 run of the original then is the arbiter:
# the changed result may be this many times as far from it as the original's own result is, plus a
# few roundings of the tensor's largest value.
ERROR_RATIO = 8.0
ROUNDINGS = {"outputs": 4.0, "hooks": 4.0, "gradients": 16.0}
# Of rewrites by tested rules: the backward pass of PyTorch's attention on CPU computes exponentials
# to 20 units in the last place, and sums them.
ROUNDINGS_BY_RULES = {**ROUNDINGS, "gradients": 64.0}
# Perturbed inputs are there to show gross mistakes: no model sees them, and kernels lose digits of
# the gradients there (a softmax that is saturated, say). Their gradients count as wrong from this
# part of the largest gradient on.
GROSS = 1e-3
# Where parameters saturate a softmax (scores of 6e4), kernels of attention compute it from the
# logarithm of its sum, whose last digit is a part of 4e-3 there.
GROSS_IF_SATURATED = 3e-2
FEWEST = 16  # numbers from which on their original number format shows


def _errors(
    original: Any, changed: Any, exact: Any, gap: Distance
) -> tuple[float, float, float, Any] | None:
    """Return how far the original's and the changed result are from the exact one, its largest
    absolute value, and the index of the places that are considered: all, or those where original
    and exact result are finite. None where there is no such place."""
    exact_gap = measure(exact, original)
    if gap.all_finite and exact_gap.all_finite:
        return exact_gap.absolute, measure(exact, changed).absolute, exact_gap.scale, ...
    usable = torch.isfinite(original) & torch.isfinite(exact)
    if not usable.any():
        return None
    original_error = _largest_gap(original, exact, usable)
    changed_error = _largest_gap(changed, exact, usable)
    return original_error, changed_error, float(exact.double().abs()[usable].max()), usable


def is_rounding(path: str, original: Any, changed: Any, check: Check, gap: Distance) -> bool:
    """Return whether two floating-point results differ by no more than rounding explains.

    The changed result may be ERROR_RATIO times as far from the float64 result as the original's is,
    plus a few roundings; for gradients and perturbed inputs also ERROR_RATIO times as far as the
    original's moves when its inputs are off by one rounding. False where the original is noise, and
    without a float64 result except for gradients.
    """
    if not original.is_floating_point():
        return False
    truth = check.truth() or {}
    exact: Any = truth.get(path)
    if not _is_truth_for(exact, original):
        return check.kind == "gradients" and _is_rounding_of_gradient(
            path, original, changed, check, gap
        )
    errors = _errors(original, changed, exact, gap)
    if errors is None or is_noise(original, exact):
        return False
    original_error, changed_error, scale, usable = errors
    if check.kind == "gradients":
        module_path = path if check.rigour.strict else ""
        scale = max(scale, _largest_gradient_beside(module_path, truth, check.sizes))
    noise = _relative_noise(original, check) * scale
    if changed_error <= ERROR_RATIO * original_error + noise:
        return True
    if check.kind != "gradients" and check.rigour.strict:
        return False
    spread = _spread(path, original, usable, check)
    if spread is None:
        return False
    return changed_error <= ERROR_RATIO * max(original_error, spread) + noise


def _is_rounding_of_gradient(
    path: str, original: Any, changed: Any, check: Check, gap: Distance
) -> bool:
    """Return whether two gradients, for which no float64 result exists, differ by no more than a
    few roundings of the largest value, or than ERROR_RATIO times as much as the original's moves
    when its inputs are off by one rounding."""
    if gap.relative <= _roundings(original, check):
        return True
    usable = torch.isfinite(original) & torch.isfinite(changed)
    spread = _spread(path, original, usable, check) if bool(usable.any()) else None
    return spread is not None and gap.absolute <= ERROR_RATIO * spread


def _is_truth_for(exact: Any, original: Any) -> bool:
    """Return whether a float64 result can judge a result: it is a tensor of the same shape with at
    least one finite value."""
    return are_alike(exact, original, dtype=False) and bool(torch.isfinite(exact).any())


def _roundings(original: Any, check: Check) -> float:
    """Return the relative size of the few roundings that a kind of results may have."""
    roundings = ROUNDINGS_BY_RULES if check.rigour.by_rules else ROUNDINGS
    return float(roundings[check.kind] * torch.finfo(original.dtype).eps)


def _relative_noise(original: Any, check: Check) -> float:
    """Return the difference, relative to the largest value, that counts as rounding: ROUNDINGS of
    the kind, for gradients of perturbed inputs at least GROSS, or GROSS_IF_SATURATED."""
    roundings = _roundings(original, check)
    if check.rigour.strict or check.kind != "gradients":
        return roundings
    return max(roundings, GROSS_IF_SATURATED if check.rigour.saturated else GROSS)


def _largest_gap(value: Any, exact: Any, usable: Any) -> float:
    """Return the largest absolute distance of a result from the float64 one at the places of the
    mask `usable`."""
    return float((value.double() - exact.double()).abs()[usable].max())


def _spread(path: str, original: Any, usable: Any, check: Check) -> float | None:
    """Return how far the original's result moves at most, at the usable places, when its inputs are
    off by one rounding; None where that is unknown or not finite."""
    jittered: Any = (check.jittered() or {}).get(path)
    if not are_alike(jittered, original, dtype=False):
        return None
    gaps = (original.double() - jittered.double()).abs()[usable]
    return float(gaps.max()) if bool(torch.isfinite(gaps).all()) else None


def is_noise(value: Any, exact: Any) -> bool:
    """Return whether a half-precision value says nothing: its distance from the float64 value is
    above 1 and above twice that value's largest number, or NaN. False for other formats, empty
    tensors and values of another shape."""
    if not are_alike(value, exact, dtype=False) or value.dtype not in HALVES or not value.numel():
        return False
    finite = torch.isfinite(exact)
    error = (value.double() - exact)[finite].abs()
    scale = exact[finite].abs()
    return bool(error.numel()) and not bool(error.max() <= max(1.0, 2 * float(scale.max())))


def _largest_gradient_beside(path: str, truth: Mapping[str, Any], sizes: dict[str, float]) -> float:
    """Return the largest gradient among the parameters of the module of `path`; among all for an
    empty path. The magnitudes that are computed for it are added to `sizes`.

    A gradient that is zero but for rounding, like that of a key's bias, has the rounding of the
    terms that cancel in it.
    """
    module, has_module, _ = path.rpartition(".")
    names = [
        name for name in truth if not path or (has_module and name.rpartition(".")[0] == module)
    ]
    for name in names:
        if name not in sizes:
            value = truth[name]
            sizes[name] = magnitude(value) if isinstance(value, torch.Tensor) else 0.0
    return max((sizes[name] for name in names), default=0.0)
