"""Standardization over the last dimension: subtraction of the mean, division by the deviation."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_overridden, is_forward_mode


def standardize(
    x: torch.Tensor,
    eps: float,
    *,
    unbiased: bool = True,
    eps_in_root: bool = False,
    root_of_variance: bool = False,
) -> torch.Tensor:
    """Return `(x - mean(x, -1)) / (std(x, -1) + eps)`, or with `eps_in_root` `(x - mean(x, -1)) /
    sqrt(var(x, -1) + eps)`.

    Shapes: `x` is `(..., N)`, the result has its shape. `unbiased` says whether the deviation and
    the variance have N - 1 in their denominators instead of N. With `root_of_variance` the
    deviation is `sqrt(var(x, -1))`, whose gradient is NaN at rows of equal elements. On CPU
    PyTorch's `std` and `var` along a dimension take several times as long as a norm of the centred
    elements, the sum of their squares and a layer normalisation, of which this op is made. float16,
    half precision on CPU with `eps_in_root`, and an epsilon that is a tensor, run as the
    composition.
    """
    options = {"unbiased": unbiased, "eps_in_root": eps_in_root}
    options["root_of_variance"] = root_of_variance
    if standardize_implementation(x, eps, **options) != "torch-native":
        return standardize_reference(x, eps, **options)
    size = x.shape[-1]
    # The result of a layer normalisation is contiguous, that of the composition has strides of `x`.
    # Its epsilon depends on the size here, for which a compiler would make a graph of its own.
    if eps_in_root and x.is_contiguous() and not torch.compiler.is_compiling():
        share = (size - 1) / size if unbiased else 1.0  # of the unbiased variance in the biased one
        return functional.layer_norm(x, (size,), eps=eps * share) * share**0.5
    centred = x - x.mean(-1, keepdim=True)
    if eps_in_root or root_of_variance:
        variance = centred.square().sum(-1, keepdim=True) / (size - int(unbiased))
        root = torch.sqrt(variance + eps) if eps_in_root else torch.sqrt(variance) + eps
        return centred / root
    length = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
    return centred / (length * (size - int(unbiased)) ** -0.5 + eps)


def standardize_reference(
    x: torch.Tensor,
    eps: float,
    *,
    unbiased: bool = True,
    eps_in_root: bool = False,
    root_of_variance: bool = False,
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    centred = x - x.mean(-1, keepdim=True)
    if eps_in_root:
        return centred / torch.sqrt(x.var(-1, unbiased=unbiased, keepdim=True) + eps)
    if root_of_variance:
        return centred / (torch.sqrt(x.var(-1, unbiased=unbiased, keepdim=True)) + eps)
    return centred / (x.std(-1, unbiased=unbiased, keepdim=True) + eps)


def standardize_implementation(
    x: torch.Tensor,
    eps: float,
    *,
    unbiased: bool = True,
    eps_in_root: bool = False,
    root_of_variance: bool = False,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.dim():
        return "reference"
    if not isinstance(eps, (int, float)) or type(unbiased) is not bool:
        return "reference"
    if x.dtype is torch.float16:  # a norm may overflow where the deviation does not
        return "reference"
    if is_forward_mode() or are_overridden(x) or _is_traced():
        return "reference"
    # the unbiased variance of one element is NaN
    if not x.numel() or x.shape[-1] == 1:
        return "reference"
    if eps_in_root and x.is_cpu and x.dtype not in (torch.float32, torch.float64):
        return "reference"
    return "torch-native"


def _is_traced() -> bool:
    """Return whether `torch.jit.trace` records this call, in whose graph the last dimension would
    be counted from the first, for inputs of any rank."""
    return not torch.compiler.is_compiling() and bool(torch._C._is_tracing())
