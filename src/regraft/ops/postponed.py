"""A tensor whose elements are computed when they are needed; its record says how, and what needs none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves, tree_map

# What a tensor says of itself without its elements.
_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "requires_grad")
_METHODS = ("size", "dim", "numel", "is_floating_point", "__len__")
_METADATA = frozenset(
    {getattr(torch.Tensor, name).__get__ for name in _ATTRIBUTES} | {getattr(torch.Tensor, name) for name in _METHODS}
)
# What asks for gradients of the tensor itself.
_WATCHING = frozenset({
    torch.Tensor.register_hook, torch.Tensor.retain_grad, torch.Tensor.grad_fn.__get__, torch.Tensor.grad.__get__,
    torch.Tensor.retains_grad.__get__, torch.autograd.grad,
})  # fmt: skip


class Record(Protocol):
    """How a postponed tensor is made."""

    @property
    def value(self) -> torch.Tensor | None:
        """The elements, once they were computed."""

    def plain(self, tensor: PostponedTensor) -> torch.Tensor:
        """The ordinary tensor in the place of this one."""

    def later(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function that needs no elements; None where it does."""

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        """Somebody asks for its gradients: whether the postponed tensor is the one in the graph of the results."""


class PostponedTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that knows how it is made; whatever asks for its elements gets the ordinary tensor."""

    record: Record

    @staticmethod
    def of(record: Record, alike: torch.Tensor, device: torch.device) -> PostponedTensor:
        """A tensor with the shape, strides and dtype of one without elements; not part of any graph."""
        with torch._C.DisableTorchFunctionSubclass():
            made: PostponedTensor = torch.Tensor._make_wrapper_subclass(
                PostponedTensor, alike.shape, strides=alike.stride(), dtype=alike.dtype, device=device
            )
        made.record = record
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = next((one for one in (*args, *kwargs.values()) if isinstance(one, PostponedTensor)), None)
        if first is not None:
            if function is torch.Tensor.__hash__ or (function in _METADATA and first.record.value is None):
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs)
            made = first.record.later(function, args, kwargs)
            if made is not None:
                return made
        if function in _WATCHING:
            return _watched(function, args, kwargs)
        args, kwargs = tree_map(elements, (args, kwargs))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(elements, (args, kwargs or {}))
        return function(*args, **kwargs)


def _watched(function: Any, args: Any, kwargs: Any) -> Any:
    """A function that looks at the graph, of the tensors that are in it."""
    found = [one for one in tree_leaves((args, kwargs)) if isinstance(one, PostponedTensor)]
    inside = {id(one) for one in found if one.record.watch(one, function, args, kwargs)}
    args, kwargs = tree_map(lambda one: one if id(one) in inside else elements(one), (args, kwargs))
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


def elements(one: Any) -> Any:
    """The ordinary tensor of a postponed one; anything else as it is."""
    return one.record.plain(one) if isinstance(one, PostponedTensor) else one


def autocast_dtype(x: torch.Tensor) -> torch.dtype | None:
    """The dtype in which `torch.autocast` computes matrix products of a tensor's device; None outside of it."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


@contextlib.contextmanager
def as_made(
    x: Any, cast: torch.dtype | None = None, gradients: bool = True, inference: bool = False
) -> Iterator[None]:
    """The modes in which postponed tensors are made."""
    mode = torch.autocast(x.device.type, dtype=cast, enabled=cast is not None)
    outside = temporarily_clear_interpreter_stack()  # of `torch.func`, in which nothing that stays may be computed
    with outside, torch.inference_mode(inference), torch.set_grad_enabled(gradients), mode:
        yield
