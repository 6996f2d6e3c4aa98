"""Decide whether two results are equal up to the rounding that their number format allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from regraft.verification.child.tensor_distance import (
    Distance,
    is_certainly_close,
    magnitude,
    measure,
)

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
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where two results differ, in words, with the largest absolute difference and the
    difference relative to the largest value, both 0.0 where they say nothing.

    `path` is the place in the results, "" for the call as a whole. `mode` is the mode of PyTorch,
    or the other way to run a call, in which they differ; "" for the plain way.
    """

    path: str
    sentence: str
    absolute: float = 0.0
    relative: float = 0.0
    mode: str = ""


@dataclass(slots=True)
class Largest:
    """The largest differences of all comparisons so far, by number format without "torch.".

    `errors` holds, by number format and by path of the result, the sums of the original's and of
    the changed version's mean errors in half precision (half_precision.py).
    """

    absolute: dict[str, float] = field(default_factory=dict)
    relative: dict[str, float] = field(default_factory=dict)
    errors: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def add(self, dtype: str, absolute: float, relative: float) -> None:
        """Raise the largest absolute and the largest relative difference of a number format to
        those of a comparison, each where it is larger."""
        self.absolute[dtype] = max(absolute, self.absolute.get(dtype, 0.0))
        self.relative[dtype] = max(relative, self.relative.get(dtype, 0.0))

    def add_errors(self, dtype: str, path: str, original: float, changed: float) -> None:
        """Add the mean errors of both versions of a result to the sums of its format and path."""
        sums_by_path = self.errors.setdefault(dtype, {})
        sums = sums_by_path.get(path, (0.0, 0.0))
        sums_by_path[path] = (sums[0] + original, sums[1] + changed)


Truth = Callable[[], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Rigour:
    """How exactly two outcomes have to agree.

    strict     the inputs are those that the model saw; values count also where the original's own
               result is not finite
    by_rules   tested rules made the change, whose gradients may have more roundings
    saturated  the parameters saturate functions of the model
    """

    strict: bool
    by_rules: bool = False
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The way to compare two results.

    kind      "outputs", "hooks" (the results that hooks on submodules see) or "gradients"
    truth     gives the float64 result by path, or None
    jittered  gives the original's result by path for inputs that are off by one rounding, or None
    rigour    how exactly they have to agree
    sizes     the largest finite magnitude of results of `truth` by path, as far as it was needed
    """

    kind: str
    truth: Truth
    largest: Largest
    jittered: Truth = lambda: None
    rigour: Rigour = Rigour(strict=True)
    sizes: dict[str, float] = field(default_factory=dict)


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


def _compare_leaves(path: str, original: Any, changed: Any, check: Check) -> Difference | None:
    """Compare two values at a path; return their difference or None. Among gradients an absent
    value and a zero are equal. Tensors of another dtype, shape, device or layout differ; values
    that are not both tensors have to be equal."""
    if check.kind == "gradients" and _are_absent_and_zero(original, changed):
        return None
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
    mean the same to an optimizer."""
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
        close(original, changed, gap) or _is_rounding(path, original, changed, check, gap)
    ):
        check.largest.add(str(original.dtype).removeprefix("torch."), gap.absolute, gap.relative)
        return None
    sentence = (
        f"{path} differs by up to {gap.absolute:.3g} ({gap.relative:.3g} of its largest value)"
    )
    return Difference(
        path, f"{sentence}: {non_finite}" if non_finite else sentence, gap.absolute, gap.relative
    )


def _compare_narrow_floats(
    path: str, original: Any, changed: Any, check: Check
) -> Difference | None:
    """Compare two tensors of floats of eight bits, in which PyTorch does not compute. Return their
    difference, or None where rounding explains it; it is added to `check.largest` then.

    Their numbers may be two steps of the format apart: a rounding before the conversion makes that
    one step, and one in half precision two.
    """
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
        counterparts = {"changed version": original, "original": changed}
        side = next(
            (
                name
                for name, counterpart in counterparts.items()
                if bool(torch.isfinite(counterpart).all())
            ),
            "",
        )
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


def _is_rounding(path: str, original: Any, changed: Any, check: Check, gap: Distance) -> bool:
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
    usable: Any = ...  # all places
    exact_gap = measure(exact, original)
    if gap.all_finite and exact_gap.all_finite:
        original_error, scale = exact_gap.absolute, exact_gap.scale
        changed_error = measure(exact, changed).absolute
    else:
        usable = torch.isfinite(original) & torch.isfinite(exact)
        if not usable.any():
            return False
        original_error = _largest_gap(original, exact, usable)
        changed_error = _largest_gap(changed, exact, usable)
        scale = float(exact.double().abs()[usable].max())
    if is_noise(original, exact):
        return False
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
