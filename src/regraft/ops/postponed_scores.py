"""Scores of attention that are computed when somebody looks at them: their product with a value needs none of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.attention_form import FOLLOWED, IN_PLACE, PRODUCTS, Form, Product, attend, follow, product_of
from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.postponed import PostponedTensor, as_made, elements

_NO_DERIVATIVE = "derivative for postponed_scores_backward is not implemented"
_OVERWRITTEN = "scores of attention that are needed for gradients were modified by an inplace operation"


@dataclass(frozen=True, slots=True)
class _Modes:
    """The modes in which scores are made, and their device."""

    device: torch.device
    gradients: bool
    inference: bool

    def hold(self) -> bool:
        return self == modes(self.device) and not is_transformed() and not torch.is_autocast_enabled(self.device.type)


def modes(device: torch.device) -> _Modes:
    return _Modes(device, torch.is_grad_enabled(), torch.is_inference_mode_enabled())


@dataclass(slots=True, eq=False)
class _ScoresFamily:
    """Scores of one query and key, with all that was made of them.

    records   those that are still needed, in the order in which they were made
    products  those that were multiplied by a value with gradients: theirs lead through them once somebody watches
    """

    modes: _Modes
    records: list[weakref.ref[_Scores]] = field(default_factory=list)
    products: list[_Scores] = field(default_factory=list)

    def compute(self) -> None:
        """Compute what somebody holds, before anything can change one of it."""
        held = [found for one in self.records if (found := one()) is not None]
        with as_made(self.modes, None, self.modes.gradients and not self.products, self.modes.inference):
            for one in held:
                one.compute()
        for one in held:
            if one.tensor() is None:
                one.value = None

    def is_shared(self, tensor: PostponedTensor) -> bool:
        """Whether somebody holds another tensor that a change of this one may change."""
        others = (record.tensor() for one in self.records if (record := one()) is not None)
        return any(other is not None and other is not tensor for other in others)


class _Keeper:
    """What a graph knows of scores: nothing until somebody reads them, and whether their gradients are watched."""

    __slots__ = ("__weakref__", "record", "watched")

    def __init__(self) -> None:
        self.record: _Scores | None = None
        self.watched = False


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class _Scores:
    """How a postponed tensor is made.

    call     from the elements of `before`, if there is one, and the sources, which nobody else can change
    alike    a tensor without elements with the same shape and dtype
    form     the same as arguments of a kernel
    version  of the value when it was computed
    """

    modes: _Modes
    before: _Scores | None
    call: Callable[..., torch.Tensor]
    sources: tuple[torch.Tensor, ...]
    alike: torch.Tensor
    form: Form
    value: torch.Tensor | None = None
    version: int = 0
    tensor: Callable[[], PostponedTensor | None] = lambda: None
    keeper: Callable[[], _Keeper | None] = lambda: None

    def compute(self) -> torch.Tensor:
        if self.value is None:
            given = (self.before.compute(),) if self.before is not None else ()
            self.value = self.call(*given, *self.sources)
            self.version = 0 if self.value.is_inference() else self.value._version
        return self.value

    def unchanged(self) -> torch.Tensor:
        """The elements, as they were when they were computed."""
        value = self.compute()
        if value._version != self.version:
            raise RuntimeError(_OVERWRITTEN)
        return value.detach()

    def pin(self) -> None:
        """Let the graph keep what gradients of this tensor need."""
        record: _Scores | None = self
        while record is not None:
            keeper = record.keeper()
            if keeper is not None:
                keeper.record = record
            record = record.before

    def is_own(self, tensor: PostponedTensor) -> bool:
        """Whether the tensor is in the graph as it was made: functions of others may return it with another place."""
        with torch._C.DisableTorchFunctionSubclass():
            node = tensor.grad_fn
        return self.keeper() is None if node is None else getattr(node, "_forward_cls", None) is _ScoresEdge

    def plain(self, tensor: PostponedTensor) -> torch.Tensor:
        state = tensor.__dict__
        if "moved" in state:
            moved: torch.Tensor = elements(state["moved"])
            return moved
        self.pin()
        state["family"].compute()
        value = self.compute()
        if self.is_own(tensor) and (not state["family"].products or self.keeper() is None):
            return value
        if "ordinary" not in state:
            with as_made(self.modes):
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
        return bool(products) and self.keeper() is not None and self.is_own(tensor)

    def later(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        if function not in FOLLOWED and function not in PRODUCTS:
            return None
        place = next((number for number, one in enumerate(args) if isinstance(one, PostponedTensor)), None)
        if place is None or any(isinstance(one, PostponedTensor) for one in kwargs.values()):
            return None
        args = [one if number == place else elements(one) for number, one in enumerate(args)]
        tensor = args[place]
        while "moved" in tensor.__dict__:
            tensor = tensor.__dict__["moved"]
        record = tensor.record
        others = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one is not args[place]]
        if record.value is not None or not self.modes.hold() or not all(map(self.takes, others)):
            return None
        if not record.is_own(tensor):
            return None
        if function in PRODUCTS:
            product = product_of(function, args, kwargs, place, record.alike, record.form)
            return None if product is None else _multiplied(tensor, record, product)
        return _stepped(function, args, kwargs, place, tensor, record)

    def takes(self, other: torch.Tensor) -> bool:
        """Whether another tensor is an ordinary one of the same device."""
        return are_tensors(other) and (other.device == self.modes.device or not other.dim())


def _stepped(
    function: Any, args: Any, kwargs: Any, place: int, tensor: PostponedTensor, record: _Scores
) -> torch.Tensor | None:
    """The result of a step, postponed as well."""
    family = tensor.__dict__["family"]
    if function is functional.dropout:
        rate = kwargs.get("p")
        off = isinstance(rate, int | float) and 0 <= rate <= 1 and not (rate and kwargs.get("training"))
        return tensor if off and not kwargs.get("inplace") else None
    if function in IN_PLACE and (record.modes.gradients or place or family.is_shared(tensor)):
        return None
    step = follow(function, args, kwargs, place, record.alike, record.form)
    if step is None:
        return None
    made = _postponed(family, _Scores(record.modes, record, step.call, step.sources, step.alike, step.form), tensor)
    if function in IN_PLACE:
        tensor.__dict__["moved"] = made
    return made


def _postponed(family: _ScoresFamily, record: _Scores, before: PostponedTensor | None) -> PostponedTensor:
    """The tensor of a record, in the graph where that has gradients."""
    family.records = [one for one in family.records if one() is not None]
    family.records.append(weakref.ref(record))
    given = record.sources if before is None else (before, *record.sources)
    made: PostponedTensor
    if record.modes.gradients and any(one.requires_grad for one in given):
        made = _ScoresEdge.apply(record, before is not None, *given)
    else:
        made = PostponedTensor.of(record, record.alike, record.modes.device)
    made.__dict__["family"] = family
    record.tensor = weakref.ref(made)
    return made


def postponed_scores(call: Callable[..., torch.Tensor], sources: tuple[torch.Tensor, ...], form: Form) -> torch.Tensor:
    """The scores of a form, which `call` makes of the sources, postponed."""
    size = (*form.query.shape[:-1], form.key.shape[-2])
    alike = torch.empty(size, dtype=form.query.dtype, device="meta")
    family = _ScoresFamily(modes(form.query.device))
    return _postponed(family, _Scores(family.modes, None, call, sources, alike, form), None)


def _multiplied(tensor: PostponedTensor, record: _Scores, product: Product) -> torch.Tensor:
    """The attention, with gradients that lead through the weights where somebody watches those."""
    result = attend(record.form, product.value)
    if record.keeper() is None or not tensor.requires_grad:
        return product.finish(result.contiguous())
    tensor.__dict__["family"].products.append(record)
    return product.finish(_Attended.apply(record.keeper(), result, tensor, product.value))


class _ScoresEdge(torch.autograd.Function):  # type: ignore[misc]
    """The place of a postponed tensor in the graph."""

    @staticmethod
    def forward(ctx: Any, record: _Scores, follows: bool, *given: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.keeper = _Keeper()
        record.keeper = weakref.ref(ctx.keeper)
        return PostponedTensor.of(record, record.alike, record.modes.device)

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
        with as_made(record.modes):
            given = [one.detach() for one in record.sources]
            if record.before is not None:
                given.insert(0, record.before.unchanged())
            wanted = [one.requires_grad_() for one, need in zip(given, needed, strict=True) if need]
            slopes = iter(torch.autograd.grad(record.call(*given), wanted, gradient))
        return None, None, *(next(slopes) if need else None for need in needed)


class _Ordinary(torch.autograd.Function):  # type: ignore[misc]
    """The elements of a postponed tensor, with its place in the graph."""

    @staticmethod
    def forward(ctx: Any, record: _Scores, tensor: torch.Tensor) -> torch.Tensor:
        return record.compute().detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient


class _Attended(torch.autograd.Function):  # type: ignore[misc]
    """The result of attention: its gradient goes through the kernel, or through weights that somebody watches."""

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
        with as_made(record.modes, gradients=False):
            weights = record.unchanged()
            return (
                None, None, torch.matmul(gradient, value.transpose(-1, -2)),
                torch.matmul(weights.transpose(-1, -2), gradient),
            )  # fmt: skip
