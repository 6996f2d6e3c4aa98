"""Cosines and inner products of all pairs of vectors by a matrix product."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.pairs import Pairs, pairs_of
from regraft.ops.plain import without_view

_LEAST_FACTORS = 1 << 16


def pairwise_cosine(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8, expanded: bool = False
) -> torch.Tensor:
    """Return `torch.nn.functional.cosine_similarity(x, y, dim, eps)` without tensors of the
    broadcast shape, where `x` and `y` are broadcast against each other.

    Shapes: as the composition, such as `(N, 1, D)` and `(1, K, D)` to `(N, K)`. Both sides are
    divided by their lengths, which are at least `eps`, and multiplied as matrices. Anything else
    than all pairs runs as the composition.

    expanded  the caller uses both tensors for nothing else: where `expand` has stretched them they
              are used as they were before, and get no gradients themselves
    """
    pairs = pairs_of(x, y, dim, least=_LEAST_FACTORS, expanded=expanded)
    if pairs is None:
        return pairwise_cosine_reference(x, y, dim, eps=eps)
    return _cosines(pairs, eps)


def pairwise_cosine_reference(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8, expanded: bool = False
) -> torch.Tensor:
    """Compute the function that the op replaces."""
    return functional.cosine_similarity(x, y, dim, eps)


def pairwise_cosine_implementation(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8, expanded: bool = False
) -> str:
    """Name the implementation for these arguments: "matmul" or "reference"."""
    return (
        "reference"
        if pairs_of(x, y, dim, least=_LEAST_FACTORS, expanded=expanded) is None
        else "matmul"
    )


def pairwise_product(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Return `(x * y).sum(dim, keepdim)` without tensors of the broadcast shape, where `x` and `y`
    are broadcast against each other.

    Shapes, exclusions and `expanded`: as `pairwise_cosine`.
    """
    pairs = pairs_of(x, y, dim, least=_LEAST_FACTORS, expanded=expanded)
    if pairs is None:
        return pairwise_product_reference(x, y, dim, keepdim=keepdim, expanded=expanded)
    products = torch.bmm(pairs.first, pairs.second.mT).reshape(*pairs.sizes.shape)
    return without_view(products.unsqueeze(dim) if keepdim else products)


def pairwise_product_reference(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return (x * y).sum(dim, keepdim=keepdim)


def pairwise_product_implementation(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, keepdim: bool = False, expanded: bool = False
) -> str:
    """Name the implementation for these arguments: "matmul" or "reference"."""
    return (
        "reference"
        if pairs_of(x, y, dim, least=_LEAST_FACTORS, expanded=expanded) is None
        else "matmul"
    )


def _cosines(pairs: Pairs, eps: float) -> torch.Tensor:
    """Return the cosines of all pairs."""
    products = torch.bmm(_unit(pairs.first, eps), _unit(pairs.second, eps).mT)
    return without_view(products.reshape(*pairs.sizes.shape))


def _unit(vectors: torch.Tensor, eps: float) -> torch.Tensor:
    """Return vectors divided by their lengths, which are at least `eps` where they divide but not
    where they are differentiated, as in PyTorch's function."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clone()
    with torch.no_grad():
        lengths.clamp_min_(eps)
    return vectors / lengths
