"""Postponed logits of a Linear layer, and their cross entropy, which is computed a few rows of
logits at a time."""

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
from regraft.ops.postponed import PostponedTensor, autocast_dtype, creation_modes

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
# Functions for which the gradient of a loss by rows has to lead through the tensor.
_HOOKS = frozenset({_Tensor.register_hook, _Tensor.retain_grad, _Tensor.grad_fn.__get__})


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Family:
    """The Linear layer behind postponed tensors, and the tensors that were made of its output.

    sources   the layer's input, weight and bias versions  the version counters of the sources when
    the output was postponed cast      the dtype in which `torch.autocast` makes the layer compute;
    None outside of autocast members   weak references to the records of the tensors, in the order
    in which they were made aliases   the views of the sources from which the output was computed;
    no view leads to another in the graph losses    the losses that were computed by rows, each with
    the records (and their calls) that led to it bit_sums  a checksum of each source when a loss was
    differentiated, because some optimizers write past the versions
    """

    sources: tuple[torch.Tensor | None, ...]
    versions: tuple[int, ...]
    cast: torch.dtype | None
    members: list[weakref.ref[_Record]] = field(default_factory=list)
    aliases: tuple[torch.Tensor | None, ...] = ()
    losses: list[tuple[_Loss, list[tuple[weakref.ref[_Record], _Call | None]]]] = field(
        default_factory=list
    )
    bit_sums: list[torch.Tensor] | None = None

    def layer_output(self) -> torch.Tensor:
        """Compute the layer's output; RuntimeError if a source was changed in place or its memory
        was freed."""
        changed = self.versions != _versions(self.sources) or (
            self.bit_sums and self.bit_sums != _bit_sums(self.sources)
        )
        if changed or any(
            source is not None and not source.untyped_storage().size() for source in self.sources
        ):
            raise RuntimeError(
                "the input or the parameters of a postponed Linear layer were changed in place"
            )
        x, weight, bias = self.aliases = tuple(
            source if source is None else source.view_as(source) for source in self.sources
        )
        return functional.linear(x, weight, bias)

    def compute(self) -> None:
        """Compute all members in the order in which they were made, before any operation can change
        one of them."""
        with creation_modes(self.sources[0], self.cast):
            for member in [
                record for reference in self.members if (record := reference()) is not None
            ]:
                member.compute()

    def watch(self) -> None:
        """Lead the gradients of losses that were computed by rows through the tensors that are
        still referenced."""
        self.compute()
        with creation_modes(self.sources[0], self.cast):
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
    """A loss that was computed by rows.

    scores   the logits of the loss; None until their gradients are watched
    aliases  the views of the sources from which the logits were computed
    """

    scores: torch.Tensor | None = None
    aliases: tuple[torch.Tensor | None, ...] = ()


def _source_gradients(
    result: torch.Tensor,
    aliases: tuple[torch.Tensor | None, ...],
    needed: tuple[bool, ...],
    gradient: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of a layer's sources, where they are needed, for a result that depends
    on its output."""
    differentiated = [
        alias
        for alias, is_needed in zip(aliases, needed, strict=True)
        if is_needed and alias is not None
    ]
    gradients = iter(
        torch.autograd.grad(result, differentiated, gradient, True, torch.is_grad_enabled())
    )
    return tuple(next(gradients) if is_needed else None for is_needed in needed)


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Record:
    """The record of postponed logits.

    previous    the record of the tensor that `call` was applied to; None for the layer's output
    itself call        from the previous tensor to this one; None for the layer's output itself rows
    the layer's input for the rows of this tensor selections  the calls that selected and arranged
    these rows steps       the calls that changed elements since the layer meta        a tensor on
    the meta device with the same shape, strides and dtype value       the elements; None until they
    are computed
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
                else self.family.layer_output()
            )
        return self.value

    def make_tensor(self) -> torch.Tensor:
        """Make the postponed tensor of this record, and add the record to its family."""
        self.family.members.append(weakref.ref(self))
        result: torch.Tensor = _Edge.apply(self, *self.family.sources)
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
        return None, *_source_gradients(
            record.compute(), record.family.aliases, ctx.needs_input_grad[1:], gradient
        )


