"""Scores of attention in the form of arguments of a kernel, and the operations on scores that keep
that form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.masked_rows import attend_with_masked_rows

_AttentionCall = Callable[..., torch.Tensor]
_VANISHING = -750.0  # the exponential of this is zero in every dtype
_SCALING = frozenset(
    {
        torch.Tensor.mul,
        torch.Tensor.__mul__,
        torch.Tensor.__rmul__,
        torch.mul,
        torch.Tensor.mul_,
        torch.Tensor.__imul__,
    }
)
_DIVIDING = frozenset(
    {
        torch.Tensor.div,
        torch.Tensor.__truediv__,
        torch.div,
        torch.Tensor.div_,
        torch.Tensor.__itruediv__,
    }
)
_ADDING = frozenset(
    {
        torch.Tensor.add,
        torch.Tensor.__add__,
        torch.Tensor.__radd__,
        torch.add,
        torch.Tensor.add_,
        torch.Tensor.__iadd__,
    }
)
_SUBTRACTING = frozenset(
    {torch.Tensor.sub, torch.Tensor.__sub__, torch.sub, torch.Tensor.sub_, torch.Tensor.__isub__}
)
_FILLING = frozenset({torch.Tensor.masked_fill, torch.masked_fill, torch.Tensor.masked_fill_})
_CHOOSING = frozenset({torch.where, torch.Tensor.where})
_CASTING = frozenset(
    {
        torch.Tensor.to,
        torch.Tensor.type,
        torch.Tensor.float,
        torch.Tensor.double,
        torch.Tensor.type_as,
    }
)
_ARRANGING = frozenset(
    {
        torch.Tensor.view,
        torch.Tensor.reshape,
        torch.reshape,
        torch.Tensor.contiguous,
        torch.Tensor.flatten,
        torch.flatten,
        torch.Tensor.unflatten,
        torch.Tensor.unsqueeze,
        torch.unsqueeze,
        torch.Tensor.squeeze,
        torch.squeeze,
    }
)
_SOFTMAX = frozenset({functional.softmax, torch.softmax, torch.Tensor.softmax})
IN_PLACE = frozenset(
    {
        torch.Tensor.mul_,
        torch.Tensor.__imul__,
        torch.Tensor.div_,
        torch.Tensor.__itruediv__,
        torch.Tensor.add_,
        torch.Tensor.__iadd__,
        torch.Tensor.sub_,
        torch.Tensor.__isub__,
        torch.Tensor.masked_fill_,
    }
)
FOLLOWED = (
    _SCALING
    | _DIVIDING
    | _ADDING
    | _SUBTRACTING
    | _FILLING
    | _CHOOSING
    | _CASTING
    | _ARRANGING
    | _SOFTMAX
    | {functional.dropout}
)
_MATMUL = frozenset(
    {
        torch.matmul,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.bmm,
        torch.Tensor.bmm,
    }
)
PRODUCTS = _MATMUL | {torch.einsum}


@dataclass(frozen=True, slots=True)
class Form:
    """The scores `scale * query @ key.transpose(-1, -2) + bias`, or their softmax if `soft` is
    true.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`. `bias` broadcasts to `(*lead, L, S)`,
    where `lead` are the leading sizes of the scores to which the bias was added; the leading sizes
    of the query may arrange the same rows in another way. `fill` is the highest number that
    replaced scores; the bias adds it to them instead. The boolean `fill_mask` has the shape of the
    bias and is true where scores were replaced. `adds_mask` is true if the bias also holds a mask
    that the model adds.
    """

    query: torch.Tensor
    key: torch.Tensor
    scale: float = 1.0
    bias: torch.Tensor | None = None
    lead: tuple[int, ...] = ()
    fill: float = -math.inf
    fill_mask: torch.Tensor | None = None
    adds_mask: bool = False
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """An operation on scores.

    call     from the elements of the scores and the sources to those of the result
    sources  the other tensors that the operation reads
    meta     a tensor on the meta device with the shape and dtype of the result
    form     the form of the result
    """

    call: _AttentionCall
    sources: tuple[torch.Tensor, ...]
    meta: torch.Tensor
    form: Form


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor that no other code can change.

    The copy has one element in memory for all elements that a broadcast dimension (of stride 0)
    repeats. A hook on the tensor sees the gradient of every repetition, as if each repetition was
    copied.
    """
    if any(
        not stride and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        copied: torch.Tensor = _Copy.apply(tensor)
        return copied
    return tensor.clone()


class _Copy(torch.autograd.Function):  # type: ignore[misc]
    """The identity by a copy in which a broadcast dimension has one element in memory."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.shape
        for dimension, stride in enumerate(tensor.stride()):
            if not stride and size[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
        return tensor.clone().expand(size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent


def follow(
    function: Any, args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the call of a function in FOLLOWED as a step; None if the call needs the elements of
    the scores.

    The scores are the positional argument at `position`. `meta` has their shape and dtype, and
    `form` is their form.
    """
    if function in _ARRANGING:
        return _arranging_step(function, args, kwargs, meta, form) if position == 0 else None
    if function in _CASTING:
        return _casting_step(function, args, kwargs, meta, form) if position == 0 else None
    if function in _SOFTMAX:
        return _softmax_step(args, kwargs, meta, form) if position == 0 else None
    if form.soft:
        return None
    if function in _CHOOSING and len(args) == 3 and not kwargs:
        keep_mask, operand = args[1 - position], args[2]
        return (
            _filling_step(
                lambda x, m, y: torch.where(m, x, y), keep_mask, operand, meta, form, True
            )
            if position < 2
            else None
        )
    if function in _FILLING and position == 0:
        operands = [*args[1:], *(kwargs[name] for name in ("mask", "value") if name in kwargs)]
        if len(operands) != 2:
            return None
        return _filling_step(
            lambda x, m, y: x.masked_fill(m, y), operands[0], operands[1], meta, form, False
        )
    if kwargs or len(args) != 2 or (position and function not in _SCALING | _ADDING):
        return None
    operand = args[1 - position]
    if function in _SCALING | _DIVIDING:
        return _scaling_step(operand, function in _DIVIDING, meta, form)
    return _adding_step(operand, function in _SUBTRACTING, meta, form)


def _broadcasts(operand: Any, meta: torch.Tensor) -> bool:
    """Return whether an operand is a tensor that broadcasts to the scores without making them
    larger."""
    if not isinstance(operand, torch.Tensor) or operand.dim() > meta.dim():
        return False
    return all(
        operand_size in (1, scores_size)
        for operand_size, scores_size in zip(operand.shape[::-1], meta.shape[::-1], strict=False)
    )


def constant_value(value: Any) -> float | None:
    """Return the value of a number, or of a tensor without dimensions on CPU that needs no
    gradient; else None."""
    if (
        isinstance(value, torch.Tensor)
        and not value.dim()
        and value.device.type == "cpu"
        and not value.requires_grad
    ):
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _scaling_step(operand: Any, divides: bool, meta: torch.Tensor, form: Form) -> Step | None:
    """Return a product with an operand (or a quotient, if `divides`) as a step; None if it has no
    form."""

    def call(x: torch.Tensor, *factor: torch.Tensor) -> torch.Tensor:
        y = factor[0] if factor else operand
        return x / y if divides else x * y

    number = constant_value(operand)
    if number is not None:
        if not math.isfinite(number) or not number or not _is_lowest(form.fill, meta):
            return None
        scale = form.scale / number if divides else form.scale * number
        bias = (
            form.bias
            if form.bias is None
            else (form.bias / number if divides else form.bias * number)
        )
        return Step(call, (), meta, replace(form, scale=scale, bias=bias))
    if not _broadcasts(operand, meta) or (
        operand.dim() and (operand.shape[-1] > 1 or operand.dtype != meta.dtype)
    ):
        return None
    if (
        form.bias is not None
        or form.query.shape[:-2] != meta.shape[:-2]
        or not operand.is_floating_point()
    ):
        return None
    operand = snapshot(operand)  # has one factor for each row
    factor = operand.to(form.query.dtype)
    return Step(
        call,
        (operand,),
        meta,
        replace(form, query=form.query / factor if divides else form.query * factor),
    )


def _adding_step(operand: Any, negated: bool, meta: torch.Tensor, form: Form) -> Step | None:
    """Return the addition of a mask (its subtraction, if `negated`) as a step; None if it has no
    form."""
    if not _broadcasts(operand, meta) or operand.dtype != meta.dtype:
        return None
    if not _is_lowest(form.fill, meta) and (
        negated or not operand.is_cpu or bool((operand.detach() > 0).any())
    ):
        return None  # the mask may raise scores that were filled
    aligned = _align_bias(form, meta)
    if aligned is None:
        return None
    bias = aligned.bias
    operand = snapshot(operand)
    new_bias = -operand if negated else operand
    new_bias = new_bias if bias is None else bias + new_bias
    return Step(
        lambda x, y: x - y if negated else x + y,
        (operand,),
        meta,
        replace(aligned, bias=new_bias, adds_mask=True),
    )


def _filling_step(
    call: _AttentionCall, mask: Any, value: Any, meta: torch.Tensor, form: Form, mask_keeps: bool
) -> Step | None:
    """Return the replacement of scores by a number as a step that adds the number; None if the
    results may differ.

    The number has to be so low that a score which is added to it is lost in rounding, or is lost by
    softmax. The boolean mask is true where scores are replaced, or where they are kept if
    `mask_keeps` is true.
    """
    number = constant_value(value)
    if number is None or not _broadcasts(mask, meta) or mask.dtype != torch.bool:
        return None
    if not _is_lowest(number, meta) and not mask.is_cpu:
        return None
    aligned = _align_bias(form, meta)
    if aligned is None:
        return None
    bias = aligned.bias
    mask = snapshot(mask)
    fill = torch.full((), number, dtype=meta.dtype, device=mask.device)
    previous_bias = torch.zeros_like(fill) if bias is None else bias
    fill_mask = ~mask if mask_keeps else mask
    bias = torch.where(fill_mask, fill, previous_bias)
    fill_mask = fill_mask if aligned.fill_mask is None else fill_mask | aligned.fill_mask
    return Step(
        lambda x, m: call(x, m, number),
        (mask,),
        meta,
        replace(aligned, bias=bias, fill_mask=fill_mask, fill=max(form.fill, number)),
    )


def _is_lowest(number: float, meta: torch.Tensor) -> bool:
    """Return whether a score is lost in rounding when it is added to a number in the dtype of
    `meta`."""
    return bool(number <= torch.finfo(meta.dtype).min)


def _are_fills_negligible(form: Form) -> bool:
    """Return whether softmax gives zero for every score to which a fill was added instead of
    replacing the score.

    A score is at most the product of the greatest lengths of a query and a key.
    """
    if _is_lowest(form.fill, form.query) or form.bias is None:
        return True
    query, key, bias = (tensor.detach() for tensor in (form.query, form.key, form.bias))
    score_bound = query.norm(dim=-1).max() * key.norm(dim=-1).max() * abs(form.scale)
    return bool(2 * score_bound + form.fill - bias.amax(-1).min() < _VANISHING)


def _align_bias(form: Form, meta: torch.Tensor) -> Form | None:
    """Return the form with its bias in the leading sizes of the scores `meta`; None if that needs a
    copy."""
    lead = tuple(meta.shape[:-2])
    if form.bias is None or lead == form.lead:
        return replace(form, lead=lead)
    bias = _with_leading_sizes(form.bias, form.lead, lead)
    fill_mask = (
        None if form.fill_mask is None else _with_leading_sizes(form.fill_mask, form.lead, lead)
    )
    if bias is None or (fill_mask is None and form.fill_mask is not None):
        return None
    return replace(form, bias=bias, fill_mask=fill_mask, lead=lead)


def _with_leading_sizes(
    mask: torch.Tensor, lead: tuple[int, ...], new_lead: tuple[int, ...]
) -> torch.Tensor | None:
    """Reshape a mask that broadcasts to `(*lead, L, S)` for the leading sizes `new_lead`; None if
    it needs a copy."""
    shape = (1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape)
    if all(size == 1 for size in shape[:-2]):
        return mask.reshape(*(1 for _ in new_lead), *shape[-2:])
    return mask.reshape(*new_lead, *shape[-2:]) if shape[:-2] == lead else None


def _casting_step(
    function: Any, args: Any, kwargs: Any, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the cast to a dtype as a step; None if the dtype is narrower than that of the
    query."""
    dtype: Any = {torch.Tensor.float: torch.float32, torch.Tensor.double: torch.float64}.get(
        function
    )
    if dtype is None:
        operands = [*args[1:], *kwargs.values()]
        if len(operands) != 1 or not set(kwargs) <= {"dtype"}:
            return None
        dtype = operands[0].dtype if function is torch.Tensor.type_as else operands[0]
    if not _is_wide(dtype, form):
        return None
    return Step(lambda x: x.to(dtype), (), meta.to(dtype), form)


def _is_wide(dtype: Any, form: Form) -> bool:
    """Return whether a dtype is that of the query or a floating point dtype of more bytes."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return False
    query_dtype: torch.dtype = form.query.dtype
    return dtype == query_dtype or bool(dtype.itemsize > query_dtype.itemsize)


def _softmax_step(args: Any, kwargs: Any, meta: torch.Tensor, form: Form) -> Step | None:
    """Return the softmax as a step; None if it is not over the keys, or rounds to a
    narrower dtype."""
    options = {"dim": -1 if len(args) < 2 else args[1], **kwargs}
    dim, dtype = options.pop("dim"), options.pop("dtype", None)
    options.pop("_stacklevel", None)
    if options or (len(args) < 2 and "dim" not in kwargs) or len(args) > 2 or form.soft:
        return None
    if dim not in (-1, meta.dim() - 1) or not _is_wide(dtype or meta.dtype, form):
        return None
    return Step(
        lambda x: functional.softmax(x, dim=-1, dtype=dtype),
        (),
        meta.to(dtype or meta.dtype),
        replace(form, soft=True),
    )


def _arranging_step(
    function: Any, args: Any, kwargs: Any, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the reshaping to other leading sizes as a step; None if the rows do not stay
    the same."""
    operands = args[1:]
    try:
        arranged = function(meta, *operands, **kwargs)
    except (RuntimeError, TypeError, IndexError):
        return None  # the call on the real tensor will raise the error
    if arranged.dim() < 2 or arranged.shape[-2:] != meta.shape[-2:] or not arranged.is_contiguous():
        return None
    return Step(lambda x: function(x, *operands, **kwargs), (), arranged, form)


@dataclass(frozen=True, slots=True)
class Product:
    """The product of attention weights with a value.

    value   the value as `(..., S, V)`, with the leading sizes of the weights
    finish  from the attention `(..., L, V)` to the result of the product
    """

    value: torch.Tensor
    finish: _AttentionCall


def attention_product(
    function: Any, args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Product | None:
    """Return the call of a function in PRODUCTS as a product; None if the call does not compute an
    attention.

    The weights are the positional argument at `position`. `meta` has their shape and dtype, and
    `form` is their form.
    """
    if (
        kwargs
        or not form.soft
        or len(args) != 2 + (function is torch.einsum)
        or not _are_fills_negligible(form)
    ):
        return None
    finish: _AttentionCall = lambda y: y  # noqa: E731
    if function is torch.einsum:
        layout = parse_weighted_sum(args[0], position - 1)
        if layout is None or layout[0] != meta.dim() or args[3 - position].dim() != meta.dim():
            return None
        value, finish = args[3 - position].permute(layout[1]), lambda y: y.permute(layout[2])
    elif position:
        return None
    else:
        value = args[1]
    lead = meta.shape[:-2]
    if (
        not isinstance(value, torch.Tensor)
        or value.dim() != meta.dim()
        or value.shape[-2] != meta.shape[-1]
    ):
        return None
    if (
        any(
            value_size not in (1, scores_size)
            for value_size, scores_size in zip(value.shape[:-2], lead, strict=True)
        )
        or not value.numel()
    ):
        return None
    if function in (torch.bmm, torch.Tensor.bmm) and (
        value.dim() != 3 or value.shape[0] != lead[0]
    ):
        return None
    bias_fits = form.bias is None or form.bias.dtype == form.query.dtype
    if (
        not (value.dtype == meta.dtype == form.query.dtype)
        or value.device != form.query.device
        or not bias_fits
    ):
        return None
    return Product(value.expand(*lead, *value.shape[-2:]), finish)


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
    scores_size = (query.shape[-2], key.shape[-2])
    causal = form.bias is not None and is_causal(form.bias, scores_size)

    def kernel(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=causal, scale=form.scale
        )

    if form.bias is None or causal:
        result = kernel(query, key, value)
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


def is_causal(bias: torch.Tensor, size: tuple[int, int]) -> bool:
    """Return whether a mask on CPU hides from each of L queries the keys that come after it, and
    nothing else.

    `size` is `(L, S)`. On other devices the answer is False, because reading elements would wait
    for the device.
    """
    if (
        bias.device.type != "cpu"
        or bias.requires_grad
        or tuple(bias.shape[-2:]) != size
        or size[0] != size[1]
    ):
        return False
    lowest = torch.finfo(bias.dtype).min
    bias = bias.detach()
    if (
        size[0] < 2
        or bool((bias[..., -1, 0] != 0).any())
        or bool((bias[..., 0, -1] > lowest).any())
    ):
        return False
    visible = torch.ones(size, dtype=torch.bool).tril()
    return bool(torch.where(visible, bias == 0, bias <= lowest).all())


def parse_weighted_sum(
    equation: Any, position: int
) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Parse an einsum equation that sums rows of a value with weights, the term at `position` of
    two; else None.

    The result holds the number of the weights' dimensions, the permutation of the value to `(...,
    S, V)` for a matrix product, and the permutation of the product `(..., L, V)` to the equation's
    result.
    """
    terms = _parse_terms(equation)
    if terms is None:
        return None
    weights, value, result = terms[position], terms[1 - position], terms[2]
    batch, row, column = weights[:-2], weights[-2:-1], weights[-1:]
    features = [letter for letter in value if letter not in weights]
    if (
        len(weights) < 2
        or len(features) != 1
        or set(value) != {*batch, column, *features}
        or set(result) != {*batch, row, *features}
    ):
        return None
    value_order = tuple(value.index(letter) for letter in (*batch, column, *features))
    product_letters = (*batch, row, *features)
    return len(weights), value_order, tuple(product_letters.index(letter) for letter in result)


def parse_scores(equation: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Parse an einsum equation that makes scores of a query and a key; None for any other equation.

    The result holds the position of the query among the two terms, the permutation of the query to
    `(..., L, E)`, and the permutation of the key to `(..., S, E)`.
    """
    terms = _parse_terms(equation)
    if terms is None or len(terms[2]) < 2:
        return None
    *operands, result = terms
    batch, row, column = result[:-2], result[-2], result[-1]
    query_position = 0 if row in operands[0] else 1
    query, key = operands[query_position], operands[1 - query_position]
    features = [letter for letter in query if letter not in result]
    if (
        len(features) != 1
        or set(query) != {*batch, row, *features}
        or set(key) != {*batch, column, *features}
    ):
        return None
    return (
        query_position,
        tuple(query.index(letter) for letter in (*batch, row, *features)),
        tuple(key.index(letter) for letter in (*batch, column, *features)),
    )


def _parse_terms(equation: Any) -> tuple[str, str, str] | None:
    """Split an einsum equation into its two terms and its result, each of different letters; None
    if it has others."""
    if not isinstance(equation, str):
        return None
    operands, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = operands.partition(",")
    terms = (first, second, result)
    are_simple = all(term.isalpha() and len(set(term)) == len(term) for term in terms)
    return terms if arrow and comma and are_simple else None
