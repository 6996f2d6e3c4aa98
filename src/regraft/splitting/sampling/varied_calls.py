"""Vary the example calls: the perturbed calls give samples of regions, and a split is checked on
them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

CHECKED = 200  # inputs on which the result is compared with the original
CHECKED_OF_STATIC = 50  # the same, of a network that is one region for all values
MAX_PERTURBED = 2 * CHECKED  # perturbed inputs
EXTREMES = (math.nan, math.inf, -math.inf)  # for decisions that compare with infinity
# factors of perturbed inputs that shall reach other sides
SCALES = (0.0, 0.1, 10.0, -1.0, 3.0, -0.1, -10.0)


def vary_calls(calls: list[dict[str, Any]], varied: int) -> Iterator[dict[str, Any]]:
    """Yield the calls themselves, then `MAX_PERTURBED` perturbed ones, equal in every run: with
    noise, and every fourth also multiplied by a factor of `SCALES`.

    varied: how many of the calls, from the first one on, are perturbed.
    The last calls are the first call with each value of `EXTREMES` in all places of its
    floating-point tensors, for sides that no other call reaches.
    """
    generator = torch.Generator().manual_seed(0)
    yield from calls
    for number in range(MAX_PERTURBED):
        scale = SCALES[number // 4 % len(SCALES)] if number % 4 == 0 else None
        call = calls[number // 4 % varied if scale is not None else number % varied]
        yield {key: perturb(value, generator, scale) for key, value in call.items()}
    for extreme in EXTREMES:
        yield {key: fill_with(value, extreme) for key, value in calls[0].items()}


def fill_with(value: Any, extreme: float) -> Any:
    """Return the tensor full of one value where its type is floating-point; other values as they
    are."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.full_like(value, extreme) if is_float else value


def perturb(value: Any, generator: torch.Generator, scale: float | None) -> Any:
    """Return another input of the same shape: noise on floats, whole numbers from the same range,
    and 0 and 1 where all are 1.

    scale: the factor of the floats and of their noise; None for a random factor between 0.3 and
    1.7. Truth values, complex numbers, tensors without elements and what is no tensor stay as they
    are.
    """
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    if value.dtype == torch.bool or value.is_complex():
        return value
    if not value.is_floating_point():
        low, high = int(value.min()), int(value.max())
        low = 0 if low == high == 1 else low  # such as a mask that hides nothing
        return torch.randint(low, high + 1, value.shape, generator=generator, dtype=value.dtype)
    # one element has no deviation
    spread = float(value.std(unbiased=False)) or float(value.abs().mean()) or 1.0
    noise = spread * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    if scale is None:
        return value * (0.3 + 1.4 * torch.rand(1, generator=generator).item()) + 0.3 * noise
    shift = 2 * spread * torch.randn(1, generator=generator).item() if scale > 0 else 0.0
    return value * scale + 0.1 * abs(scale) * noise + shift