def postpone_logits(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return the output of a Linear layer with these parameters, postponed; `x` is `(..., H)`,
    `weight` `(C, H)`."""
    cast = autocast_dtype(x)
    family = _Family((x, weight, bias), _versions((x, weight, bias)), cast)
    meta = torch.empty(*x.shape[:-1], weight.shape[0], dtype=cast or x.dtype, device="meta")
    return _Record(family, None, None, x, (), (), meta).make_tensor()


def _versions(tensors: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
    """Return the version counters of the tensors, without those that are None."""
    return tuple(tensor._version for tensor in tensors if tensor is not None)


def _bit_sums(tensors: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    """Return the sum of each tensor's bits read as integers, a checksum of its elements."""
    integer_dtypes = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return [
        tensor.detach().view(integer_dtypes[tensor.itemsize]).sum(dtype=torch.int64)
        for tensor in tensors
        if tensor is not None
    ]


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
    if function not in _ELEMENTWISE | _ROWS or previous is None:
        return None
    constants = (*operands, *kwargs.values())
    if (
        previous.value is not None
        or not torch.is_grad_enabled()
        or is_transformed()
        or not all(map(_is_constant, constants))
    ):
        return None

    def call(tensor: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(tensor, *operands, **kwargs)
        return result

    if function is _Tensor.to and any(
        isinstance(constant, int | str | torch.device) for constant in constants
    ):
        return None  # the argument may be another device
    try:
        meta = function(previous.meta, *operands, **kwargs)
    except (RuntimeError, TypeError, IndexError):
        return None  # the call on the real tensor will raise the error
    rows, selections, steps = previous.rows, previous.selections, previous.steps
    if function in _ELEMENTWISE:
        if not meta.is_floating_point() or meta.dtype == torch.float16:
            return None
        steps = (*steps, call)
    elif meta.dtype != previous.meta.dtype or not _keeps_rows(
        function, operands, previous.meta, meta
    ):
        return None
    else:
        select = functools.partial(_select_rows, function, operands, meta)
        rows, selections = select(rows), (*selections, select)
    return _Record(previous.family, previous, call, rows, selections, steps, meta).make_tensor()


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
    """Return whether a step keeps rows whole: the last dimension stays, and an index does not
    select from it."""
    if result_meta.shape[-1:] != meta.shape[-1:]:
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
    settings = dict(
        zip(
            ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
            args,
            strict=False,
        )
    )
    settings |= kwargs
    x, target = settings.pop("input"), settings.pop("target")
    ignore_index, reduction = settings.pop("ignore_index", -100), settings.pop("reduction", "mean")
    are_default = all(
        value is None or (isinstance(value, float) and not value) for value in settings.values()
    )
    if not are_default or reduction not in ("mean", "sum"):
        return None  # class weights, label smoothing, or deprecated options of the reduction
    record = _logits_record(x)
    if record is None or type(target) is not torch.Tensor or not torch.is_grad_enabled():
        return None
    family = record.family
    if (
        record.value is not None
        or is_transformed()
        or x.dim() != 2
        or autocast_dtype(record.rows) != family.cast
    ):
        return None
    if x.dtype == torch.float64 or (family.cast is not None and x.dtype != torch.float32):
        return None  # parts are added up in float32, and autocast would choose a dtype for the loss
    if (
        target.dtype != torch.int64
        or target.shape != x.shape[:1]
        or target.device != x.device
        or not len(target)
    ):
        return None
    if family.versions != _versions(family.sources):
        return None  # computing the output will raise the error
    _, weight, bias = family.sources
    row_loss = _Loss()
    family.losses.append((row_loss, record.path()))
    options = _Options(
        record.selections,
        record.steps,
        ignore_index,
        reduction,
        x.dtype,
        family.cast,
        row_loss,
        weakref.ref(family),
    )
    loss: torch.Tensor = _RowsLoss.apply(record.rows, weight, bias, target, options)
    return loss


@dataclass(frozen=True, slots=True)
class _Options:
    """The settings of a loss by rows, with its selections and steps from the record of its
    logits."""

    selections: tuple[_Call, ...]
    steps: tuple[_Call, ...]
    ignore_index: int
    reduction: str
    dtype: torch.dtype
    cast: torch.dtype | None
    row_loss: _Loss
    family: weakref.ref[_Family]


class _RowsLoss(torch.autograd.Function):  # type: ignore[misc]
    """The cross entropy of `steps(linear(rows))` and its gradients, some rows at a time, as in
    Liger's fused loss."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target: torch.Tensor,
        options: _Options,
    ) -> torch.Tensor:
        sources = (rows, weight, bias)
        with torch.autocast(rows.device.type, enabled=False):
            converted = [
                source if source is None else source.to(options.cast or source.dtype)
                for source in sources
            ]
            loss, gradients = _loss_and_gradients(
                converted, ctx.needs_input_grad[:3], target, options
            )
        gradients = [
            source_gradient if source_gradient is None else source_gradient.to(source.dtype)
            for source_gradient, source in zip(gradients, sources, strict=True)
        ]
        ctx.options = options
        ctx.save_for_backward(target, *gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("derivative for liger_backward is not implemented")
        options, (target, *gradients) = ctx.options, ctx.saved_tensors
        family, scores = options.family(), options.row_loss.scores
        if family is not None and family.bit_sums is None:
            family.bit_sums = _bit_sums(family.sources)
        if scores is not None:
            with torch.enable_grad():
                loss = functional.cross_entropy(
                    scores, target, ignore_index=options.ignore_index, reduction=options.reduction
                )
            gradients = list(
                _source_gradients(
                    loss, options.row_loss.aliases, ctx.needs_input_grad[:3], gradient
                )
            )
            for select in options.selections if gradients[0] is not None else ():
                gradients[0] = select(gradients[0])
            return *gradients, None, None
        return *(None if saved is None else saved * gradient for saved in gradients), None, None


def _loss_and_gradients(
    sources: list[Any], needed: tuple[bool, ...], target: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, list[Any]]:
    """Compute the loss of all rows, and its gradients in float32 for rows, weight and bias where
    they are needed."""
    rows, weight, bias = sources
    is_counted = target != options.ignore_index
    is_valid = ~is_counted | ((target >= 0) & (target < len(weight)))
    torch._assert_async(is_valid.all(), "a target is out of bounds")
    count = is_counted.sum() if options.reduction == "mean" else target.new_ones(())
    # in float32, because they are sums of many parts
    gradients = [
        torch.zeros_like(source, dtype=torch.float32) if is_needed else None
        for source, is_needed in zip(sources, needed, strict=True)
    ]
    total = torch.zeros((), dtype=torch.float32, device=rows.device)
    chunk_size = rows_at_once(len(rows), weight.shape[1], len(weight))
    for start in range(0, len(rows), chunk_size):
        chunk, labels = rows[start : start + chunk_size], target[start : start + chunk_size]
        loss, logits_gradient = _chunk_loss_and_gradient(
            functional.linear(chunk, weight, bias), labels, count.clamp(min=1), options
        )
        total += loss
        if gradients[0] is not None:
            gradients[0][start : start + chunk_size] = logits_gradient @ weight
        if gradients[1] is not None:
            gradients[1] += logits_gradient.t() @ chunk
        if gradients[2] is not None:
            gradients[2] += logits_gradient.sum(0)
    # the mean is NaN if all rows are ignored
    return (total / (count > 0)).to(options.dtype), gradients


def _chunk_loss_and_gradient(
    logits: torch.Tensor, target: torch.Tensor, count: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the share of a chunk of rows in the loss, and its gradient for the logits of the
    Linear layer."""
    # hooks on saved tensors (checkpoints use them to compute tensors again) are not for this graph,
    # which ends here
    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda tensor: tensor),
    ):
        logits.requires_grad_()
        scores = logits
        for step in options.steps:
            scores = step(scores)
        losses = cross_entropy(scores, target, ignore_index=options.ignore_index, reduction="none")
        loss = losses.sum(dtype=torch.float32) / count
        (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def rows_at_once(rows: int, features: int, classes: int) -> int:
    """Return the number of rows, a power of two, whose logits take about as much memory as the
    layer's input."""
    row_count = -(-rows // -(-classes // features))
    return 1 << (row_count - 1).bit_length()
