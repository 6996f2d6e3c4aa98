"""Decide whether two results are the same up to the rounding that their number format allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# An element-wise bound of a few units in the last place is too tight where large terms cancel: there two correct
# orders of summation differ. A float64 run of the original then is the arbiter: the changed result may be this
# many times as far from it as the original's own result is, plus a few roundings of the tensor's largest value.
ERROR_RATIO = 8.0
ROUNDINGS = {"outputs": 4.0, "hooks": 4.0, "gradients": 16.0}
# Perturbed inputs are there to show gross mistakes: no model sees them, and kernels lose digits of the gradients there
# (a softmax that is saturated, say). They count as wrong from this part of the largest gradient on.
GROSS = 1e-3
FEWEST = 16  # numbers of which the number format that they come from shows
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two results differ, in words, with the largest absolute difference (relative: to the largest value).

    `mode` says in which mode of PyTorch, or which other way to run a call, they do; "" for the plain way.
    """

    path: str
    sentence: str
    absolute: float = 0.0
    relative: float = 0.0
    mode: str = ""


@dataclass(slots=True)
class Largest:
    """Largest differences seen so far, by number format."""

    absolute: dict[str, float] = field(default_factory=dict)
    relative: dict[str, float] = field(default_factory=dict)

    def add(self, dtype: str, absolute: float, relative: float) -> None:
        self.absolute[dtype] = max(absolute, self.absolute.get(dtype, 0.0))
        self.relative[dtype] = max(relative, self.relative.get(dtype, 0.0))


Truth = Callable[[], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Check:
    """How to compare.

    kind      "outputs", "hooks" (what hooks on submodules see) or "gradients"
    truth     gives the float64 result by path, or None
    jittered  gives the original's result by path for inputs that are off by one rounding, or None
    perturbed the inputs are not those that the model saw
    """

    kind: str
    truth: Truth
    largest: Largest
    jittered: Truth = lambda: None
    perturbed: bool = False


def compare(original: Mapping[str, Any], changed: Mapping[str, Any], check: Check) -> Difference | None:
    """Compare two flattened results; return the first difference."""
    if list(original) != list(changed):
        ours = [path for path in changed if path not in original]
        gone = [path for path in original if path not in changed]
        what = f"the {check.kind} have another structure: missing {gone[:3]}, new {ours[:3]}"
        return Difference((gone + ours + ["order"])[0], what)
    for path, before in original.items():
        found = _compare_leaf(path, before, changed[path], check)
        if found:
            return found
    return None


def _compare_leaf(path: str, before: Any, after: Any, check: Check) -> Difference | None:
    if check.kind == "gradients" and (before is None) != (after is None):
        present = after if before is None else before
        if not bool(present.any()):
            return None  # no gradient and a gradient of zeros mean the same to an optimizer
    if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)):
        same = type(before) is type(after) and (before == after or _both_nan(before, after))
        return None if same else Difference(path, f"{path} is {_short(after)} where the original has {_short(before)}")
    for name in ("dtype", "shape", "device"):
        if getattr(before, name) != getattr(after, name):
            return Difference(path, f"{path} has {name} {getattr(after, name)}, not {getattr(before, name)}")
    return _compare_values(path, before, after, check)


