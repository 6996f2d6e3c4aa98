"""Logits that are computed when somebody looks at them, and the cross entropy that never needs all of them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.cross_entropy import cross_entropy
from regraft.ops.plain import is_transformed
from regraft.ops.postponed import PostponedTensor, as_made, autocast_dtype

_Tensor = torch.Tensor
_Call = Callable[[torch.Tensor], torch.Tensor]
# What computes each element from the same one, with a number at the most, and what only chooses or arranges rows.
_ELEMENTWISE = frozenset({
    _Tensor.float, _Tensor.to, _Tensor.mul, _Tensor.__mul__, _Tensor.__rmul__, torch.mul, _Tensor.div,
    _Tensor.__truediv__, torch.div, _Tensor.tanh, torch.tanh,
})  # fmt: skip
_ROWS = frozenset({_Tensor.view, _Tensor.reshape, torch.reshape, _Tensor.contiguous, _Tensor.__getitem__})
# What a loss by rows has to be led through the tensor for.
_HOOKS = frozenset({_Tensor.register_hook, _Tensor.retain_grad, _Tensor.grad_fn.__get__})


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Family:
    """The Linear layer behind postponed tensors, and those made of its output that somebody still holds.

    sources  its input, weight and bias, with their versions
    cast     the dtype in which `torch.autocast` makes it compute, None outside of that
    aliases  what it was computed of: views of the sources, of which none leads to another
    losses   those that were computed by rows, each with the tensors that led to it
    sums     of the sources when a loss was differentiated: some optimizers write past the versions
    """

    sources: tuple[torch.Tensor | None, ...]
    versions: tuple[int, ...]
    cast: torch.dtype | None
    members: list[weakref.ref[_Record]] = field(default_factory=list)
    aliases: tuple[torch.Tensor | None, ...] = ()
    losses: list[tuple[_Loss, list[tuple[weakref.ref[_Record], _Call | None]]]] = field(default_factory=list)
    sums: list[torch.Tensor] | None = None

    def root(self) -> torch.Tensor:
        changed = self.versions != _versions(self.sources) or (self.sums and self.sums != _sums(self.sources))
        if changed or any(one is not None and not one.untyped_storage().size() for one in self.sources):
            raise RuntimeError("the input or the parameters of a postponed Linear layer were changed in place")
        x, weight, bias = self.aliases = tuple(one if one is None else one.view_as(one) for one in self.sources)
        return functional.linear(x, weight, bias)

    def compute(self) -> None:
        """Compute all members, in the order in which they were made, before anything can change one of them."""
        with as_made(self.sources[0], self.cast):
            for member in [found for one in self.members if (found := one()) is not None]:
                member.compute()

    def watch(self) -> None:
        """Lead the losses that were computed by rows through the tensors that somebody holds."""
        self.compute()
        with as_made(self.sources[0], self.cast):
            for loss, path in self.losses:
                scores: Any = None
                for reference, call in path:
                    record = reference()
                    if record is not None:
                        scores = record.compute()
                    elif call is not None:
                        scores = call(scores)
                loss.scores, loss.aliases = scores, self.aliases


@dataclass(slots=True, eq=False)
class _Loss:
    """A loss that was computed by rows: its logits, and what they were computed of, once somebody watches them."""

    scores: torch.Tensor | None = None
    aliases: tuple[torch.Tensor | None, ...] = ()


def _slopes(
    result: torch.Tensor, aliases: tuple[torch.Tensor | None, ...], needed: tuple[bool, ...], gradient: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of what was computed of a layer's output for the layer's sources, where they are needed."""
    wanted = [one for one, need in zip(aliases, needed, strict=True) if need and one is not None]
    slopes = iter(torch.autograd.grad(result, wanted, gradient, True, torch.is_grad_enabled()))
    return tuple(next(slopes) if need else None for need in needed)


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Record:
    """How a postponed tensor is made.

    call   from the tensor before, None for the layer's output itself
    rows   the layer's input for the rows of this tensor, which the picks chose and arranged
    steps  what was done to elements since the layer
    alike  a tensor without elements with the same shape, strides and dtype
    """

    family: _Family
    before: _Record | None
    call: _Call | None
    rows: torch.Tensor
    picks: tuple[_Call, ...]
    steps: tuple[_Call, ...]
    alike: torch.Tensor
    value: torch.Tensor | None = None

    def path(self) -> list[tuple[weakref.ref[_Record], _Call | None]]:
        return [*(self.before.path() if self.before else ()), (weakref.ref(self), self.call)]

    def compute(self) -> torch.Tensor:
        if self.value is None:
            self.value = self.call(self.before.compute()) if self.call and self.before else self.family.root()
        return self.value

    def tensor(self) -> torch.Tensor:
        self.family.members.append(weakref.ref(self))
        result: torch.Tensor = _Edge.apply(self, *self.family.sources)
        return result

    def plain(self, tensor: PostponedTensor) -> torch.Tensor:
        self.family.compute()
        return self.compute()

    def later(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        return _fused(args, kwargs) if function is functional.cross_entropy else _later(function, args, kwargs)

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        if function in _HOOKS:
            self.family.watch()
        if function is torch.autograd.grad:
            _refuse(args[1] if len(args) > 1 else kwargs["inputs"])
        return False


class _Edge(torch.autograd.Function):  # type: ignore[misc]
    """Leads gradients to the layer where a postponed tensor itself is differentiated, as by functions of others."""

    @staticmethod
    def forward(ctx: Any, record: _Record, *sources: torch.Tensor | None) -> torch.Tensor:
        ctx.record = record
        return PostponedTensor.of(record, record.alike, record.rows.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        record = ctx.record
        record.family.compute()
        return None, *_slopes(record.compute(), record.family.aliases, ctx.needs_input_grad[1:], gradient)


def postponed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The output of a Linear layer with these parameters, postponed."""
    cast = autocast_dtype(x)
    family = _Family((x, weight, bias), _versions((x, weight, bias)), cast)
    alike = torch.empty(*x.shape[:-1], weight.shape[0], dtype=cast or x.dtype, device="meta")
    return _Record(family, None, None, x, (), (), alike).tensor()


def _versions(tensors: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
    return tuple(one._version for one in tensors if one is not None)


def _sums(tensors: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    """A number for the bits of each tensor."""
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return [one.detach().view(bits[one.itemsize]).sum(dtype=torch.int64) for one in tensors if one is not None]


def _record_of(one: Any) -> _Record | None:
    """How logits are made; None for any other tensor."""
    return one.record if isinstance(one, PostponedTensor) and isinstance(one.record, _Record) else None


def _refuse(inputs: Any) -> None:
    """Gradients for a postponed tensor, of a loss that was computed without it, would be zero."""
    given = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    records = (_record_of(one) for one in given)
    if any(record is not None and record.family.losses for record in records):
        raise RuntimeError("no gradient for logits whose loss was computed a few rows at a time")


def _later(function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The result of a step on a postponed tensor, postponed as well; None where the step needs the elements."""
    before, rest = _record_of(args[0]) if args else None, args[1:]
    if function not in _ELEMENTWISE | _ROWS or before is None:
        return None
    given = (*rest, *kwargs.values())
    if before.value is not None or not torch.is_grad_enabled() or is_transformed() or not all(map(_is_fixed, given)):
        return None

    def call(tensor: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(tensor, *rest, **kwargs)
        return result

    if function is _Tensor.to and any(isinstance(one, int | str | torch.device) for one in given):
        return None  # to another device, perhaps
    try:
        alike = function(before.alike, *rest, **kwargs)
    except (RuntimeError, TypeError, IndexError):
        return None  # the tensor itself will say it
    rows, picks, steps = before.rows, before.picks, before.steps
    if function in _ELEMENTWISE:
        if not alike.is_floating_point() or alike.dtype == torch.float16:
            return None
        steps = (*steps, call)
    elif alike.dtype != before.alike.dtype or not _keeps_rows(function, rest, before.alike, alike):
        return None
    else:
        pick = functools.partial(_rows, function, rest, alike)
        rows, picks = pick(rows), (*picks, pick)
    return _Record(before.family, before, call, rows, picks, steps, alike).tensor()


def _is_fixed(one: Any) -> bool:
    """Whether an argument of a step is a constant of Python."""
    if isinstance(one, tuple | list):
        return all(map(_is_fixed, one))
    if isinstance(one, slice):
        return all(map(_is_fixed, (one.start, one.stop, one.step)))
    return one is None or one is ... or isinstance(one, bool | int | float | str | torch.dtype | torch.device)


def _keeps_rows(function: Any, rest: Any, before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether rows stay whole: the last dimension does, and an index leaves it out or takes all of it."""
    if after.shape[-1:] != before.shape[-1:]:
        return False
    if function is not torch.Tensor.__getitem__:
        return True
    index = rest[0] if isinstance(rest[0], tuple) else (rest[0],)
    if any(not (one is ... or isinstance(one, slice)) for one in index):
        return False
    return (... in index and index[-1] == slice(None)) or (... not in index and len(index) < before.dim())


def _rows(function: Any, rest: Any, alike: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    with as_made(rows):
        if function is torch.Tensor.__getitem__:
            chosen: torch.Tensor = rows[rest[0]]
            return chosen
        return rows.reshape(*alike.shape[:-1], rows.shape[-1])


def _fused(args: Any, kwargs: Any) -> torch.Tensor | None:
    """The cross entropy of a postponed tensor by rows; None where it has to be computed, or was."""
    given = dict(
        zip(("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"), args, strict=False)
    )
    given |= kwargs
    x, target = given.pop("input"), given.pop("target")
    ignored, reduction = given.pop("ignore_index", -100), given.pop("reduction", "mean")
    plain = all(one is None or (isinstance(one, float) and not one) for one in given.values())
    if not plain or reduction not in ("mean", "sum"):
        return None  # class weights, label smoothing, and old ways to say the reduction
    record = _record_of(x)
    if record is None or type(target) is not torch.Tensor or not torch.is_grad_enabled():
        return None
    family = record.family
    if record.value is not None or is_transformed() or x.dim() != 2 or autocast_dtype(record.rows) != family.cast:
        return None
    if x.dtype == torch.float64 or (family.cast is not None and x.dtype != torch.float32):
        return None  # parts are added up in float32, and autocast would choose a dtype for the loss
    if target.dtype != torch.int64 or target.shape != x.shape[:1] or target.device != x.device or not len(target):
        return None
    if family.versions != _versions(family.sources):
        return None  # computing it will say so
    _, weight, bias = family.sources
    watched = _Loss()
    family.losses.append((watched, record.path()))
    options = _Options(
        record.picks, record.steps, ignored, reduction, x.dtype, family.cast, watched, weakref.ref(family)
    )
    loss: torch.Tensor = _RowsLoss.apply(record.rows, weight, bias, target, options)
    return loss


@dataclass(frozen=True, slots=True)
class _Options:
    picks: tuple[_Call, ...]
    steps: tuple[_Call, ...]
    ignored: int
    reduction: str
    dtype: torch.dtype
    cast: torch.dtype | None
    watched: _Loss
    family: weakref.ref[_Family]


class _RowsLoss(torch.autograd.Function):  # type: ignore[misc]
    """Cross entropy of `steps(linear(rows))` with its gradients, some rows at a time, as in Liger's fused loss."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor,
        options: _Options,
    ) -> torch.Tensor:  # fmt: skip
        given = (rows, weight, bias)
        with torch.autocast(rows.device.type, enabled=False):
            cast = [one if one is None else one.to(options.cast or one.dtype) for one in given]
            loss, slopes = _loss_and_slopes(cast, ctx.needs_input_grad[:3], target, options)
        slopes = [s if s is None else s.to(one.dtype) for s, one in zip(slopes, given, strict=True)]
        ctx.options = options
        ctx.save_for_backward(target, *slopes)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("derivative for liger_backward is not implemented")
        options, (target, *slopes) = ctx.options, ctx.saved_tensors
        family, scores = options.family(), options.watched.scores
        if family is not None and family.sums is None:
            family.sums = _sums(family.sources)
        if scores is not None:
            with torch.enable_grad():
                loss = functional.cross_entropy(
                    scores, target, ignore_index=options.ignored, reduction=options.reduction
                )
            slopes = list(_slopes(loss, options.watched.aliases, ctx.needs_input_grad[:3], gradient))
            for pick in options.picks if slopes[0] is not None else ():
                slopes[0] = pick(slopes[0])
            return *slopes, None, None
        return *(None if one is None else one * gradient for one in slopes), None, None


def _loss_and_slopes(
    given: list[Any], needed: tuple[bool, ...], target: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, list[Any]]:
    """The loss of all rows, and its gradients in float32 for rows, weight and bias where they are needed."""
    rows, weight, bias = given
    counts = target != options.ignored
    known = ~counts | ((target >= 0) & (target < len(weight)))
    torch._assert_async(known.all(), "a target is out of bounds")
    number = counts.sum() if options.reduction == "mean" else target.new_ones(())
    # sums of many parts
    slopes = [
        torch.zeros_like(one, dtype=torch.float32) if need else None for one, need in zip(given, needed, strict=True)
    ]
    total = torch.zeros((), dtype=torch.float32, device=rows.device)
    size = rows_at_once(len(rows), weight.shape[1], len(weight))
    for start in range(0, len(rows), size):
        some, labels = rows[start : start + size], target[start : start + size]
        loss, slope = _some_rows(functional.linear(some, weight, bias), labels, number.clamp(min=1), options)
        total += loss
        if slopes[0] is not None:
            slopes[0][start : start + size] = slope @ weight
        if slopes[1] is not None:
            slopes[1] += slope.t() @ some
        if slopes[2] is not None:
            slopes[2] += slope.sum(0)
    return (total / (number > 0)).to(options.dtype), slopes  # nothing but ignored rows is not a number


def _some_rows(
    logits: torch.Tensor, target: torch.Tensor, number: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """The share of some rows in the loss, and its gradient for what the Linear layer gives."""
    # what others do with saved tensors (checkpoints compute them again) is not for a graph that ends here
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda one: one):
        logits.requires_grad_()
        scores = logits
        for step in options.steps:
            scores = step(scores)
        losses = cross_entropy(scores, target, ignore_index=options.ignored, reduction="none")
        loss = losses.sum(dtype=torch.float32) / number
        (slope,) = torch.autograd.grad(loss, logits)
    return loss.detach(), slope


def rows_at_once(rows: int, features: int, classes: int) -> int:
    """How many rows of scores take about as much memory as the layer's input, a power of two."""
    wanted = -(-rows // -(-classes // features))
    return 1 << (wanted - 1).bit_length()
