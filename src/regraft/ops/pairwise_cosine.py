"""Cosines of all pairs of vectors by a matrix product."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.pairs import Pairs, ordered_pairs_of
from regraft.ops.plain import without_view


def pairwise_cosine(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8
) -> torch.Tensor:
    """Return `torch.nn.functional.cosine_similarity(x, y, dim, eps)` without tensors of the
    broadcast shape, where `x` and `y` are broadcast against each other.

    Shapes: as the composition, such as `(N, 1, D)` and `(1, K, D)` to `(N, K)`. Both sides are
    divided by their lengths, which are at least `eps`, and multiplied as matrices. Anything else
    than all pairs runs as the composition.
    """
    pairs = ordered_pairs_of(x, y, dim)
    if pairs is None:
        return pairwise_cosine_reference(x, y, dim, eps=eps)
    return _cosines(pairs, eps)


def pairwise_cosine_reference(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8
) -> torch.Tensor:
    """Compute the function that the op replaces."""
    return functional.cosine_similarity(x, y, dim, eps)


def pairwise_cosine_implementation(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, eps: float = 1e-8
) -> str:
    """Name the implementation for these arguments: "matmul" or "reference"."""
    return "reference" if ordered_pairs_of(x, y, dim) is None else "matmul"


def _cosines(pairs: Pairs, eps: float) -> torch.Tensor:
    """Return the cosines of all pairs."""
    products = torch.bmm(_unit(pairs.first, eps), _unit(pairs.second, eps).mT)
    return without_view(products.reshape(pairs.shape))


def _unit(vectors: torch.Tensor, eps: float) -> torch.Tensor:
    """Return vectors divided by their lengths, which are at least `eps` where they divide but not
    where they are differentiated, as in PyTorch's function."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clone()
    with torch.no_grad():
        lengths.clamp_min_(eps)
    return vectors / lengths
