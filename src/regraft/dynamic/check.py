"""The check: the split network against the original, on the examples and on inputs made from them."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from regraft.dynamic.errors import Unsplittable
from regraft.dynamic.residual import Side

CHECKED = 200  # inputs on which the result is compared with the original
SCALES = (0.0, 0.1, 10.0, -1.0, 3.0, -0.1, -10.0)  # of inputs that shall reach other sides


def check(model: torch.nn.Module, made: Any, calls: list[dict[str, Any]], path: str, sides: list[Side]) -> int:
    """Compare both; a difference is an error, and so is a side that no input took. Gives the number of inputs."""
    taken: set[int] = set()
    inputs = examples(calls)
    for call in inputs:
        with torch.no_grad():
            expected = model(**call)
        try:
            torch.testing.assert_close(made(**call), expected, rtol=1e-3, atol=1e-4)
        except Exception as problem:
            raise Unsplittable(path, 0, f"the split network differs from the original: {problem}") from problem
        taken.update(made.host.trace)
    every_side(sides, taken)
    return len(inputs)


def every_side(sides: list[Side], taken: set[int]) -> None:
    for number, side in enumerate(sides):
        if number not in taken:
            alike = [other for other, one in enumerate(sides) if one == side]
            place = f", place {alike.index(number) + 1} of {len(alike)} of this line" if len(alike) > 1 else ""
            raise Unsplittable(
                side.path, side.line,
                f"no checked input took the side where {side.label}{place}; give an example call that takes it",
            )  # fmt: skip


def examples(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls themselves and perturbed ones: noise, and every fourth scaled, negated or shifted as a whole."""
    generator = torch.Generator().manual_seed(0)
    inputs = list(calls)
    while len(inputs) < max(CHECKED, len(calls)):
        number = len(inputs)
        wide = SCALES[number // 4 % len(SCALES)] if number % 4 == 0 else None
        call = calls[number // 4 % len(calls) if wide is not None else number % len(calls)]
        inputs.append({key: perturbed(value, generator, wide) for key, value in call.items()})
    return inputs


def perturbed(value: Any, generator: torch.Generator, wide: float | None) -> Any:
    """Another input of the same shape: noise on floats (`wide`: scaled by it), whole numbers from the same range."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool or value.is_complex() or not value.numel():
        return value
    if not value.is_floating_point():
        low, high = int(value.min()), int(value.max())
        return torch.randint(low, high + 1, value.shape, generator=generator, dtype=value.dtype)
    spread = float(value.std(unbiased=False)) or float(value.abs().mean()) or 1.0  # one element has no deviation
    noise = spread * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    if wide is None:
        return value * (0.3 + 1.4 * torch.rand(1, generator=generator).item()) + 0.3 * noise
    shift = 2 * spread * torch.randn(1, generator=generator).item() if wide > 0 else 0.0
    return value * wide + 0.1 * abs(wide) * noise + shift


def to_numpy(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def to_torch(value: Any) -> Any:
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return torch.from_numpy(numpy.asarray(value))
    if isinstance(value, (tuple, list)):
        return type(value)(to_torch(item) for item in value)
    if isinstance(value, dict):
        return {key: to_torch(item) for key, item in value.items()}
    return value
