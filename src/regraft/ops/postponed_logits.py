"""Postponed logits of a Linear layer, whose cross entropy is computed a few rows of logits at a
time."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.linear_sources import LinearSources, source_gradients
from regraft.ops.plain import is_transformed
from regraft.ops.postponed import PostponedTensor, autocast_dtype, creation_modes
from regraft.ops.rows_loss import RowsLoss, RowsLossOptions, RowsLossRecord

_Tensor = torch.Tensor
_Call = Callable[[torch.Tensor], torch.Tensor]
# Functions that compute each element from one element and constants, and functions that only select
# or arrange rows.
_ELEMENTWISE = frozenset(
    {
        _Tensor.float,
        _Tensor.to,
        _Tensor.mul,
        _Tensor.__mul__,
        _Tensor.__rmul__,
        torch.mul,
        _Tensor.div,
        _Tensor.__truediv__,
        torch.div,
        _Tensor.tanh,
        torch.tanh,
    }
)
_ROWS = frozenset(
    {_Tensor.view, _Tensor.reshape, torch.reshape, _Tensor.contiguous, _Tensor.__getitem__}
)
_STEPS = _ELEMENTWISE | _ROWS
# Functions for which the gradient of a loss by rows has to lead through the tensor.
_HOOKS = frozenset({_Tensor.register_hook, _Tensor.retain_grad, _Tensor.grad_fn.__get__})
# the parameters of `torch.nn.functional.cross_entropy` that calls give by position
_LOSS_PARAMETERS = (
    "input",
    "target",
    "weight",
    "size_average",
    "ignore_index",
    "reduce",
    "reduction",
)


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Family:
    """The Linear layer behind postponed tensors, and the tensors that were made of its output.

    sources  the layer's input and parameters
    cast     the dtype in which `torch.autocast` makes the layer compute; None outside of autocast
    members  weak references to the records of the tensors, in the order in which they were made
    losses   the losses that were computed by rows, each with the records (and their calls) that led
             to it
    """

    sources: LinearSources
    cast: torch.dtype | None
    members: list[weakref.ref[_Record]] = field(default_factory=list)
    losses: list[tuple[RowsLossRecord, list[tuple[weakref.ref[_Record], _Call | None]]]] = field(
        default_factory=list
    )

    def compute(self) -> None:
        """Compute all members in the order in which they were made, before any operation can change
        one of them."""
        with creation_modes(self.sources.tensors[0], self.cast):
            for member in [
                record for reference in self.members if (record := reference()) is not None
            ]:
                member.compute()

    def watch(self) -> None:
        """Lead the gradients of losses that were computed by rows through the tensors that are
        still referenced."""
        self.compute()
        with creation_modes(self.sources.tensors[0], self.cast):
            for loss, path in self.losses:
                scores: Any = None
                for reference, call in path:
                    record = reference()
                    if record is not None:
                        scores = record.compute()
                    elif call is not None:
                        scores = call(scores)
                loss.scores, loss.aliases = scores, self.sources.aliases


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Record:
    """The record of postponed logits.

    previous    the record of the tensor that `call` was applied to; None for the layer's output
    call        from the previous tensor to this one; None for the layer's output
    rows        the layer's input for the rows of this tensor
    selections  the calls that selected and arranged these rows
    steps       the calls that changed elements since the layer
    meta        a tensor on the meta device with the same shape, strides and dtype
    value       the elements; None until they are computed
    """

    family: _Family
    previous: _Record | None
    call: _Call | None
    rows: torch.Tensor
    selections: tuple[_Call, ...]
    steps: tuple[_Call, ...]
    meta: torch.Tensor
    value: torch.Tensor | None = None

    def path(self) -> list[tuple[weakref.ref[_Record], _Call | None]]:
        """Return the records from the layer's output to this one, each with its call."""
        return [*(self.previous.path() if self.previous else ()), (weakref.ref(self), self.call)]

    def compute(self) -> torch.Tensor:
        """Compute the elements, once, and return them."""
        if self.value is None:
            self.value = (
                self.call(self.previous.compute())
                if self.call and self.previous
                else self.family.sources.compute_output()
            )
        return self.value

    def can_defer(self) -> bool:
        """Return whether the elements are not computed yet, and autograd records without tracing
        and transforms."""
        return self.value is None and torch.is_grad_enabled() and not is_transformed()

    def make_tensor(self) -> torch.Tensor:
        """Make the postponed tensor of this record, and add the record to its family."""
        self.family.members.append(weakref.ref(self))
        result: torch.Tensor = _Edge.apply(self, *self.family.sources.tensors)
        return result

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        self.family.compute()
        return self.compute()

    def defer(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        return (
            _cross_entropy_by_rows(args, kwargs)
            if function is functional.cross_entropy
            else _defer_step(function, args, kwargs)
        )

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        if function in _HOOKS:
            self.family.watch()
        if function is torch.autograd.grad:
            _refuse_gradients(args[1] if len(args) > 1 else kwargs["inputs"])
        return False


class _Edge(torch.autograd.Function):  # type: ignore[misc]
    """The node of a postponed tensor in the graph, for other code that differentiates the tensor
    itself."""

    @staticmethod
    def forward(ctx: Any, record: _Record, *sources: torch.Tensor | None) -> torch.Tensor:
        ctx.record = record
        return PostponedTensor.of(record, record.meta, record.rows.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        record = ctx.record
        record.family.compute()
        return None, *source_gradients(
            record.compute(), record.family.sources.aliases, ctx.needs_input_grad[1:], gradient
        )


def postpone_logits(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return the output of a Linear layer with these parameters, postponed; `x` is `(..., H)`,
    `weight` `(C, H)`."""
    cast = autocast_dtype(x)
    family = _Family(LinearSources((x, weight, bias)), cast)
    meta = torch.empty(*x.shape[:-1], weight.shape[0], dtype=cast or x.dtype, device="meta")
    return _Record(family, None, None, x, (), (), meta).make_tensor()


def _logits_record(value: Any) -> _Record | None:
    """Return the record of postponed logits; None for any other value."""
    return (
        value.record
        if isinstance(value, PostponedTensor) and isinstance(value.record, _Record)
        else None
    )


def _refuse_gradients(inputs: Any) -> None:
    """Raise RuntimeError if an input of `torch.autograd.grad` is postponed and its loss was
    computed without it.

    Such gradients would be zero.
    """
    tensors = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    records = (_logits_record(tensor) for tensor in tensors)
    if any(record is not None and record.family.losses for record in records):
        raise RuntimeError("no gradient for logits whose loss was computed a few rows at a time")


def _defer_step(function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the result of a step on a postponed tensor, postponed as well; None if the step needs
    the elements."""
    previous, operands = _logits_record(args[0]) if args else None, args[1:]
    if function not in _STEPS or previous is None or not previous.can_defer():
        return None
    if not _are_constant(function, (*operands, *kwargs.values())):
        return None

    def call(tensor: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(tensor, *operands, **kwargs)
        return result

    try:
        meta = call(previous.meta)
    except (RuntimeError, TypeError, IndexError):
        return None  # the call on the real tensor will raise the error
    rows, selections, steps = previous.rows, previous.selections, previous.steps
    if function in _ELEMENTWISE:
        if not meta.is_floating_point() or meta.dtype == torch.float16:
            return None
        steps = (*steps, call)
    elif _keeps_rows(function, operands, previous.meta, meta):
        select = functools.partial(_select_rows, function, operands, meta)
        rows, selections = select(rows), (*selections, select)
    else:
        return None
    return _Record(previous.family, previous, call, rows, selections, steps, meta).make_tensor()


def _are_constant(function: Any, operands: tuple[Any, ...]) -> bool:
    """Return whether all operands of a step are Python constants, and none of a cast may be another
    device."""
    if not all(map(_is_constant, operands)):
        return False
    return function is not _Tensor.to or not any(
        isinstance(operand, int | str | torch.device) for operand in operands
    )


def _is_constant(value: Any) -> bool:
    """Return whether an argument of a step is a Python constant, or a tuple, list or slice of such
    constants."""
    if isinstance(value, tuple | list):
        return all(map(_is_constant, value))
    if isinstance(value, slice):
        return all(map(_is_constant, (value.start, value.stop, value.step)))
    return (
        value is None
        or value is ...
        or isinstance(value, bool | int | float | str | torch.dtype | torch.device)
    )


def _keeps_rows(
    function: Any, operands: Any, meta: torch.Tensor, result_meta: torch.Tensor
) -> bool:
    """Return whether a step keeps rows complete: the dtype and the last dimension stay, and an
    index does not select from the last dimension."""
    if result_meta.dtype != meta.dtype or result_meta.shape[-1:] != meta.shape[-1:]:
        return False
    if function is not torch.Tensor.__getitem__:
        return True
    index = operands[0] if isinstance(operands[0], tuple) else (operands[0],)
    if any(not (entry is ... or isinstance(entry, slice)) for entry in index):
        return False
    return (... in index and index[-1] == slice(None)) or (
        ... not in index and len(index) < meta.dim()
    )


def _select_rows(
    function: Any, operands: Any, meta: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Apply a step on logits of the shape of `meta` to the rows `(..., H)` from which they are
    computed."""
    with creation_modes(rows):
        if function is torch.Tensor.__getitem__:
            selected: torch.Tensor = rows[operands[0]]
            return selected
        return rows.reshape(*meta.shape[:-1], rows.shape[-1])


def _cross_entropy_by_rows(args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the cross entropy of a postponed tensor by rows; None if its elements are needed or
    already computed."""
    settings = dict(zip(_LOSS_PARAMETERS, args, strict=False)) | kwargs
    x, target = settings.pop("input"), settings.pop("target")
    ignore_index, reduction = settings.pop("ignore_index", -100), settings.pop("reduction", "mean")
    if not all(map(_is_default, settings.values())) or reduction not in ("mean", "sum"):
        return None  # class weights, label smoothing, or deprecated options of the reduction
    record = _logits_record(x)
    if record is None or type(target) is not torch.Tensor or not record.can_defer():
        return None
    if not _loss_takes_logits(x, record) or not _has_label_per_row(target, x):
        return None
    sources = record.family.sources
    if not sources.are_current():
        return None  # computing the output will raise the error
    _, weight, bias = sources.tensors
    row_loss = RowsLossRecord()
    record.family.losses.append((row_loss, record.path()))
    options = RowsLossOptions(
        record.selections,
        record.steps,
        ignore_index,
        reduction,
        x.dtype,
        record.family.cast,
        row_loss,
        weakref.ref(sources),
    )
    loss: torch.Tensor = RowsLoss.apply(record.rows, weight, bias, target, options)
    return loss


def _is_default(setting: Any) -> bool:
    """Return whether a setting of the cross entropy is None or the number 0.0, which changes no
    loss."""
    return setting is None or (isinstance(setting, float) and not setting)


def _loss_takes_logits(x: torch.Tensor, record: _Record) -> bool:
    """Return whether pending logits are `(N, C)`, for the current autocast, in a dtype that the
    loss by rows takes.

    Parts are added up in float32, and autocast would choose a dtype for the loss.
    """
    cast = record.family.cast
    if x.dim() != 2 or autocast_dtype(record.rows) != cast:
        return False
    return bool(x.dtype != torch.float64 if cast is None else x.dtype == torch.float32)


def _has_label_per_row(target: torch.Tensor, x: torch.Tensor) -> bool:
    """Return whether the target holds the number of a class for each of the rows, at least one, on
    their device."""
    return (
        target.dtype == torch.int64
        and target.shape == x.shape[:1]
        and target.device == x.device
        and len(target) > 0
    )
