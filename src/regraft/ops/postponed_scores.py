"""Postponed scores of attention, whose elements are computed only if an operation other than
attention needs them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.attention_form import Form, snapshot
from regraft.ops.attention_product import PRODUCTS, Product, attend, attention_product
from regraft.ops.attention_steps import FOLLOWED, IN_PLACE, follow
from regraft.ops.plain import NUMBERS, are_tensors, is_transformed
from regraft.ops.postponed import PostponedTensor, creation_modes, materialise

_NO_DERIVATIVE = "derivative for postponed_scores_backward is not implemented"
_OVERWRITTEN = (
    "scores of attention that are needed for gradients were modified by an inplace operation"
)


@dataclass(frozen=True, slots=True)
class _Modes:
    """The device of scores, and the modes of autograd in which they were made."""

    device: torch.device
    gradients: bool
    inference: bool

    def are_current(self) -> bool:
        """Return whether these modes are the current ones, without tracing, transforms or
        autocast."""
        return (
            self == current_modes(self.device)
            and not is_transformed()
            and not torch.is_autocast_enabled(self.device.type)
        )


def current_modes(device: torch.device) -> _Modes:
    """Return the current modes for scores on a device."""
    return _Modes(device, torch.is_grad_enabled(), torch.is_inference_mode_enabled())


@dataclass(slots=True, eq=False)
class _ScoresFamily:
    """The scores of one query and key, with all postponed tensors that were made of these scores.

    records   weak references to the records of the tensors, in the order in which they were made
    products  records of weights that were multiplied by a value with gradients: these gradients
              lead through the weights once the gradients of any of the tensors are watched
    """

    modes: _Modes
    records: list[weakref.ref[_Scores]] = field(default_factory=list)
    products: list[_Scores] = field(default_factory=list)

    def compute(self) -> None:
        """Compute all tensors that are still referenced, before any operation can change one of
        them."""
        live_records = [record for reference in self.records if (record := reference()) is not None]
        with creation_modes(
            self.modes, None, self.modes.gradients and not self.products, self.modes.inference
        ):
            for live_record in live_records:
                live_record.compute()
        for live_record in live_records:
            if live_record.tensor() is None:
                live_record.value = None

    def is_shared(self, tensor: PostponedTensor) -> bool:
        """Return whether another tensor of the family exists, which a change of this tensor may
        change."""
        live_tensors = (
            record.tensor() for reference in self.records if (record := reference()) is not None
        )
        return any(
            live_tensor is not None and live_tensor is not tensor for live_tensor in live_tensors
        )


class _Keeper:
    """The reference of a node in the graph to its scores.

    record   the record of the scores; None until their elements are read
    watched  whether gradients of the scores are watched, by hooks or `retain_grad`
    """

    __slots__ = ("__weakref__", "record", "watched")

    def __init__(self) -> None:
        self.record: _Scores | None = None
        self.watched = False


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Scores:
    """The record of postponed scores.

    previous  the record of the scores that this step was applied to; None for the product of a
              query and a key
    call      from the elements of `previous`, if there is one, and the sources to the elements
    sources   the tensors that `call` reads; no other code can change them
    meta      a tensor on the meta device with the same shape and dtype
    form      the scores as arguments of a kernel
    value     the elements; None until they are computed
    version   the version counter of the value when it was computed
    tensor    returns the postponed tensor; None when it is freed
    keeper    returns the keeper of the node in the graph; None without a node
    """

    modes: _Modes
    previous: _Scores | None
    call: Callable[..., torch.Tensor]
    sources: tuple[torch.Tensor, ...]
    meta: torch.Tensor
    form: Form
    value: torch.Tensor | None = None
    version: int = 0
    tensor: Callable[[], PostponedTensor | None] = lambda: None
    keeper: Callable[[], _Keeper | None] = lambda: None

    def compute(self) -> torch.Tensor:
        """Compute the elements, once, and return them."""
        if self.value is None:
            inputs = (self.previous.compute(),) if self.previous is not None else ()
            self.value = self.call(*inputs, *self.sources)
            self.version = 0 if self.value.is_inference() else self.value._version
        return self.value

    def unchanged_elements(self) -> torch.Tensor:
        """Return the elements without their graph; RuntimeError if they were modified in place."""
        value = self.compute()
        if value._version != self.version:
            raise RuntimeError(_OVERWRITTEN)
        return value.detach()

    def pin(self) -> None:
        """Make the graph keep the records that gradients of this tensor need."""
        record: _Scores | None = self
        while record is not None:
            keeper = record.keeper()
            if keeper is not None:
                keeper.record = record
            record = record.previous

    def has_own_node(self, tensor: PostponedTensor) -> bool:
        """Return whether the tensor has the node in the graph with which it was made.

        A `torch.autograd.Function` of other code may return the tensor with another node.
        """
        with torch._C.DisableTorchFunctionSubclass():
            node = tensor.grad_fn
        return (
            self.keeper() is None
            if node is None
            else getattr(node, "_forward_cls", None) is _ScoresEdge
        )

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        state = tensor.__dict__
        if "moved" in state:
            moved: torch.Tensor = materialise(state["moved"])
            return moved
        self.pin()
        state["family"].compute()
        value = self.compute()
        if self.has_own_node(tensor) and (not state["family"].products or self.keeper() is None):
            return value
        if "ordinary" not in state:
            with creation_modes(self.modes):
                state["ordinary"] = _Ordinary.apply(self, tensor)
        ordinary: torch.Tensor = state["ordinary"]
        return ordinary

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        products = tensor.__dict__["family"].products
        for record in (*products, self):
            record.pin()
        for record in products:
            keeper = record.keeper()
            if keeper is not None:
                keeper.watched = True
        return bool(products) and self.keeper() is not None and self.has_own_node(tensor)

    def defer(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        if function not in FOLLOWED and function not in PRODUCTS:
            return None
        position = _scores_position(args, kwargs)
        if position is None:
            return None
        args = [
            argument if index == position else materialise(argument)
            for index, argument in enumerate(args)
        ]
        tensor = _moved_tensor(args[position])
        record: Any = tensor.record
        if record.value is not None or not self.modes.are_current():
            return None
        operands = (
            argument for argument in (*args, *kwargs.values()) if argument is not args[position]
        )
        if not all(map(self.accepts, operands)) or not record.has_own_node(tensor):
            return None
        if function in PRODUCTS:
            product = attention_product(function, args, kwargs, position, record.meta, record.form)
            return None if product is None else _multiply(tensor, record, product)
        return _postpone_step(function, args, kwargs, position, tensor, record)

    def accepts(self, operand: Any) -> bool:
        """Return whether an operand is no tensor, or a plain one on the same device or without
        dimensions."""
        if not isinstance(operand, torch.Tensor):
            return True
        return are_tensors(operand) and (operand.device == self.modes.device or not operand.dim())


def _scores_position(args: Any, kwargs: Any) -> int | None:
    """Return the position of the first postponed tensor among the arguments; None if it has none or
    a postponed tensor is given by name."""
    if any(isinstance(argument, PostponedTensor) for argument in kwargs.values()):
        return None
    positions = (
        index for index, argument in enumerate(args) if isinstance(argument, PostponedTensor)
    )
    return next(positions, None)


def _moved_tensor(tensor: PostponedTensor) -> PostponedTensor:
    """Return the tensor after all operations in place on it, which make new tensors."""
    while "moved" in tensor.__dict__:
        tensor = tensor.__dict__["moved"]
    return tensor


def _postpone_step(
    function: Any, args: Any, kwargs: Any, position: int, tensor: PostponedTensor, record: _Scores
) -> torch.Tensor | None:
    """Return the result of a step on a postponed tensor, postponed as well; None if the step needs
    the elements."""
    family = tensor.__dict__["family"]
    if function is functional.dropout:
        return tensor if _is_identity(kwargs) else None
    if function in IN_PLACE and (record.modes.gradients or position or family.is_shared(tensor)):
        return None
    step = follow(function, args, kwargs, position, record.meta, record.form)
    if step is None:
        return None
    result = _make_postponed(
        family,
        _Scores(record.modes, record, step.call, step.sources, step.meta, step.form),
        tensor,
        with_graph=function is not torch.Tensor.detach,
    )
    if function in IN_PLACE:
        tensor.__dict__["moved"] = result
    return result


def _is_identity(options: Any) -> bool:
    """Return whether a dropout with these arguments by name, its rate among them, returns its
    input."""
    rate = options.get("p")
    if not isinstance(rate, NUMBERS) or not 0 <= rate <= 1:
        return False
    return not (rate and options.get("training")) and not options.get("inplace")


def _make_postponed(
    family: _ScoresFamily,
    record: _Scores,
    previous: PostponedTensor | None,
    with_graph: bool = True,
) -> PostponedTensor:
    """Make the tensor of a record, with a node in the graph if an input needs gradients and the
    tensor is `with_graph`."""
    family.records = [reference for reference in family.records if reference() is not None]
    family.records.append(weakref.ref(record))
    inputs = record.sources if previous is None else (previous, *record.sources)
    tensor: PostponedTensor
    needs_node = with_graph and record.modes.gradients
    if needs_node and any(source.requires_grad for source in inputs):
        tensor = _ScoresEdge.apply(record, previous is not None, *inputs)
    else:
        tensor = PostponedTensor.of(record, record.meta, record.modes.device)
    tensor.__dict__["family"] = family
    record.tensor = weakref.ref(tensor)
    return tensor


def postponed_scores(
    call: Callable[..., torch.Tensor], sources: tuple[torch.Tensor, ...], form: Form
) -> torch.Tensor:
    """Return the scores of a form, postponed; `call` computes their elements from the sources."""
    size = (*form.query.shape[:-1], form.key.shape[-2])
    meta = torch.empty(size, dtype=form.query.dtype, device="meta")
    family = _ScoresFamily(current_modes(form.query.device))
    return _make_postponed(family, _Scores(family.modes, None, call, sources, meta, form), None)


def _multiply(tensor: PostponedTensor, record: _Scores, product: Product) -> torch.Tensor:
    """Compute the attention; its gradients lead through the weights where gradients of the weights
    are watched.

    The kernel keeps the value for its backward pass, which the product keeps only for gradients of
    the weights; a value that may change in place is copied where these have none.
    """
    if record.keeper() is None or not tensor.requires_grad:
        value = snapshot(product.value) if product.value.requires_grad else product.value
        return product.finish(attend(record.form, value).contiguous())
    result = attend(record.form, product.value)
    tensor.__dict__["family"].products.append(record)
    return product.finish(_AttentionResult.apply(record.keeper(), result, tensor, product.value))


class _ScoresEdge(torch.autograd.Function):  # type: ignore[misc]
    """The node of a postponed tensor in the graph; its backward pass differentiates one step."""

    @staticmethod
    def forward(
        ctx: Any, record: _Scores, has_previous: bool, *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.keeper = _Keeper()
        record.keeper = weakref.ref(ctx.keeper)
        return PostponedTensor.of(record, record.meta, record.modes.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        needed = ctx.needs_input_grad[2:]
        if gradient is None:
            return (None,) * (2 + len(needed))
        record: _Scores | None = ctx.keeper.record
        if torch.is_grad_enabled():
            raise RuntimeError(_NO_DERIVATIVE)
        if record is None:
            raise RuntimeError("scores of attention that have gradients were never read")
        with creation_modes(record.modes):
            inputs = [tensor.detach() for tensor in record.sources]
            if record.previous is not None:
                inputs.insert(0, record.previous.unchanged_elements())
            differentiated = [
                tensor.requires_grad_()
                for tensor, is_needed in zip(inputs, needed, strict=True)
                if is_needed
            ]
            gradients = iter(torch.autograd.grad(record.call(*inputs), differentiated, gradient))
        return None, None, *(next(gradients) if is_needed else None for is_needed in needed)


class _Ordinary(torch.autograd.Function):  # type: ignore[misc]
    """The identity from a postponed tensor to its ordinary elements, which joins the elements to
    the graph."""

    @staticmethod
    def forward(ctx: Any, record: _Scores, tensor: torch.Tensor) -> torch.Tensor:
        return record.compute().detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient


class _AttentionResult(torch.autograd.Function):  # type: ignore[misc]
    """The result of attention, whose gradient goes through the kernel, or through the weights if
    these are watched."""

    @staticmethod
    def forward(
        ctx: Any, keeper: _Keeper, result: torch.Tensor, weights: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.keeper = keeper
        ctx.save_for_backward(value)
        return result.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if gradient is None or not ctx.keeper.watched:
            return None, gradient, None, None
        if torch.is_grad_enabled():
            raise RuntimeError(_NO_DERIVATIVE)
        (value,) = ctx.saved_tensors
        record: _Scores = ctx.keeper.record
        with creation_modes(record.modes, gradients=False):
            weights = record.unchanged_elements()
            weights_gradient = torch.matmul(gradient, value.transpose(-1, -2))
            if record.form.transposed:
                weights_gradient = weights_gradient.transpose(-1, -2)
            else:
                weights = weights.transpose(-1, -2)
            return None, None, weights_gradient, torch.matmul(weights, gradient)
