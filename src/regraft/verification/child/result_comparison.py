"""Decide whether two results are equal up to the rounding that their number format allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regraft.execution.compare import (
    are_alike,
    are_equal,
    as_strided,
    describe_mismatch,
    is_narrow,
    widened,
)
from regraft.verification.child.comparison_terms import HALVES, Check, Difference
from regraft.verification.child.rounding import FEWEST, is_rounding
from regraft.verification.child.tensor_distance import Distance, is_certainly_close, measure


def compare(
    original: Mapping[str, Any], changed: Mapping[str, Any], check: Check
) -> Difference | None:
    """Compare two flattened results path by path; return the first difference or None. Missing, new
    or reordered paths are a difference.

    Tensors need equal format, shape, device and layout, and values equal up to rounding; other
    values have to be equal. Differences that rounding explains are added to `check.largest`.
    """
    if list(original) != list(changed):
        new = [path for path in changed if path not in original]
        gone = [path for path in original if path not in changed]
        sentence = f"the {check.kind} have another structure: missing {gone[:3]}, new {new[:3]}"
        return Difference((gone + new + ["order"])[0], sentence)
    for path, original_value in original.items():
        difference = _compare_leaves(path, original_value, changed[path], check)
        if difference:
            return difference
    return None


def _difference_of_absent_gradient(path: str, *, is_new: bool) -> Difference:
    """Return the difference of a parameter's gradient that is zero in one version, the changed one
    if `is_new`, and absent in the other."""
    states = ("zero", "absent") if is_new else ("absent", "zero")
    sentence = (
        f"{path} is {states[0]}, in the original {states[1]}: weight decay and momentum change"
        " a parameter only where its gradient is not absent (--contract results accepts this)"
    )
    return Difference(path, sentence)


def _compare_leaves(path: str, original: Any, changed: Any, check: Check) -> Difference | None:
    """Compare two values at a path; return their difference or None. Among gradients an absent
    value and a zero are equal, for parameters as far as the rigour says so. Tensors of another
    dtype, shape, device or layout differ; values that are not both tensors have to be equal."""
    if check.kind == "gradients" and _are_absent_and_zero(original, changed):
        if check.rigour.absent_is_zero or not path.startswith("parameter "):
            return None
        return _difference_of_absent_gradient(path, is_new=original is None)
    if not (isinstance(original, torch.Tensor) and isinstance(changed, torch.Tensor)):
        is_equal = are_equal(original, changed)
        return None if is_equal else Difference(path, _contrast(path, original, changed))
    for name in ("dtype", "shape", "device", "layout"):
        if getattr(original, name) != getattr(changed, name):
            return Difference(
                path, f"{path} has {name} {getattr(changed, name)}, not {getattr(original, name)}"
            )
    return _compare_values(path, as_strided(original), as_strided(changed), check)


def _are_absent_and_zero(original: Any, changed: Any) -> bool:
    """Return whether exactly one of two gradients is None and the other is zero everywhere, which
    mean the same to an optimizer without weight decay and momentum."""
    if (original is None) == (changed is None):
        return False
    present = changed if original is None else original
    return not bool(present.any())


def _contrast(path: str, original: Any, changed: Any) -> str:
    """Return a sentence that shows the changed value at a path beside the original one."""
    return (
        f"{path} is {_describe_value(changed)} where the original has {_describe_value(original)}"
    )


def describe_differences(original: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence by path for each difference between plain values; names that only `changed`
    has do not count, names that it lacks do ("... is missing").

    Tensors have to be close, all other values equal.
    """
    sentences = {}
    for path, value in original.items():
        if path not in changed:
            sentences[path] = f"{path} is missing"
        elif not is_close(value, changed[path]):
            sentences[path] = _contrast(path, value, changed[path])
    return sentences


def is_close(value: Any, counterpart: Any) -> bool:
    """Return whether two plain values are equal; tensors need equal format and shape, and close
    values."""
    if isinstance(value, torch.Tensor):
        return are_alike(value, counterpart) and close(as_strided(value), as_strided(counterpart))
    return are_equal(value, counterpart)


def _describe_value(value: Any) -> str:
    """Return a value in words, a tensor by its shape and other values by at most 80 characters."""
    return (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, torch.Tensor)
        else repr(value)[:80]
    )


