"""Operations on scores of attention that keep the scores in the form of arguments of a kernel."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.attention_form import Form, is_lowest, snapshot
from regraft.ops.plain import NUMBERS

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
_TRANSPOSING = frozenset(
    {
        torch.Tensor.transpose,
        torch.transpose,
        torch.Tensor.permute,
        torch.permute,
        torch.Tensor.mT.__get__,
    }
)
_SOFTMAX = frozenset({functional.softmax, torch.softmax, torch.Tensor.softmax})
_UNARY = _ARRANGING | _TRANSPOSING | _CASTING | _SOFTMAX | {torch.Tensor.detach}
_COMMUTATIVE = _SCALING | _ADDING
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
    _UNARY | _COMMUTATIVE | _DIVIDING | _SUBTRACTING | _FILLING | _CHOOSING | {functional.dropout}
)


@dataclass(frozen=True, slots=True)
class Step:
    """An operation on scores.

    call     from the elements of the scores and the sources to those of the result
    sources  the other tensors that the operation reads
    meta     a tensor on the meta device with the shape and dtype of the result
    form     the form of the result
    """

    call: Callable[..., torch.Tensor]
    sources: tuple[torch.Tensor, ...]
    meta: torch.Tensor
    form: Form


def follow(
    function: Any, args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the call of a function in FOLLOWED as a step; None if the call needs the elements of
    the scores.

    The scores are the positional argument at `position`. `meta` has their shape and dtype, and
    `form` is their form.
    """
    if function in _UNARY:
        return _unary_step(function, args, kwargs, meta, form) if position == 0 else None
    if form.soft:
        return None
    if function in _CHOOSING:
        return _choosing_step(args, kwargs, position, meta, form)
    if function in _FILLING:
        return _masked_fill_step(args, kwargs, meta, form) if position == 0 else None
    return _arithmetic_step(function, args, kwargs, position, meta, form)


def _unary_step(
    function: Any, args: Any, kwargs: Any, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the reshaping, cast, softmax or copy without a graph of scores as a step; None if it
    has no form."""
    if function is torch.Tensor.detach:
        return Step(lambda x: x.detach(), (), meta, _without_gradients(form))
    if function in _ARRANGING:
        return _arranging_step(function, args, kwargs, meta, form)
    if function in _TRANSPOSING:
        return _transposing_step(function, args, kwargs, meta, form)
    if function in _CASTING:
        return _casting_step(function, args, kwargs, meta, form)
    return _softmax_step(args, kwargs, meta, form)


def _choosing_step(
    args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return `torch.where` between the scores and a number as a step; None if it has no form."""
    if kwargs or len(args) != 3 or position == 2:
        return None
    keep_mask, number = args[1 - position], args[2]
    return _filling_step(keep_mask, number, True, meta, form)


def _masked_fill_step(args: Any, kwargs: Any, meta: torch.Tensor, form: Form) -> Step | None:
    """Return the call of `masked_fill` as a step; None if it has no form."""
    operands = [*args[1:], *(kwargs[name] for name in ("mask", "value") if name in kwargs)]
    if len(operands) != 2:
        return None
    mask, number = operands
    return _filling_step(mask, number, False, meta, form)


def _arithmetic_step(
    function: Any, args: Any, kwargs: Any, position: int, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the product, quotient, sum or difference of scores and an operand as a step; None if
    it has no form."""
    if kwargs or len(args) != 2 or (position and function not in _COMMUTATIVE):
        return None
    operand = args[1 - position]
    if function in _SCALING:
        return _scaling_step(operand, operator.mul, meta, form)
    if function in _DIVIDING:
        return _scaling_step(operand, operator.truediv, meta, form)
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
    return float(value) if isinstance(value, NUMBERS) and not isinstance(value, bool) else None


def _scaling_step(
    operand: Any, scale_by: Callable[[Any, Any], Any], meta: torch.Tensor, form: Form
) -> Step | None:
    """Return `scale_by(scores, operand)`, a product or quotient, as a step; None if it has no
    form."""
    number = constant_value(operand)
    if number is None:
        return _row_scaling_step(operand, scale_by, meta, form)
    if not math.isfinite(number) or not number or not is_lowest(form.fill, meta):
        return None
    scale = scale_by(form.scale, number)
    bias = None if form.bias is None else scale_by(form.bias, number)
    return Step(lambda x: scale_by(x, operand), (), meta, replace(form, scale=scale, bias=bias))


def _row_scaling_step(
    operand: Any, scale_by: Callable[[Any, Any], Any], meta: torch.Tensor, form: Form
) -> Step | None:
    """Return `scale_by(scores, operand)` with a factor for each row as a step that scales the
    query; None if it has no form."""
    if not _has_factor_per_row(operand, meta):
        return None
    if form.bias is not None or form.query.shape[:-2] != meta.shape[:-2]:
        return None
    operand = snapshot(operand)
    query = scale_by(form.query, operand.to(form.query.dtype))
    return Step(scale_by, (operand,), meta, replace(form, query=query))


def _has_factor_per_row(operand: Any, meta: torch.Tensor) -> bool:
    """Return whether an operand is a floating point tensor with at most one number for each row of
    the scores."""
    if not _broadcasts(operand, meta) or not operand.is_floating_point():
        return False
    return not operand.dim() or (operand.shape[-1] <= 1 and operand.dtype == meta.dtype)


def _adding_step(operand: Any, negated: bool, meta: torch.Tensor, form: Form) -> Step | None:
    """Return the addition of a mask (its subtraction, if `negated`) as a step; None if it has no
    form."""
    if not _broadcasts(operand, meta) or operand.dtype != meta.dtype:
        return None
    if not is_lowest(form.fill, meta) and (
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
    mask: Any, value: Any, mask_keeps: bool, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the replacement of scores by a number as a step that adds the number; None if the
    results may differ.

    The number has to be so low that a score which is added to it is lost in rounding, or is lost by
    softmax. The boolean mask is true where scores are replaced, or where they stay if `mask_keeps`
    is true.
    """
    number = constant_value(value)
    if number is None or not _broadcasts(mask, meta) or mask.dtype != torch.bool:
        return None
    if not is_lowest(number, meta) and not mask.is_cpu:
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
        lambda x, m: torch.where(m, x, number) if mask_keeps else x.masked_fill(m, number),
        (mask,),
        meta,
        replace(aligned, bias=bias, fill_mask=fill_mask, fill=max(form.fill, number)),
    )


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


def _transposing_step(
    function: Any, args: Any, kwargs: Any, meta: torch.Tensor, form: Form
) -> Step | None:
    """Return the exchange of the last two dimensions of weights as a step; None for scores, and
    for another order of dimensions."""
    operands = args[1:]
    try:
        arranged = function(meta, *operands, **kwargs)
    except (RuntimeError, TypeError, IndexError):
        return None  # the call on the real tensor will raise the error
    expected = meta.transpose(-1, -2)
    if not form.soft or arranged.shape != expected.shape or arranged.stride() != expected.stride():
        return None
    transposed = replace(form, transposed=not form.transposed)
    return Step(lambda x: function(x, *operands, **kwargs), (), arranged, transposed)


def _without_gradients(form: Form) -> Form:
    """Return the form of the same scores without a graph."""
    bias = None if form.bias is None else form.bias.detach()
    return replace(form, query=form.query.detach(), key=form.key.detach(), bias=bias)
