"""What the normalisations of rows on CPU share: which tensors they take, the product with a weight,
and the gradient of a composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.ops.plain import (
    are_kernels_forced,
    are_tensors,
    can_read,
    is_batched,
    is_transformed,
)
from regraft.ops.standardize_along import has_usual_strides

# Below so many elements the calls take longer than the passes over memory that they save.
_FEWEST_NORMALISED = 2**16


def is_row_tensor(x: Any) -> bool:
    """Return whether a value is an ordinary dense tensor on CPU with so many elements that passes
    over memory decide what a normalisation takes, and nothing records, overrides or transforms
    operations on it."""
    if not are_tensors(x) or not x.is_cpu or not _has_many_elements_in_rows(x):
        return False
    return x.layout == torch.strided and not is_transformed()


def is_too_small(x: Any) -> bool:
    """Return whether a value is an ordinary tensor on CPU of so few elements that further tests
    would take longer than what they decide; False where a call is compiled or traced."""
    if torch.compiler.is_compiling() or torch._C._is_tracing() or type(x) is not torch.Tensor:
        return False
    return x.is_cpu and x.numel() < _FEWEST_NORMALISED and not are_kernels_forced()


def are_plain_numbers(*values: Any) -> bool:
    """Return whether all values are numbers, and no flags, symbols or tensors."""
    return all(type(value) in (int, float) for value in values)


def _has_many_elements_in_rows(x: torch.Tensor) -> bool:
    """Return whether a tensor has dimensions, and as many elements as a normalisation should have,
    or any, where kernels are forced."""
    # a compiler would record the comparison of a size, which excludes others
    if torch.compiler.is_compiling() or torch._C._is_tracing() or x.is_nested:
        return False
    size = x.numel()
    return bool(x.dim()) and (size >= _FEWEST_NORMALISED or (size > 0 and are_kernels_forced()))


def weighted(normed: torch.Tensor, weight: Any) -> torch.Tensor:
    """Return a normalised tensor that nothing else uses, multiplied by a weight, if any: in its
    place where this gives the same numbers in the same layout."""
    if weight is None:
        return normed
    if _can_multiply_in_place(normed, weight):
        return normed.mul_(weight)
    product: torch.Tensor = weight * normed
    return product


def _can_multiply_in_place(normed: torch.Tensor, weight: Any) -> bool:
    """Return whether a product with a weight has the dtype, shape and strides of a normalised
    tensor on CPU, and nothing is differentiated."""
    if not are_tensors(normed, weight) or not (normed.is_cpu and weight.is_cpu):
        return False
    if weight.dtype != normed.dtype or weight.layout != torch.strided or is_transformed():
        return False
    if torch.is_grad_enabled() and (normed.requires_grad or weight.requires_grad):
        return False
    if weight.dim() > normed.dim():
        return False
    sizes = normed.shape[normed.dim() - weight.dim() :]
    if any(size not in (1, own) for size, own in zip(weight.shape, sizes, strict=True)):
        return False
    # the strides of other products may be those of the weight
    return weight.dim() < 2 or (has_usual_strides(weight) and has_usual_strides(normed))


def has_plain_gradient(gradient: torch.Tensor) -> bool:
    """Return whether a backward pass may write into products with a gradient: nothing
    differentiates or transforms it, and the gradient is not one of immutable zeros."""
    if torch.is_grad_enabled() or gradient._is_zerotensor():
        return False
    return can_read() and not is_batched(gradient)


def gradient_of(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of a function at `x`, itself differentiable, for that of its result."""
    with torch.enable_grad():
        result = function(x)
    slope: torch.Tensor
    (slope,) = torch.autograd.grad(result, x, gradient, create_graph=True)
    return slope
