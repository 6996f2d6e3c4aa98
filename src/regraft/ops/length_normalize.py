"""Division of rows by their length, which on CPU takes four passes over memory with gradients,
where the composition takes ten."""

from __future__ import annotations

import math
from typing import Any

import torch

from regraft.ops.row_norms import (
    are_plain_numbers,
    gradient_of,
    has_plain_gradient,
    is_row_tensor,
    is_too_small,
    weighted,
)

# A quotient of a length and a scale between these does not overflow or vanish.
_SMALLEST_SCALE = 1e-6
_LARGEST_SCALE = 1e6


def length_normalize(
    x: torch.Tensor,
    dim: int,
    factor: float = 1.0,
    minimum: float = 0.0,
    summand: float = 0.0,
    scale: float = 1.0,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `x / (max(length * factor, minimum) + summand) * scale * weight`, where the length is
    the Euclidean norm of `x` along `dim`.

    Shapes: the result has that of `x`, with which `weight`, if any, is broadcast. Tensors on CPU in
    float32 and float64 are divided in one pass after the length, and the backward pass is written
    out. Small tensors, half precision, other devices, and what is traced, compiled or transformed,
    run as the composition.
    """
    if torch.jit.is_scripting():
        return length_normalize_reference(x, dim, factor, minimum, summand, scale, weight)
    else:  # which TorchScript does not compile
        return _length_normalize(x, dim, (factor, minimum, summand, scale), weight)


def _length_normalize(
    x: torch.Tensor, dim: int, numbers: tuple[float, float, float, float], weight: Any
) -> torch.Tensor:
    """Return the result of `length_normalize` outside of TorchScript."""
    if is_too_small(x):
        return length_normalize_reference(x, dim, *numbers, weight)
    factor, minimum, summand, scale = numbers
    options: dict[str, Any] = {"factor": factor, "minimum": minimum, "summand": summand}
    options |= {"scale": scale, "weight": weight}
    if length_normalize_implementation(x, dim, **options) != "torch-native":
        return length_normalize_reference(x, dim, **options)
    if torch.is_grad_enabled() and x.requires_grad:
        normed: torch.Tensor = _LengthNormalize.apply(x, dim, numbers)
    else:
        length = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
        normed = x / _length_divisor(length, numbers)
    return weighted(normed, weight)


def length_normalize_reference(
    x: torch.Tensor,
    dim: int,
    factor: float = 1.0,
    minimum: float = 0.0,
    summand: float = 0.0,
    scale: float = 1.0,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    divisor = torch.norm(x, p=2, dim=dim, keepdim=True)
    if not (isinstance(factor, float) and factor == 1.0):  # numbers may turn out to be tensors
        divisor = divisor * factor
    if not (isinstance(minimum, float) and minimum == 0.0):
        divisor = divisor.clamp(min=minimum)
    if not (isinstance(summand, float) and summand == 0.0):
        divisor = divisor + summand
    normed = x / divisor
    if not (isinstance(scale, float) and scale == 1.0):
        normed = normed * scale
    return normed if weight is None else weight * normed


def length_normalize_implementation(
    x: torch.Tensor,
    dim: int,
    factor: float = 1.0,
    minimum: float = 0.0,
    summand: float = 0.0,
    scale: float = 1.0,
    weight: torch.Tensor | None = None,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not is_row_tensor(x) or not (x.dtype is torch.float32 or x.dtype is torch.float64):
        return "reference"
    if not are_plain_numbers(factor, minimum, summand, scale):
        return "reference"
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        return "reference"
    if not (0 <= minimum < math.inf and 0 <= summand < math.inf and 0 < factor < math.inf):
        return "reference"
    is_moderate = _SMALLEST_SCALE <= abs(scale) <= _LARGEST_SCALE
    return "torch-native" if is_moderate else "reference"


def _length_divisor(
    length: torch.Tensor, numbers: tuple[float, float, float, float]
) -> torch.Tensor:
    """Return what rows of a length are divided by, itself divided by the scale."""
    factor, minimum, summand, scale = numbers
    divisor = length * factor if factor != 1 else length
    if minimum:
        divisor = divisor.clamp(min=minimum)
    if summand:
        divisor = divisor + summand
    return divisor / scale if scale != 1 else divisor


class _LengthNormalize(torch.autograd.Function):  # type: ignore[misc]
    """Rows divided by what depends on their length."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, dim: int, numbers: tuple[float, float, float, float]
    ) -> torch.Tensor:
        length = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
        ctx.dim, ctx.numbers = dim, numbers
        ctx.save_for_backward(x, length)
        return x / _length_divisor(length, numbers)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, length = ctx.saved_tensors
        factor, minimum, summand, scale = ctx.numbers
        if torch.is_grad_enabled():  # the length has to be a function of `x` again
            options = {"factor": factor, "minimum": minimum, "summand": summand, "scale": scale}
            slope = gradient_of(
                lambda x: length_normalize_reference(x, ctx.dim, **options), x, gradient
            )
            return slope, None, None
        divisor = _length_divisor(length, ctx.numbers)
        # the derivative of a length is zero at zeros, and at lengths below the minimum
        is_constant = (length == 0) | (length * factor < minimum)
        inverse = (factor / scale / length).masked_fill(is_constant, 0)
        products = gradient * x
        slopes = products.sum(ctx.dim, keepdim=True) / divisor * inverse
        if not has_plain_gradient(gradient):
            return (gradient - x * slopes) / divisor, None, None
        torch.addcmul(gradient, x, slopes, value=-1, out=products)
        return products.div_(divisor), None, None
