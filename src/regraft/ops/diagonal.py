"""Products with diagonal matrices, and the diagonals of products, without the full product."""

from __future__ import annotations

import math

import torch

from regraft.ops.plain import are_kernels_forced, are_overridden, are_tensors, can_read

# Numbers of multiplications in the full product below which the composition is as fast.
_LEAST_SCALED = 1 << 22
_LEAST_DIAGONAL = 1 << 22
_SUMMED_DTYPES = (torch.float32, torch.float64)


def diagonal_matmul(scales: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return `torch.diag(scales) @ matrix` as a product of rows and numbers.

    Shapes: `(N,)` and `(N, M)` to `(N, M)`. What is not finite, which the product multiplies by
    zero, runs as the composition.
    """
    if diagonal_matmul_implementation(scales, matrix) == "torch-native":
        return scales.unsqueeze(-1) * matrix
    return diagonal_matmul_reference(scales, matrix)


def diagonal_matmul_reference(scales: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.matmul(torch.diag(scales), matrix)


def diagonal_matmul_implementation(scales: torch.Tensor, matrix: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return _scaling(scales, matrix, 0)


def matmul_diagonal(matrix: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return `matrix @ torch.diag(scales)` as a product of columns and numbers.

    Shapes: `(N, M)` and `(M,)` to `(N, M)`. What is not finite runs as the composition.
    """
    if matmul_diagonal_implementation(matrix, scales) == "torch-native":
        return matrix * scales
    return matmul_diagonal_reference(matrix, scales)


def matmul_diagonal_reference(matrix: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.matmul(matrix, torch.diag(scales))


def matmul_diagonal_implementation(matrix: torch.Tensor, scales: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return _scaling(scales, matrix, 1)


def between_diagonals(scales: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return `torch.diag(scales) @ matrix @ torch.diag(scales)` as products of rows and of columns
    with numbers.

    Shapes: `(N,)` and `(N, N)` to `(N, N)`. What is not finite, also after the first product, runs
    as the composition.
    """
    if between_diagonals_implementation(scales, matrix) == "torch-native":
        half = scales.unsqueeze(-1) * matrix
        if math.isfinite(half.detach().sum().item()):
            return half * scales
    return between_diagonals_reference(scales, matrix)


def between_diagonals_reference(scales: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    diagonal = torch.diag(scales)
    return torch.matmul(torch.matmul(diagonal, matrix), diagonal)


def between_diagonals_implementation(scales: torch.Tensor, matrix: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(scales, matrix) or matrix.dim() != 2 or len(set(matrix.shape)) > 1:
        return "reference"
    return _scaling(scales, matrix, 0)


def diagonals_matmul(
    scales: torch.Tensor, matrices: torch.Tensor, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return `torch.diag_embed(scales) @ matrices` as a product of rows and numbers.

    Shapes: `(..., N)` and `(..., N, M)` to `(..., N, M)`, batches broadcast. The diagonal matrices
    are converted to `dtype` where one is given. What is not finite, which the product multiplies by
    zero, runs as the composition.
    """
    if diagonals_matmul_implementation(scales, matrices, dtype=dtype) == "torch-native":
        return (scales.to(dtype or scales.dtype).unsqueeze(-1) * matrices).contiguous()
    return diagonals_matmul_reference(scales, matrices, dtype=dtype)


def diagonals_matmul_reference(
    scales: torch.Tensor, matrices: torch.Tensor, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.matmul(_diagonals(scales, dtype), matrices)


def diagonals_matmul_implementation(
    scales: torch.Tensor, matrices: torch.Tensor, *, dtype: torch.dtype | None = None
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return _batched_scaling(scales, matrices, -2, dtype)


def matmul_diagonals(
    matrices: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return `matrices @ torch.diag_embed(scales)` as a product of columns and numbers.

    Shapes: `(..., N, M)` and `(..., M)` to `(..., N, M)`, batches broadcast. The diagonal matrices
    are converted to `dtype` where one is given. What is not finite runs as the composition.
    """
    if matmul_diagonals_implementation(matrices, scales, dtype=dtype) == "torch-native":
        return (matrices * scales.to(dtype or scales.dtype).unsqueeze(-2)).contiguous()
    return matmul_diagonals_reference(matrices, scales, dtype=dtype)


def matmul_diagonals_reference(
    matrices: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.matmul(matrices, _diagonals(scales, dtype))


def matmul_diagonals_implementation(
    matrices: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype | None = None
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return _batched_scaling(scales, matrices, -1, dtype)


def product_diagonal(
    first: torch.Tensor, second: torch.Tensor, *, by_diag: bool = False
) -> torch.Tensor:
    """Return `torch.diagonal(first @ second)` without the elements beside the diagonal.

    Shapes: `(N, K)` and `(K, M)` to `(min(N, M),)`.

    by_diag  whether the source calls `torch.diag`, which makes a matrix of a product that is a
             vector
    """
    if product_diagonal_implementation(first, second, by_diag=by_diag) == "torch-native":
        return _diagonal(first, second)
    return product_diagonal_reference(first, second, by_diag=by_diag)


def product_diagonal_reference(
    first: torch.Tensor, second: torch.Tensor, *, by_diag: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    product = torch.matmul(first, second)
    return torch.diag(product) if by_diag else torch.diagonal(product)


def product_diagonal_implementation(
    first: torch.Tensor, second: torch.Tensor, *, by_diag: bool = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(first, second) or first.dim() != 2 or second.dim() != 2:
        return "reference"
    if are_overridden(first, second):
        return "reference"
    if first.numel() * second.shape[1] < _LEAST_DIAGONAL and not are_kernels_forced():
        return "reference"
    fits = _are_exact(first, second) and first.shape[1] == second.shape[0]
    return "torch-native" if fits else "reference"


def product_trace(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return `torch.trace(first @ second)` without the elements beside the diagonal.

    Shapes: `(N, K)` and `(K, M)` to a number.
    """
    if product_trace_implementation(first, second) == "torch-native":
        return _diagonal(first, second).sum()
    return product_trace_reference(first, second)


def product_trace_reference(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.trace(torch.matmul(first, second))


def product_trace_implementation(first: torch.Tensor, second: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return product_diagonal_implementation(first, second)


def _diagonal(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Compute the diagonal of a product from the rows and columns that meet there."""
    count = min(first.shape[0], second.shape[1])
    return (first[:count] * second[:, :count].mT).sum(-1)


def _scaling(scales: torch.Tensor, matrix: torch.Tensor, dim: int) -> str:
    """Name the implementation of a product of a matrix and a number for each index of `dim`."""
    if not are_tensors(scales, matrix) or scales.dim() != 1 or matrix.dim() != 2:
        return "reference"
    if matrix.numel() * scales.numel() < _LEAST_SCALED and not are_kernels_forced():
        return "reference"
    if scales.shape[0] != matrix.shape[dim] or not _are_exact(matrix, scales):
        return "reference"
    if not scales.is_cpu or not can_read():
        return "reference"
    total = scales.detach().sum().item() + matrix.detach().sum().item()
    return "torch-native" if math.isfinite(total) else "reference"


def _diagonals(scales: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return diagonal matrices, converted where a dtype is given."""
    diagonals = torch.diag_embed(scales)
    return diagonals if dtype is None else diagonals.to(dtype)


def _batched_scaling(
    scales: torch.Tensor, matrices: torch.Tensor, dim: int, dtype: torch.dtype | None
) -> str:
    """Name the implementation of products of matrices and a number for each index of `dim`, which
    is -1 or -2, after the numbers are converted to `dtype` where one is given."""
    if not are_tensors(scales, matrices) or scales.dim() < 1 or matrices.dim() < 2:
        return "reference"
    if matrices.numel() * scales.shape[-1] < _LEAST_SCALED and not are_kernels_forced():
        return "reference"
    if not isinstance(dtype, torch.dtype | None) or not _fit_scales(scales, matrices, dim):
        return "reference"
    if not scales.is_cpu or not can_read():
        return "reference"
    converted = scales.detach().to(dtype or scales.dtype)
    if not _are_exact(matrices, converted):
        return "reference"
    total = converted.sum().item() + matrices.detach().sum().item()
    return "torch-native" if math.isfinite(total) else "reference"


def _fit_scales(scales: torch.Tensor, matrices: torch.Tensor, dim: int) -> bool:
    """Return whether there is a number for each index of `dim`, and the batches broadcast."""
    batches = zip(reversed(scales.shape[:-1]), reversed(matrices.shape[:-2]), strict=False)
    return scales.shape[-1] == matrices.shape[dim] and all(
        left == right or 1 in (left, right) for left, right in batches
    )


def _are_exact(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether both are dense and of one dtype, in which sums are exact enough."""
    return (
        first.dtype is second.dtype
        and first.dtype in _SUMMED_DTYPES
        and first.layout is second.layout is torch.strided
        and first.is_cpu is second.is_cpu
        and not torch.is_autocast_enabled("cpu" if first.is_cpu else first.device.type)
    )
