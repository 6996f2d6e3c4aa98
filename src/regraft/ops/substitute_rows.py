"""Forward substitution in place, row by row: `a[..., i, :i] += a[..., i, :i] @ a[..., :i, :i]`."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read

# Fewer rows are faster one after the other.
_FEWEST_SOLVED_ROWS = 8


def substitute_rows(a: torch.Tensor, size: int, *, all_rows: bool = False) -> torch.Tensor:
    """Add to each of the first `size` rows of matrices its product with the rows before it, as they
    are by then, and return the matrices, which are changed in place.

    Shapes: a (..., rows, columns), of which only `a[..., i, :i]` for `i` below `size` changes. With
    L the part below the diagonal and U the rest, the new part below the diagonal is X in
    `(I - L) X = L + L U`, without what is not below the diagonal: one triangular solve, whose
    gradients are two more. Matrices for which X is not finite, that are small, of another dtype
    than float32 or float64, or not on a CPU, and traced ones are substituted row by row.

    all_rows  whether the product is one with all rows of square matrices (`a[..., i, :]` with
              `a[..., :, :i]`): `U L`, of rows that are still as they were, is added to `L + L U`
    """
    if substitute_rows_implementation(a, size, all_rows=all_rows) == "torch-native":
        part = a[..., :size, :size]
        solution = _solve_rows(part, all_rows)
        if bool(solution.detach().sum().isfinite()):
            is_below = torch.ones(size, size, dtype=torch.bool).tril(-1)
            part.copy_(torch.where(is_below, solution, part))
            return a
    return substitute_rows_reference(a, size, all_rows=all_rows)


def substitute_rows_reference(
    a: torch.Tensor, size: int, *, all_rows: bool = False
) -> torch.Tensor:
    """Add the products row by row."""
    for i in range(1, size):
        end = None if all_rows else i
        row = a[..., i, :end].clone()
        rows = a[..., :end, :i].clone()
        a[..., i, :i] = a[..., i, :i].clone() + (row.unsqueeze(-1) * rows).sum(-2)
    return a


def substitute_rows_implementation(a: torch.Tensor, size: int, *, all_rows: bool = False) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(a) or type(size) is not int or not can_read() or not _is_substitutable(a):
        return "reference"
    is_large = size >= _FEWEST_SOLVED_ROWS or (size >= 1 and are_kernels_forced())
    fits = a.dim() > 1 and size <= min(a.shape[-2:])
    if all_rows and a.shape[-2:] != (size, size):
        return "reference"
    return "torch-native" if is_large and fits and _can_be_written(a) else "reference"


def _is_substitutable(a: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary one on a CPU, of which the triangular solve and the
    product are as exact as the loop."""
    if a.layout != torch.strided or a.is_nested or a.device.type != "cpu" or not a.numel():
        return False
    if a.dtype is torch.float32:
        return bool(torch.get_float32_matmul_precision() == "highest")
    return a.dtype is torch.float64


def _can_be_written(a: torch.Tensor) -> bool:
    """Return whether all elements have places of their own, and a change in place is allowed."""
    if a.is_inference() and not torch.is_inference_mode_enabled():
        return False
    if torch.is_grad_enabled() and a.requires_grad and a.is_leaf:
        return False
    return bool(torch._debug_has_internal_overlap(a) == 0)


def _solve_rows(part: torch.Tensor, all_rows: bool) -> torch.Tensor:
    """Return the matrices whose part below the diagonal is that of the substituted rows.

    all_rows  whether each row meets all rows, rather than those before it
    """
    below = part.tril(-1)
    upper = part.triu()
    used = upper if all_rows else upper[..., :-1]  # no row meets the last column of those before it
    right_side = below
    needs_upper = torch.is_grad_enabled() and part.requires_grad
    if needs_upper or bool(used.count_nonzero()):
        with torch.autocast("cpu", enabled=False):
            products = functional.pad(below @ upper[..., :-1], (0, 1))
            if all_rows:
                products = products + upper @ below
            right_side = (below + products).tril(-1)
    return torch.linalg.solve_triangular(-below, right_side, upper=False, unitriangular=True)
