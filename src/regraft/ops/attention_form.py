"""What scores of attention are, as the arguments of a kernel, and how operations on them change that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.masked_rows import attend_with_masked_rows

_AttentionCall = Callable[..., torch.Tensor]
_VANISHING = -750.0  # whose exponential is zero in every dtype
_SCALING = frozenset({
    torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.mul, torch.Tensor.mul_, torch.Tensor.__imul__,
})  # fmt: skip
_DIVIDING = frozenset({
    torch.Tensor.div, torch.Tensor.__truediv__, torch.div, torch.Tensor.div_, torch.Tensor.__itruediv__,
})  # fmt: skip
_ADDING = frozenset({
    torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__, torch.add, torch.Tensor.add_, torch.Tensor.__iadd__,
})  # fmt: skip
_SUBTRACTING = frozenset({torch.Tensor.sub, torch.Tensor.__sub__, torch.sub, torch.Tensor.sub_, torch.Tensor.__isub__})
_FILLING = frozenset({torch.Tensor.masked_fill, torch.masked_fill, torch.Tensor.masked_fill_})
_CHOOSING = frozenset({torch.where, torch.Tensor.where})
_CASTING = frozenset({
    torch.Tensor.to, torch.Tensor.type, torch.Tensor.float, torch.Tensor.double, torch.Tensor.type_as,
})  # fmt: skip
_ARRANGING = frozenset({
    torch.Tensor.view, torch.Tensor.reshape, torch.reshape, torch.Tensor.contiguous, torch.Tensor.flatten,
    torch.flatten, torch.Tensor.unflatten, torch.Tensor.unsqueeze, torch.unsqueeze, torch.Tensor.squeeze,
    torch.squeeze,
})  # fmt: skip
_SOFTMAX = frozenset({functional.softmax, torch.softmax, torch.Tensor.softmax})
IN_PLACE = frozenset({
    torch.Tensor.mul_, torch.Tensor.__imul__, torch.Tensor.div_, torch.Tensor.__itruediv__, torch.Tensor.add_,
    torch.Tensor.__iadd__, torch.Tensor.sub_, torch.Tensor.__isub__, torch.Tensor.masked_fill_,
})  # fmt: skip
FOLLOWED = (
    _SCALING | _DIVIDING | _ADDING | _SUBTRACTING | _FILLING | _CHOOSING | _CASTING | _ARRANGING | _SOFTMAX
    | {functional.dropout}
)  # fmt: skip
_MATMUL = frozenset({
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm,
})  # fmt: skip
PRODUCTS = _MATMUL | {torch.einsum}


@dataclass(frozen=True, slots=True)
class Form:
    """`scale * query @ key.transpose(-1, -2) + bias`, and softmax of it where `soft`.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`. `bias` broadcasts to `(*lead, L, S)`, where `lead` are the
    leading sizes of the scores to which it was added: the same rows, perhaps arranged in another way. `fill` is the
    highest number that scores were replaced by; it was added to them instead. `filled` says where, in the shape of the
    bias; `added` whether the bias holds anything else.
    """

    query: torch.Tensor
    key: torch.Tensor
    scale: float = 1.0
    bias: torch.Tensor | None = None
    lead: tuple[int, ...] = ()
    fill: float = -math.inf
    filled: torch.Tensor | None = None
    added: bool = False
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """An operation on scores: from their elements and the sources to those of `alike`, with another form."""

    call: _AttentionCall
    sources: tuple[torch.Tensor, ...]
    alike: torch.Tensor
    form: Form


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that nobody can change; what a broadcast dimension repeats is copied once.

    A hook on the tensor sees the gradient of every repetition, as where all of them are copied.
    """
    if any(not stride and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        copied: torch.Tensor = _Copy.apply(tensor)
        return copied
    return tensor.clone()


class _Copy(torch.autograd.Function):  # type: ignore[misc]
    """The identity, by a copy of one element for each that is repeated."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.shape
        for number, stride in enumerate(tensor.stride()):
            if not stride and size[number] > 1:
                tensor = tensor.narrow(number, 0, 1)
        return tensor.clone().expand(size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent


def follow(function: Any, args: Any, kwargs: Any, place: int, alike: torch.Tensor, form: Form) -> Step | None:
    """One of FOLLOWED, as a step; None where the elements are needed. The scores are the argument at `place`."""
    if function in _ARRANGING:
        return _arranged(function, args, kwargs, alike, form) if place == 0 else None
    if function in _CASTING:
        return _cast(function, args, kwargs, alike, form) if place == 0 else None
    if function in _SOFTMAX:
        return _softmax(args, kwargs, alike, form) if place == 0 else None
    if form.soft:
        return None
    if function in _CHOOSING and len(args) == 3 and not kwargs:
        kept, other = args[1 - place], args[2]
        return _filled(lambda x, m, y: torch.where(m, x, y), kept, other, alike, form, True) if place < 2 else None
    if function in _FILLING and place == 0:
        given = [*args[1:], *(kwargs[name] for name in ("mask", "value") if name in kwargs)]
        if len(given) != 2:
            return None
        return _filled(lambda x, m, y: x.masked_fill(m, y), given[0], given[1], alike, form, False)
    if kwargs or len(args) != 2 or (place and function not in _SCALING | _ADDING):
        return None
    other = args[1 - place]
    if function in _SCALING | _DIVIDING:
        return _scaled(other, function in _DIVIDING, alike, form)
    return _added(other, function in _SUBTRACTING, alike, form)


def _broadcasts(other: Any, alike: torch.Tensor) -> bool:
    """Whether a tensor broadcasts to the scores without making them larger."""
    if not isinstance(other, torch.Tensor) or other.dim() > alike.dim():
        return False
    return all(own in (1, size) for own, size in zip(other.shape[::-1], alike.shape[::-1], strict=False))


def constant(one: Any) -> float | None:
    """A number of Python, or that of a tensor of no dimension on CPU which does not learn."""
    if isinstance(one, torch.Tensor) and not one.dim() and one.device.type == "cpu" and not one.requires_grad:
        one = one.item()
    return float(one) if isinstance(one, int | float) and not isinstance(one, bool) else None


def _scaled(other: Any, divides: bool, alike: torch.Tensor, form: Form) -> Step | None:
    def call(x: torch.Tensor, *factor: torch.Tensor) -> torch.Tensor:
        y = factor[0] if factor else other
        return x / y if divides else x * y

    number = constant(other)
    if number is not None:
        if not math.isfinite(number) or not number or not _is_lowest(form.fill, alike):
            return None
        scale = form.scale / number if divides else form.scale * number
        bias = form.bias if form.bias is None else (form.bias / number if divides else form.bias * number)
        return Step(call, (), alike, replace(form, scale=scale, bias=bias))
    if not _broadcasts(other, alike) or (other.dim() and (other.shape[-1] > 1 or other.dtype != alike.dtype)):
        return None
    if form.bias is not None or form.query.shape[:-2] != alike.shape[:-2] or not other.is_floating_point():
        return None
    other = snapshot(other)  # one factor for each row
    factor = other.to(form.query.dtype)
    return Step(call, (other,), alike, replace(form, query=form.query / factor if divides else form.query * factor))


def _added(other: Any, negated: bool, alike: torch.Tensor, form: Form) -> Step | None:
    if not _broadcasts(other, alike) or other.dtype != alike.dtype:
        return None
    if not _is_lowest(form.fill, alike) and (negated or not other.is_cpu or bool((other.detach() > 0).any())):
        return None  # it may raise what was filled
    placed = _place(form, alike)
    if placed is None:
        return None
    bias = placed.bias
    other = snapshot(other)
    added = -other if negated else other
    added = added if bias is None else bias + added
    return Step(
        lambda x, y: x - y if negated else x + y, (other,), alike,
        replace(placed, bias=added, added=True),
    )  # fmt: skip


def _filled(call: _AttentionCall, mask: Any, value: Any, alike: torch.Tensor, form: Form, kept: bool) -> Step | None:
    """Scores become a number so low that what is added to it is lost, or is lost by softmax: it is added instead."""
    number = constant(value)
    if number is None or not _broadcasts(mask, alike) or mask.dtype != torch.bool:
        return None
    if not _is_lowest(number, alike) and not mask.is_cpu:
        return None
    placed = _place(form, alike)
    if placed is None:
        return None
    bias = placed.bias
    mask = snapshot(mask)
    low = torch.full((), number, dtype=alike.dtype, device=mask.device)
    before = torch.zeros_like(low) if bias is None else bias
    filled = ~mask if kept else mask
    bias = torch.where(filled, low, before)
    filled = filled if placed.filled is None else filled | placed.filled
    return Step(
        lambda x, m: call(x, m, number), (mask,), alike,
        replace(placed, bias=bias, filled=filled, fill=max(form.fill, number)),
    )  # fmt: skip


def _is_lowest(number: float, alike: torch.Tensor) -> bool:
    """Whether a score that is added to a number of this dtype is lost."""
    return bool(number <= torch.finfo(alike.dtype).min)


def _is_drowned(form: Form) -> bool:
    """Whether softmax gives zero for every score that was replaced by a number, also where that was added instead.

    Scores lie within the product of the greatest lengths of a query and a key.
    """
    if _is_lowest(form.fill, form.query) or form.bias is None:
        return True
    query, key, bias = (one.detach() for one in (form.query, form.key, form.bias))
    reach = query.norm(dim=-1).max() * key.norm(dim=-1).max() * abs(form.scale)
    return bool(2 * reach + form.fill - bias.amax(-1).min() < _VANISHING)


def _place(form: Form, alike: torch.Tensor) -> Form | None:
    """The form with its bias in the leading sizes of the scores `alike`; None where that needs a copy."""
    lead = tuple(alike.shape[:-2])
    if form.bias is None or lead == form.lead:
        return replace(form, lead=lead)
    bias = _with_lead(form.bias, form.lead, lead)
    filled = None if form.filled is None else _with_lead(form.filled, form.lead, lead)
    if bias is None or (filled is None and form.filled is not None):
        return None
    return replace(form, bias=bias, filled=filled, lead=lead)


def _with_lead(mask: torch.Tensor, lead: tuple[int, ...], other: tuple[int, ...]) -> torch.Tensor | None:
    """What broadcasts to `(*lead, L, S)`, for scores with other leading sizes; None where that needs a copy."""
    own = (1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape)
    if all(size == 1 for size in own[:-2]):
        return mask.reshape(*(1 for _ in other), *own[-2:])
    return mask.reshape(*other, *own[-2:]) if own[:-2] == lead else None


def _cast(function: Any, args: Any, kwargs: Any, alike: torch.Tensor, form: Form) -> Step | None:
    dtype: Any = {torch.Tensor.float: torch.float32, torch.Tensor.double: torch.float64}.get(function)
    if dtype is None:
        given = [*args[1:], *kwargs.values()]
        if len(given) != 1 or not set(kwargs) <= {"dtype"}:
            return None
        dtype = given[0].dtype if function is torch.Tensor.type_as else given[0]
    if not _is_wide(dtype, form):
        return None
    return Step(lambda x: x.to(dtype), (), alike.to(dtype), form)


def _is_wide(dtype: Any, form: Form) -> bool:
    """Whether a dtype loses nothing that the query's keeps."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return False
    own: torch.dtype = form.query.dtype
    return dtype == own or bool(dtype.itemsize > own.itemsize)


def _softmax(args: Any, kwargs: Any, alike: torch.Tensor, form: Form) -> Step | None:
    names = {"dim": -1 if len(args) < 2 else args[1], **kwargs}
    dim, dtype = names.pop("dim"), names.pop("dtype", None)
    names.pop("_stacklevel", None)
    if names or (len(args) < 2 and "dim" not in kwargs) or len(args) > 2 or form.soft:
        return None
    if dim not in (-1, alike.dim() - 1) or not _is_wide(dtype or alike.dtype, form):
        return None
    return Step(
        lambda x: functional.softmax(x, dim=-1, dtype=dtype), (), alike.to(dtype or alike.dtype),
        replace(form, soft=True),
    )  # fmt: skip


def _arranged(function: Any, args: Any, kwargs: Any, alike: torch.Tensor, form: Form) -> Step | None:
    """The same rows with other leading sizes."""
    rest = args[1:]
    try:
        arranged = function(alike, *rest, **kwargs)
    except (RuntimeError, TypeError, IndexError):
        return None  # the tensor itself will say it
    if arranged.dim() < 2 or arranged.shape[-2:] != alike.shape[-2:] or not arranged.is_contiguous():
        return None
    return Step(lambda x: function(x, *rest, **kwargs), (), arranged, form)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of weights with a value `(..., S, V)`, and what makes the result of `(..., L, V)`."""

    value: torch.Tensor
    finish: _AttentionCall


def product_of(function: Any, args: Any, kwargs: Any, place: int, alike: torch.Tensor, form: Form) -> Product | None:
    """One of PRODUCTS with weights as the argument at `place`; None where it is not attention."""
    if kwargs or not form.soft or len(args) != 2 + (function is torch.einsum) or not _is_drowned(form):
        return None
    finish: _AttentionCall = lambda y: y  # noqa: E731
    if function is torch.einsum:
        terms = weighted_sum(args[0], place - 1)
        if terms is None or terms[0] != alike.dim() or args[3 - place].dim() != alike.dim():
            return None
        value, finish = args[3 - place].permute(terms[1]), lambda y: y.permute(terms[2])
    elif place:
        return None
    else:
        value = args[1]
    lead = alike.shape[:-2]
    if not isinstance(value, torch.Tensor) or value.dim() != alike.dim() or value.shape[-2] != alike.shape[-1]:
        return None
    if any(own not in (1, size) for own, size in zip(value.shape[:-2], lead, strict=True)) or not value.numel():
        return None
    if function in (torch.bmm, torch.Tensor.bmm) and (value.dim() != 3 or value.shape[0] != lead[0]):
        return None
    biased = form.bias is None or form.bias.dtype == form.query.dtype
    if not (value.dtype == alike.dtype == form.query.dtype) or value.device != form.query.device or not biased:
        return None
    return Product(value.expand(*lead, *value.shape[-2:]), finish)


def attend(form: Form, value: torch.Tensor) -> torch.Tensor:
    """The attention of a form, by PyTorch's kernel. Shapes: `value` is `(..., S, V)`, the result `(..., L, V)`."""
    shape = value.shape[:-2]
    lead = form.lead if form.bias is not None else tuple(shape)
    query, key, value = (_four(one.reshape(*lead, *one.shape[-2:])) for one in (form.query, form.key, value))
    size = (query.shape[-2], key.shape[-2])
    causal = form.bias is not None and is_causal(form.bias, size)

    def kernel(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=causal, scale=form.scale
        )

    if form.bias is None or causal:
        result = kernel(query, key, value)
    else:
        bias = _four_of_mask(form.bias, lead)
        filled = None if form.filled is None else _four_of_mask(form.filled, lead)
        result = attend_with_masked_rows(kernel, query, key, value, bias, filled, form.added, form.scale)
    return result.reshape(*shape, *result.shape[-2:])


def _four_of_mask(mask: torch.Tensor, lead: tuple[int, ...]) -> torch.Tensor:
    """A mask with four dimensions."""
    mask = mask.reshape((1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape))
    if len(lead) > 2 and any(one > 1 for one in mask.shape[1:-2]):
        mask = mask.expand(mask.shape[0], *lead[1:], *mask.shape[-2:])
    return _four(mask)


def _four(tensor: torch.Tensor) -> torch.Tensor:
    """With four dimensions, which the kernels take."""
    if tensor.dim() <= 4:
        return tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))
    return tensor.reshape(tensor.shape[0], -1, *tensor.shape[-2:])


def is_causal(bias: torch.Tensor, size: tuple[int, int]) -> bool:
    """Whether a mask on CPU hides from each of L queries the keys that come after it, and nothing else.

    On other devices its elements are not asked for: that would wait for them.
    """
    if bias.device.type != "cpu" or bias.requires_grad or tuple(bias.shape[-2:]) != size or size[0] != size[1]:
        return False
    lowest = torch.finfo(bias.dtype).min
    bias = bias.detach()
    if size[0] < 2 or bool((bias[..., -1, 0] != 0).any()) or bool((bias[..., 0, -1] > lowest).any()):
        return False
    seen = torch.ones(size, dtype=torch.bool).tril()
    return bool(torch.where(seen, bias == 0, bias <= lowest).all())


def weighted_sum(equation: Any, place: int) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """An equation that sums rows of a value with weights, which are the term at `place` of two.

    How many dimensions the weights have, how the value's are turned for a product of matrices, and the result's then.
    """
    terms = _terms(equation)
    if terms is None:
        return None
    weights, value, out = terms[place], terms[1 - place], terms[2]
    batch, row, column = weights[:-2], weights[-2:-1], weights[-1:]
    new = [one for one in value if one not in weights]
    if len(weights) < 2 or len(new) != 1 or set(value) != {*batch, column, *new} or set(out) != {*batch, row, *new}:
        return None
    turned = tuple(value.index(one) for one in (*batch, column, *new))
    made = (*batch, row, *new)
    return len(weights), turned, tuple(made.index(one) for one in out)


def scores_of(equation: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """An equation that makes scores of a query and a key.

    Which of its two terms is the query, how its dimensions are turned to `(..., L, E)`, and the key's to
    `(..., S, E)`.
    """
    terms = _terms(equation)
    if terms is None or len(terms[2]) < 2:
        return None
    *sides, out = terms
    batch, row, column = out[:-2], out[-2], out[-1]
    place = 0 if row in sides[0] else 1
    query, key = sides[place], sides[1 - place]
    summed = [one for one in query if one not in out]
    if len(summed) != 1 or set(query) != {*batch, row, *summed} or set(key) != {*batch, column, *summed}:
        return None
    return (
        place, tuple(query.index(one) for one in (*batch, row, *summed)),
        tuple(key.index(one) for one in (*batch, column, *summed)),
    )  # fmt: skip


def _terms(equation: Any) -> tuple[str, str, str] | None:
    """The two terms of an equation and its result, each of different letters."""
    if not isinstance(equation, str):
        return None
    left, arrow, out = equation.replace(" ", "").partition("->")
    first, comma, second = left.partition(",")
    terms = (first, second, out)
    plain = all(one.isalpha() and len(set(one)) == len(one) for one in terms)
    return terms if arrow and comma and plain else None