def unlike(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs, in words by path, between plain data; names that only `after` has do not count.

    Numbers have to be equal, tensors close.
    """
    found = {}
    for path, value in before.items():
        if path not in after:
            found[path] = f"{path} is missing"
        elif not _alike(value, after[path]):
            found[path] = f"{path} is {_short(after[path])} where the original has {_short(value)}"
    return found


def _alike(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return value.dtype == other.dtype and value.shape == other.shape and close(value, other)
    return type(value) is type(other) and bool(value == other or _both_nan(value, other))


def _both_nan(before: Any, after: Any) -> bool:
    return isinstance(before, float) and math.isnan(before) and math.isnan(after)


def _short(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:80]


def _compare_values(path: str, before: Any, after: Any, check: Check) -> Difference | None:
    if before.numel() == 0 or torch.equal(before, after):
        return None
    absolute, relative = distance(before, after)
    if check.kind == "outputs" and _is_narrowed(before, after):
        sentence = f"{path} holds float64 numbers that went through float32, in the original it does not"
        return Difference(path, sentence, absolute, relative)
    other_kind = _other_kind(before, after)
    if not other_kind and (close(before, after) or _excused(path, before, after, check)):
        check.largest.add(str(before.dtype).removeprefix("torch."), absolute, relative)
        return None
    sentence = f"{path} differs by up to {absolute:.3g} ({relative:.3g} of its largest value)"
    return Difference(path, f"{sentence}: {other_kind}" if other_kind else sentence, absolute, relative)


def _other_kind(before: Any, after: Any) -> str:
    """Return in words where one result is NaN or infinite and the other is not; "" where there is no such place.

    In half precision NaN and infinity count as one: what overflows on the way depends on the order of operations.
    """
    if not bool((torch.isfinite(before) == torch.isfinite(after)).all()):
        kind = "NaN" if bool((torch.isnan(before) != torch.isnan(after)).any()) else "infinity"
        sides = {"changed version": before, "original": after}  # by the other, which is finite
        side = next((name for name, other in sides.items() if bool(torch.isfinite(other).all())), "")
        return f"{kind} on one side" + (f", that of the {side}" if side else "")
    if before.dtype not in HALVES and not bool((torch.isnan(before) == torch.isnan(after)).all()):
        return "NaN on one side, infinity on the other"
    return ""


def _is_narrowed(before: Any, after: Any) -> bool:
    """Whether a float64 result holds nothing but float32 numbers, and most of the original's are none."""
    if before.dtype != torch.float64 or before.numel() < FEWEST:
        return False
    ours, theirs = (value == value.float().double() for value in (before, after))
    return bool(theirs.all()) and float(ours.double().mean()) < 0.5


def close(before: Any, after: Any) -> bool:
    """Apply torch.testing's default tolerances for the tensors' number format, in float64 those of float32.

    What is float64 may have been computed in float32: by a norm that casts its input, for example.
    """
    wide = before.dtype == torch.float64
    tolerances = {"rtol": 1.3e-6, "atol": 1e-5} if wide else {}
    try:
        torch.testing.assert_close(after, before, equal_nan=True, **tolerances)
    except AssertionError:
        return False
    return True


def distance(before: Any, after: Any) -> tuple[float, float]:
    """Return the largest absolute difference, and the same relative to the largest finite value of `before`."""
    if not before.is_floating_point():
        count = float((before != after).sum())
        return count, count / before.numel()
    wide, other = before.double(), after.double()
    gap = (wide - other).abs()
    both = torch.isfinite(gap)
    absolute = float(gap[both].max()) if both.any() else 0.0
    finite = wide[torch.isfinite(wide)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return absolute, absolute / scale if scale else 0.0


def _excused(path: str, before: Any, after: Any, check: Check) -> bool:
    if not before.is_floating_point():
        return False
    truth = check.truth() or {}
    exact = truth.get(path)
    if not isinstance(exact, torch.Tensor) or exact.shape != before.shape or not torch.isfinite(exact).any():
        # nothing tells how exact the original is: a few roundings of the largest gradient are in every sum
        rounding = ROUNDINGS[check.kind] * torch.finfo(before.dtype).eps
        return check.kind == "gradients" and distance(before, after)[1] <= rounding
    usable = torch.isfinite(before) & torch.isfinite(exact)
    if not usable.any():
        return False
    own = float((before.double() - exact.double()).abs()[usable].max())
    new = float((after.double() - exact.double()).abs()[usable].max())
    scale = float(exact.double().abs()[usable].max())
    if is_noise(before, exact):
        return False
    if check.kind == "gradients":
        scale = max(scale, _scale_beside("" if check.perturbed else path, truth))
    part: float = ROUNDINGS[check.kind] * torch.finfo(before.dtype).eps
    if check.perturbed and check.kind == "gradients":
        part = max(part, GROSS)
    noise = part * scale
    if new <= ERROR_RATIO * own + noise:
        return True
    if check.kind != "gradients" and not check.perturbed:
        return False
    other = (check.jittered() or {}).get(path)  # how much the result says at all, where it is ill-conditioned
    if not isinstance(other, torch.Tensor) or other.shape != before.shape:
        return False
    spread = (before.double() - other.double()).abs()[usable]
    return bool(torch.isfinite(spread).all()) and new <= ERROR_RATIO * max(own, float(spread.max())) + noise


def is_noise(value: Any, exact: Any) -> bool:
    """Whether a half-precision value has nothing to do with the float64 one: further off than twice its largest."""
    if not (isinstance(value, torch.Tensor) and isinstance(exact, torch.Tensor)) or value.dtype not in HALVES:
        return False
    if value.shape != exact.shape or not value.numel():
        return False
    finite = torch.isfinite(exact)
    error = (value.double() - exact)[finite].abs()
    scale = exact[finite].abs()
    return bool(error.numel()) and not bool(error.max() <= max(1.0, 2 * float(scale.max())))


def _scale_beside(path: str, truth: Mapping[str, Any]) -> float:
    """The largest gradient of the other parameters of a module; of all for an empty path.

    A gradient that is zero but for rounding, like that of a key's bias, has the rounding of what cancels in it.
    """
    module, dot, _ = path.rpartition(".")
    beside = (value for name, value in truth.items() if not path or (dot and name.rpartition(".")[0] == module))
    sizes = (value.double().abs() for value in beside if isinstance(value, torch.Tensor) and value.numel())
    return max((float(size[torch.isfinite(size)].max()) for size in sizes if torch.isfinite(size).any()), default=0.0)
