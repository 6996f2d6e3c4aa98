"""Distances of all pairs of points by a matrix product, with the near pairs computed apart."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from regraft.ops.pairs import Pairs, pairs_of
from regraft.ops.plain import are_kernels_forced, without_view

# A squared distance is exact enough if it is no smaller part of the sum of both squared lengths.
_NEAR = 0.125
_LEAST_DIFFERENCES = 5 << 18
_MOST_NEAR = 0.125  # of all pairs; with more, the composition is as fast
# Coordinates below which the composition of a norm is as fast where no gradient is computed.
_LEAST_NORM_WIDTH = 4

Reduction = Callable[[torch.Tensor], torch.Tensor]
Places = tuple[torch.Tensor, ...]  # an index for each dimension


def squared_distances(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Return `((x - y) ** 2).sum(dim, keepdim)` without the differences, where `x` and `y` are
    broadcast against each other.

    Shapes: as the composition, such as `(N, 1, D)` and `(1, K, D)` to `(N, K)`. By the binomial
    formula it is a matrix product. That cancels where two points are nearer to each other than to
    their centre, so those pairs are computed from their differences: equal points are at distance
    zero. Anything else than all pairs, and where too many are near, runs as the composition.

    expanded  the caller uses both tensors for nothing else: where `expand` has stretched them they
              are used as they were before, and get no gradients themselves
    """
    pairs = pairs_of(x, y, dim, least=_LEAST_DIFFERENCES, expanded=expanded)
    if pairs is not None:
        squares, near = _squares(pairs)
        if _are_few(near, squares):
            squares = _with_near(squares, near, pairs, _sum_of_squares)
            return without_view(squares.unsqueeze(dim)) if keepdim else squares
    return squared_distances_reference(x, y, dim, keepdim=keepdim)


def squared_distances_reference(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return ((x - y) ** 2).sum(dim, keepdim=keepdim)


def squared_distances_implementation(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> str:
    """Name the implementation for these arguments: "matmul" or "reference"."""
    return _implementation(pairs_of(x, y, dim, least=_LEAST_DIFFERENCES, expanded=expanded))


def distances(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Return `torch.norm(x - y, dim=dim, keepdim=keepdim)` without the differences, where `x` and
    `y` are broadcast against each other.

    Shapes, exclusions and `expanded`: as `squared_distances`. The gradient of a distance of zero is
    zero, as that of the norm.
    """
    pairs = _norm_pairs(x, y, dim, expanded)
    if pairs is not None:
        squares, near = _squares(pairs)
        if _are_few(near, squares):
            if near[0].numel():  # a root has no gradient at zero
                squares = squares.index_put(near, squares.new_ones(()))
            lengths = _with_near(squares.sqrt(), near, pairs, _length)
            return without_view(lengths.unsqueeze(dim)) if keepdim else lengths
    return distances_reference(x, y, dim, keepdim=keepdim)


def distances_reference(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return torch.norm(x - y, dim=dim, keepdim=keepdim)


def distances_implementation(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> str:
    """Name the implementation for these arguments: "matmul" or "reference"."""
    return _implementation(_norm_pairs(x, y, dim, expanded))


def _norm_pairs(x: torch.Tensor, y: torch.Tensor, dim: int, expanded: bool) -> Pairs | None:
    """Return the layout of two tensors whose distances a matrix product computes faster; None for
    others."""
    pairs = pairs_of(x, y, dim, least=_LEAST_DIFFERENCES, expanded=expanded)
    if pairs is None or pairs.first.shape[-1] >= _LEAST_NORM_WIDTH or are_kernels_forced():
        return pairs
    has_gradient = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)
    return pairs if has_gradient else None


def _implementation(pairs: Pairs | None) -> str:
    """Name the implementation for a layout of two tensors."""
    if pairs is None:
        return "reference"
    squares, near = _squares(pairs)
    return "matmul" if _are_few(near, squares) else "reference"


def _squares(pairs: Pairs) -> tuple[torch.Tensor, Places]:
    """Return the squared distances of all pairs, and the places of those that are not exact enough:
    near ones, and what is infinite or no number.

    |a - b|^2 = |a|^2 + |b|^2 - 2ab holds for any origin; the mean of one side keeps lengths small.
    """
    centre = pairs.second.detach().mean(-2, keepdim=True)
    first, second = pairs.first - centre, pairs.second - centre
    first_squares, second_squares = first.square().sum(-1), second.square().sum(-1)
    products = torch.baddbmm(second_squares.unsqueeze(-2), first, second.mT, alpha=-2)
    rows = first_squares.reshape(*pairs.sizes.rows)
    squares = products.reshape(*pairs.sizes.shape) + rows
    with torch.no_grad():
        smallest = _smallest(squares.dtype)
        columns = second_squares.reshape(*pairs.sizes.columns) * _NEAR + smallest
        is_exact = squares > torch.add(columns, rows, alpha=_NEAR)
        near = is_exact.logical_not_().nonzero(as_tuple=True)
    return squares, near


def _are_few(near: Places, squares: torch.Tensor) -> bool:
    """Return whether so few pairs are near that their differences cost little."""
    count = near[0].numel()
    return not count or bool(count <= max(int(_MOST_NEAR * squares.numel()), sum(squares.shape)))


@functools.cache
def _smallest(dtype: torch.dtype) -> float:
    """Return the least square whose rounding is as small a part of it as that of larger ones."""
    limits = torch.finfo(dtype)
    return float(limits.tiny / limits.eps)


def _with_near(far: torch.Tensor, near: Places, pairs: Pairs, reduce: Reduction) -> torch.Tensor:
    """Return the numbers of all pairs, with those at the places `near` computed from the
    differences of these pairs."""
    if not near[0].numel():
        return far
    (_, rows, width), (_, columns, _) = pairs.first.shape, pairs.second.shape
    place = sum(index * step for index, step in zip(near, far.stride(), strict=True))
    row, column = place // columns, place % columns
    first = pairs.first.reshape(-1, width).index_select(0, row)
    second_row = column + row // rows * columns
    second = pairs.second.reshape(-1, width).index_select(0, second_row)
    return far.index_put(near, reduce(first - second))


def _sum_of_squares(differences: torch.Tensor) -> torch.Tensor:
    return differences.square().sum(-1)


def _length(differences: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(differences, dim=-1)
