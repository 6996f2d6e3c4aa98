"""Differences between results, and the terms on which results are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

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

    strict          the inputs are those that the model saw; values count also where the original's
                    own result is not finite
    by_rules        tested rules made the change, whose gradients may have more roundings
    saturated       the parameters saturate functions of the model
    absent_is_zero  a parameter may have no gradient in one version and zeros in the other
    """

    strict: bool
    by_rules: bool = False
    saturated: bool = False
    absent_is_zero: bool = True


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