def _compare_values(path: str, original: Any, changed: Any, check: Check) -> Difference | None:
    """Compare two tensors of equal format and shape; return their difference, or None where it is
    no more than rounding.

    A difference that counts as rounding is added to `check.largest`. Outputs in float64 that went
    through float32 in the changed version alone differ. NaN or infinity in only one version
    differs.
    """
    if is_narrow(original):
        return _compare_narrow_floats(path, original, changed, check)
    if original.numel() == 0 or torch.equal(original, changed):
        return None
    gap = measure(original, changed)
    if check.kind == "outputs" and _is_narrowed(original, changed):
        sentence = (
            f"{path} holds float64 numbers that went through float32, in the original it does not"
        )
        return Difference(path, sentence, gap.absolute, gap.relative)
    non_finite = "" if gap.all_finite else _non_finite_difference(original, changed)
    if not non_finite and (
        close(original, changed, gap) or is_rounding(path, original, changed, check, gap)
    ):
        check.largest.add(str(original.dtype).removeprefix("torch."), gap.absolute, gap.relative)
        return None
    if non_finite and not gap.absolute:
        return Difference(path, f"{path} differs: {non_finite}", gap.absolute, gap.relative)
    sentence = (
        f"{path} differs by up to {gap.absolute:.3g} ({gap.relative:.3g} of its largest value)"
    )
    return Difference(
        path, f"{sentence}: {non_finite}" if non_finite else sentence, gap.absolute, gap.relative
    )


def _compare_narrow_floats(
    path: str, original: Any, changed: Any, check: Check
) -> Difference | None:
    """Return the difference of two tensors of floats of eight bits, in which PyTorch does not
    compute, or None where rounding explains it; it is added to `check.largest` then. They may be
    two steps of the format apart: a rounding before the conversion makes that one step, and one in
    half precision two."""
    name = str(original.dtype).removeprefix("torch.")
    limits = torch.finfo(original.dtype)
    two_steps = {"rtol": 2 * limits.eps, "atol": 2 * limits.eps * limits.tiny}
    original, changed = widened(original), widened(changed)
    gap = measure(original, changed)
    non_finite = _non_finite_difference(original, changed)
    if not non_finite and not describe_mismatch(changed, original, **two_steps):
        check.largest.add(name, gap.absolute, gap.relative)
        return None
    sentence = f"{path} in {name} differs by up to {gap.absolute:.3g}"
    return Difference(
        path, f"{sentence}: {non_finite}" if non_finite else sentence, gap.absolute, gap.relative
    )


def _non_finite_difference(original: Any, changed: Any) -> str:
    """Return in words that one result is NaN or infinite at a place where the other is not; ""
    where there is no such place.

    In half precision NaN and infinity count as equal: an overflow on the way depends on the order
    of operations.
    """
    if not bool((torch.isfinite(original) == torch.isfinite(changed)).all()):
        kind = "NaN" if bool((torch.isnan(original) != torch.isnan(changed)).any()) else "infinity"
        # the side with the value is that whose counterpart is finite
        counterparts = {"changed version": original, "original": changed}.items()
        sides = (name for name, value in counterparts if bool(torch.isfinite(value).all()))
        side = next(sides, "")
        return f"{kind} on one side" + (f", that of the {side}" if side else "")
    if original.dtype not in HALVES and not bool(
        (torch.isnan(original) == torch.isnan(changed)).all()
    ):
        return "NaN on one side, infinity on the other"
    return ""


def _is_narrowed(original: Any, changed: Any) -> bool:
    """Return whether a float64 result holds only numbers that fit float32, while less than half of
    the original's numbers do; False for fewer than `FEWEST` numbers and for other formats."""
    if original.dtype != torch.float64 or original.numel() < FEWEST:
        return False
    original_fits, changed_fits = (value == value.float().double() for value in (original, changed))
    return bool(changed_fits.all()) and float(original_fits.double().mean()) < 0.5


def close(original: Any, changed: Any, gap: Distance | None = None) -> bool:
    """Return whether two tensors are close by torch.testing's default tolerances for their number
    format, in float64 by those of float32.

    A float64 result may have been computed in float32: by a norm that casts its input, for example.
    `gap` is the distance of the two, where it is known.
    """
    decided = None if gap is None else is_certainly_close(original, gap)
    if decided is not None:
        return decided
    is_float64 = original.dtype == torch.float64
    tolerances = {"rtol": 1.3e-6, "atol": 1e-5} if is_float64 else {}
    return not describe_mismatch(changed, original, **tolerances)
