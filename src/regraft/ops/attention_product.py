"""The product of attention weights with a value, by PyTorch's kernel of attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.attention_form import Form, is_lowest
from regraft.ops.causal_masks import VANISHING, is_causal
from regraft.ops.einsum_equations import parse_weighted_sum
from regraft.ops.masked_rows import attend_with_masked_rows

_BATCHED = frozenset({torch.bmm, torch.Tensor.bmm})
PRODUCTS = _BATCHED | {
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.einsum,
}


@dataclass(frozen=True, slots=True)
class Product:
    """The product of attention weights with a value.

    value   the value as `(..., S, V)`, with the leading sizes of the weights
    finish  from the attention `(..., L, V)` to the result of the product
    """

    value: torch.Tensor
    finish: Callable[[torch.Tensor], torch.Tensor]


def attention_product(
    function: Any, args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Product | None:
    """Return the call of a function in PRODUCTS as a product; None if the call does not compute an
    attention.

    The weights are the positional argument at `position`. `meta` has their shape and dtype, and
    `form` is their form.
    """
    is_einsum = function is torch.einsum
    if kwargs or not form.soft or len(args) != 2 + is_einsum or not _are_fills_negligible(form):
        return None
    transposed = form.transposed
    meta = meta.transpose(-1, -2) if transposed else meta
    product = (
        _einsum_product(args, position, meta, transposed)
        if is_einsum
        else _matmul_product(args, position, transposed)
    )
    if product is None or not _multiplies(meta, product.value):
        return None
    value = product.value
    if function in _BATCHED and (value.dim() != 3 or value.shape[0] != meta.shape[0]):
        return None
    if not _kernel_takes_value(value, meta, form):
        return None
    return replace(product, value=value.expand(*meta.shape[:-2], *value.shape[-2:]))


def _einsum_product(
    args: Any, position: int, meta: torch.Tensor, transposed: bool
) -> Product | None:
    """Return the call of `torch.einsum` as a product, its value permuted; None if it is no weighted
    sum."""
    layout = parse_weighted_sum(args[0], position - 1, transposed)
    if layout is None:
        return None
    weights_dim, value_order, result_order = layout
    value = args[3 - position]
    if not weights_dim == meta.dim() == value.dim():
        return None
    return Product(value.permute(value_order), lambda y: y.permute(result_order))


def _matmul_product(args: Any, position: int, transposed: bool) -> Product | None:
    """Return the matrix product of the weights and a value, or of a transposed value and transposed
    weights; None if the factors are in the other order."""
    if position != int(transposed):
        return None
    value = args[1 - position]
    if not transposed:
        return Product(value, lambda y: y)
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return None
    # a matrix product is contiguous
    return Product(value.transpose(-1, -2), lambda y: y.transpose(-1, -2).contiguous())


def _multiplies(meta: torch.Tensor, value: Any) -> bool:
    """Return whether weights of the shape of `meta` multiply a value that is not empty and
    broadcasts to their leading sizes."""
    if not isinstance(value, torch.Tensor) or value.dim() != meta.dim():
        return False
    if value.shape[-2] != meta.shape[-1] or not value.numel():
        return False
    return all(
        value_size in (1, weights_size)
        for value_size, weights_size in zip(value.shape[:-2], meta.shape[:-2], strict=True)
    )


def _kernel_takes_value(value: torch.Tensor, meta: torch.Tensor, form: Form) -> bool:
    """Return whether the value, the weights, the query and the bias have one dtype, and the value
    the query's device."""
    bias_fits = form.bias is None or form.bias.dtype == form.query.dtype
    return (
        value.dtype == meta.dtype == form.query.dtype
        and value.device == form.query.device
        and bias_fits
    )


def _are_fills_negligible(form: Form) -> bool:
    """Return whether softmax gives zero for every score to which a fill was added instead of
    replacing the score.

    A score is at most the product of the greatest lengths of a query and a key.
    """
    if is_lowest(form.fill, form.query) or form.bias is None:
        return True
    query, key, bias = (tensor.detach() for tensor in (form.query, form.key, form.bias))
    score_bound = query.norm(dim=-1).max() * key.norm(dim=-1).max() * abs(form.scale)
    return bool(2 * score_bound + form.fill - bias.amax(-1).min() < VANISHING)


def attend(form: Form, value: torch.Tensor) -> torch.Tensor:
    """Compute the attention of a form by PyTorch's kernel.

    Shapes: `value` is `(..., S, V)`, the result `(..., L, V)`.
    """
    value_lead = value.shape[:-2]
    lead = form.lead if form.bias is not None else tuple(value_lead)
    query, key, value = (
        _to_four_dimensions(tensor.reshape(*lead, *tensor.shape[-2:]))
        for tensor in (form.query, form.key, value)
    )

    def kernel(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=causal, scale=form.scale
        )

    if form.bias is None:
        result = kernel(query, key, value)
    elif is_causal(query, key, value, form.bias, form.scale):
        result = kernel(query, key, value, causal=True)
    else:
        bias = _mask_to_four_dimensions(form.bias, lead)
        fill_mask = (
            None if form.fill_mask is None else _mask_to_four_dimensions(form.fill_mask, lead)
        )
        result = attend_with_masked_rows(
            kernel, query, key, value, bias, fill_mask, form.adds_mask, form.scale
        )
    return result.reshape(*value_lead, *result.shape[-2:])


def _mask_to_four_dimensions(mask: torch.Tensor, lead: tuple[int, ...]) -> torch.Tensor:
    """Reshape a mask for scores of the leading sizes `lead` to four dimensions."""
    mask = mask.reshape((1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape))
    if len(lead) > 2 and any(size > 1 for size in mask.shape[1:-2]):
        mask = mask.expand(mask.shape[0], *lead[1:], *mask.shape[-2:])
    return _to_four_dimensions(mask)


def _to_four_dimensions(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape a tensor to the four dimensions that the kernels take."""
    if tensor.dim() <= 4:
        return tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))
    return tensor.reshape(tensor.shape[0], -1, *tensor.shape[-2:])
