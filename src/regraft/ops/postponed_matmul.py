"""Products of a query and a key that are computed only when their elements are read; attention
reads none."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.attention_form import Form, snapshot
from regraft.ops.einsum_equations import parse_scores
from regraft.ops.plain import are_kernels_forced, are_tensors, can_read
from regraft.ops.postponed_scores import postponed_scores

_MAX_FEATURES_PER_ROW = (
    4  # with more features for each row of scores, a copy of the key costs more than the scores
)
# with fewer scores, following the steps costs more than taking them
_LEAST_SCORES = {
    "cpu": 1 << 19,
    "cuda": 1 << 23,
}


def postponed_matmul(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return `torch.matmul(query, key)`, and postpone it until its elements are needed beyond
    attention.

    Shapes: `query` is `(..., L, E)`, `key` `(..., E, S)`, the result `(..., L, S)`. The result
    stays postponed while it is scaled, masked, cast, reshaped to other leading dimensions, or
    passed through softmax over the keys; the product of such weights with a value is
    `torch.nn.functional.scaled_dot_product_attention`. Any other operation (such as active dropout)
    computes the elements by the original operations on copies of the query, the key and the masks,
    and continues with ordinary tensors. Hooks and `retain_grad` see the gradients of the weights;
    there are no second derivatives of the kernel's result. Fewer scores than pay (half a million on
    CPU) are computed at once, unless REGRAFT_KERNELS=always is in the environment.
    """
    if postponed_matmul_implementation(query, key) != "torch-native":
        return postponed_matmul_reference(query, key)
    query, key = snapshot(query), snapshot(key)
    return postponed_scores(
        postponed_matmul_reference, (query, key), _scores_form(query, key.transpose(-1, -2))
    )


