"""Quotients and remainders that mean in ONNX what they mean in torch, for the functions that
`tracing_replacements.py` puts in the place of torch's.

* torch's `//` rounds towards minus infinity, the exporter's towards zero; of floating-point numbers
  torch takes the remainder first, so that `1.0 // 0.1` is 9.
* torch's `%` of floating-point numbers is exact; the exporter subtracts a rounded product from the
  dividend, which leaves nothing right for a large one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

DIVIDED = torch.div
_DIVIDED_IN_PLACE = torch.Tensor.div_
_REMAINDER = torch.remainder


def floor_divide(dividend: Any, divisor: Any) -> Any:
    """Return torch's `dividend // divisor`, computed by operations that mean the same in ONNX; of
    floats the remainder is taken first, as torch does."""
    numbers = torch.as_tensor(dividend), torch.as_tensor(divisor)
    if not _has_floats(numbers):
        return DIVIDED(dividend, divisor, rounding_mode="floor")
    remainder = torch.fmod(*numbers)
    quotient = (dividend - remainder) / divisor
    quotient = quotient - _has_other_sign(remainder, numbers[1]).to(quotient.dtype)
    floor = quotient.floor()
    rounded = floor + (quotient - floor > 0.5).to(quotient.dtype)
    return torch.where(numbers[1] == 0, dividend / divisor, rounded)


def remainder(dividend: Any, divisor: Any) -> Any:
    """Return torch's `dividend % divisor`; of floats that of a division towards zero, whose
    remainder ONNX computes exactly, and the divisor added where the signs differ."""
    numbers = torch.as_tensor(dividend), torch.as_tensor(divisor)
    if not _has_floats(numbers):
        return _REMAINDER(dividend, divisor)
    truncated = torch.fmod(dividend, divisor) if torch.is_tensor(dividend) else torch.fmod(*numbers)
    return torch.where(_has_other_sign(truncated, numbers[1]), truncated + divisor, truncated)


def _has_floats(numbers: tuple[torch.Tensor, ...]) -> bool:
    """Return whether one of the tensors holds floating-point numbers."""
    return any(number.is_floating_point() for number in numbers)


def _has_other_sign(remainder: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """Return where a remainder is not 0, and of another sign than the divisor."""
    return (remainder != 0) & ((divisor < 0) != (remainder < 0))


def divide(dividend: Any, divisor: Any, *, rounding_mode: str | None = None) -> Any:
    """Return `torch.div(dividend, divisor, rounding_mode=...)`, with `floor_divide` for "floor"."""
    if rounding_mode == "floor":
        return floor_divide(dividend, divisor)
    return DIVIDED(dividend, divisor, rounding_mode=rounding_mode)


def shift_right(value: Any, bits: Any) -> Any:
    """Return torch's `value >> bits`, which rounds down; the exporter's rounds towards zero."""
    return floor_divide(value, 2**bits)


def divide_in_place(
    dividend: torch.Tensor, divisor: Any, *, rounding_mode: str | None = None
) -> torch.Tensor:
    """Change the dividend as `dividend.div_(divisor, rounding_mode=...)` does, and return it."""
    if rounding_mode == "floor":
        return _in_place(floor_divide)(dividend, divisor)
    return _DIVIDED_IN_PLACE(dividend, divisor, rounding_mode=rounding_mode)


def _in_place(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return the function as a method that changes its first operand, and returns it."""

    @functools.wraps(function)
    def change(tensor: torch.Tensor, other: Any) -> torch.Tensor:
        """Copy the result of the function into the tensor, and return the tensor."""
        return tensor.copy_(function(tensor, other))

    return change


def division_replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield for each function of torch that this file replaces: the object that has it as an
    attribute, the attribute's name, and the function to put there."""
    for owner in (torch, torch.Tensor):
        yield owner, "floor_divide", floor_divide
        yield owner, "remainder", remainder
        yield owner, "div", divide
    yield torch.Tensor, "__rfloordiv__", lambda divisor, dividend: floor_divide(dividend, divisor)
    yield torch.Tensor, "__rmod__", lambda divisor, dividend: remainder(dividend, divisor)
    yield torch.Tensor, "div_", divide_in_place
    for operator, function in (
        ("floordiv", floor_divide),
        ("mod", remainder),
        ("rshift", shift_right),
    ):
        yield torch.Tensor, f"__{operator}__", function
        yield torch.Tensor, f"__i{operator}__", _in_place(function)
    yield torch.Tensor, "floor_divide_", _in_place(floor_divide)
    yield torch.Tensor, "remainder_", _in_place(remainder)