def postponed_matmul_reference(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Compute the product at once."""
    return torch.matmul(query, key)


def postponed_matmul_implementation(query: torch.Tensor, key: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not _are_plain(query, key) or not _is_large(query, key.shape[-1]):
        return "reference"
    return "torch-native" if _kernel_pays(query, key.transpose(-1, -2)) else "reference"


def postponed_einsum(equation: str, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return `torch.einsum(equation, first, second)`, postponed like the result of
    `postponed_matmul`.

    Shapes: one of the two tensors is a query and the other a key, in any order of their dimensions;
    the equation sums over one dimension, and the result is `(..., L, S)`.
    """
    if postponed_einsum_implementation(equation, first, second) != "torch-native":
        return postponed_einsum_reference(equation, first, second)
    first, second = snapshot(first), snapshot(second)
    query, key = _query_and_key(equation, first, second)

    def call(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, left, right)

    return postponed_scores(call, (first, second), _scores_form(query, key))


def postponed_einsum_reference(
    equation: str, first: torch.Tensor, second: torch.Tensor
) -> torch.Tensor:
    """Compute the product of the equation at once."""
    return torch.einsum(equation, first, second)


def postponed_einsum_implementation(
    equation: str, first: torch.Tensor, second: torch.Tensor
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    layout = parse_scores(equation) if _are_plain(first, second) else None
    if layout is None:
        return "reference"
    position, query_order, key_order = layout
    query, key = (second, first) if position else (first, second)
    if query.dim() != len(query_order) or key.dim() != len(key_order):
        return "reference"
    features = query.shape[query_order[-1]]
    if not _is_large(query, key.shape[key_order[-2]], features):
        return "reference"
    pays = _kernel_pays(*_query_and_key(equation, first, second))
    return "torch-native" if pays else "reference"


def postponed_baddbmm(
    input: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Return `torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)`, postponed as by
    `postponed_matmul`.

    Shapes: `batch1` is a query `(N, L, E)`, `batch2` a key `(N, E, S)`, and `input` broadcasts to
    `(N, L, S)`.
    """
    if (
        postponed_baddbmm_implementation(input, batch1, batch2, beta=beta, alpha=alpha)
        != "torch-native"
    ):
        return postponed_baddbmm_reference(input, batch1, batch2, beta=beta, alpha=alpha)
    query, key = snapshot(batch1), snapshot(batch2)
    form = Form(query, key.transpose(-1, -2), float(alpha))
    if not beta:  # the input may hold any values, even NaN, and is not read
        size = (*query.shape[:-1], key.shape[-1])

        def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.baddbmm(x.new_zeros(()).expand(size), x, y, beta=0, alpha=alpha)

        return postponed_scores(multiply, (query, key), form)
    addend = snapshot(input)

    def multiply_and_add(z: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(z, x, y, beta=beta, alpha=alpha)

    form = Form(query, key.transpose(-1, -2), float(alpha), addend * beta, tuple(query.shape[:-2]))
    return postponed_scores(multiply_and_add, (addend, query, key), form)


def postponed_baddbmm_reference(
    input: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Compute the product and the sum at once."""
    return torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)


def postponed_baddbmm_implementation(
    input: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not _are_plain(input, batch1, batch2) or not _is_large(batch1, batch2.shape[-1]):
        return "reference"
    fits = batch1.dim() == 3 and _kernel_pays(batch1, batch2.transpose(-1, -2))
    fits = fits and alpha > 0 and input.dtype == batch1.dtype and input.dim() <= 3
    size = (*batch1.shape[:-1], batch2.shape[-1])
    fits = fits and all(
        input_size in (1, result_size)
        for input_size, result_size in zip(input.shape[::-1], size[::-1], strict=False)
    )
    return "torch-native" if fits else "reference"


def _scores_form(query: torch.Tensor, key: torch.Tensor) -> Form:
    """Return the form of scores; shapes: `query` is `(..., L, E)`, `key` `(..., S, E)` and
    broadcasts to the query."""
    return Form(query, key.expand(*query.shape[:-2], *key.shape[-2:]))


def _query_and_key(
    equation: str, first: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the query and the key of an einsum equation as `(..., L, E)` and `(..., S, E)`."""
    layout = parse_scores(equation)
    assert layout is not None
    query, key = (first, second)[layout[0]], (first, second)[1 - layout[0]]
    return query.permute(layout[1]), key.permute(layout[2])


def _are_plain(*tensors: Any) -> bool:
    """Return whether these are plain tensors of one dtype and device, outside of tracing,
    transforms and autocast.

    Each tensor has at least two dimensions.
    """
    if not are_tensors(*tensors):
        return False
    first = tensors[0]
    dtype, device = first.dtype, first.device
    for tensor in tensors:
        if tensor.dim() < 2 or tensor.dtype is not dtype or tensor.device != device:
            return False
    is_autocast: bool = torch.is_autocast_enabled(device.type)
    return can_read() and not is_autocast


def _is_large(query: torch.Tensor, keys: int, features: int | None = None) -> bool:
    """Return whether the scores of a query and so many keys are enough to pay, or
    REGRAFT_KERNELS=always demands kernels.

    The query has so many features, by default the size of its last dimension.
    """
    least = _LEAST_SCORES.get(query.device.type)
    if least is None:
        return False
    rows = query.numel() // (features or query.shape[-1] or 1)
    return rows * keys >= least or are_kernels_forced()


def _kernel_pays(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Return whether the kernel takes a query `(..., L, E)` and a key `(..., S, E)`, and has enough
    rows for each feature to pay."""
    # half precision on CPU is slower there than the composition, and less exact
    if not query.dtype.is_floating_point or (query.is_cpu and query.dtype.itemsize < 4):
        return False
    if (
        query.dim() != key.dim()
        or query.shape[-1] != key.shape[-1]
        or not query.numel()
        or not key.numel()
    ):
        return False
    if any(
        key_size not in (1, query_size)
        for key_size, query_size in zip(key.shape[:-2], query.shape[:-2], strict=True)
    ):
        return False
    return bool(query.shape[-2] * _MAX_FEATURES_PER_ROW >= query.shape[-1])
