"""Postponed tensors, whose elements are computed when they are needed by records that can defer
operations on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves, tree_map

# Attributes and methods of a tensor that need no elements.
_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "requires_grad")
_METHODS = ("size", "dim", "numel", "is_floating_point", "__len__")
_METADATA = frozenset(
    {getattr(torch.Tensor, name).__get__ for name in _ATTRIBUTES}
    | {getattr(torch.Tensor, name) for name in _METHODS}
)
# Functions that ask for gradients of the tensor itself.
_WATCHING = frozenset(
    {
        torch.Tensor.register_hook,
        torch.Tensor.retain_grad,
        torch.Tensor.grad_fn.__get__,
        torch.Tensor.grad.__get__,
        torch.Tensor.retains_grad.__get__,
        torch.autograd.grad,
    }
)


class Record(Protocol):
    """The computation of a postponed tensor."""

    @property
    def value(self) -> torch.Tensor | None:
        """The elements; None until they are computed."""

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        """Return the ordinary tensor in the place of a postponed one, and compute its elements."""

    def defer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a function of the tensor without its elements; None if the function
        needs them."""

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        """Prepare for a function that asks for gradients of the tensor.

        Return whether the postponed tensor itself, and not its ordinary one, is in the graph of the
        results.
        """


class PostponedTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor with the record of its computation; a function that needs its elements gets the
    ordinary tensor."""

    record: Record

    @staticmethod
    def of(record: Record, meta: torch.Tensor, device: torch.device) -> PostponedTensor:
        """Make a tensor outside of any graph, with the shape, strides and dtype of a tensor on the
        meta device."""
        with torch._C.DisableTorchFunctionSubclass():
            tensor: PostponedTensor = torch.Tensor._make_wrapper_subclass(
                PostponedTensor, meta.shape, strides=meta.stride(), dtype=meta.dtype, device=device
            )
        tensor.record = record
        return tensor

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        first = next(
            (
                argument
                for argument in (*args, *kwargs.values())
                if isinstance(argument, PostponedTensor)
            ),
            None,
        )
        if first is not None:
            if function is torch.Tensor.__hash__ or (
                function in _METADATA and first.record.value is None
            ):
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs)
            deferred = first.record.defer(function, args, kwargs)
            if deferred is not None:
                return deferred
        if function in _WATCHING:
            return _call_with_graph(function, args, kwargs)
        args, kwargs = tree_map(materialise, (args, kwargs))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map(materialise, (args, kwargs or {}))
        return function(*args, **kwargs)


def _call_with_graph(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function that looks at the graph, with the postponed tensors that are in the graph as
    they are."""
    tensors = [
        tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, PostponedTensor)
    ]
    in_graph = {
        id(tensor) for tensor in tensors if tensor.record.watch(tensor, function, args, kwargs)
    }
    args, kwargs = tree_map(
        lambda leaf: leaf if id(leaf) in in_graph else materialise(leaf), (args, kwargs)
    )
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


def materialise(value: Any) -> Any:
    """Return the ordinary tensor of a postponed one, and anything else as it is."""
    return value.record.ordinary_tensor(value) if isinstance(value, PostponedTensor) else value


def autocast_dtype(x: torch.Tensor) -> torch.dtype | None:
    """Return the dtype of matrix products under `torch.autocast` on a tensor's device; None outside
    of autocast."""
    device_type = x.device.type
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


@contextlib.contextmanager
def creation_modes(
    x: Any, cast: torch.dtype | None = None, gradients: bool = True, inference: bool = False
) -> Iterator[None]:
    """Enter the modes in which a postponed tensor was made, whatever the current modes are.

    `cast` is the dtype of `torch.autocast` on the device of `x`, None for no autocast.
    """
    mode = torch.autocast(x.device.type, dtype=cast, enabled=cast is not None)
    # `torch.func` must not trace what outlives it
    outside_transforms = temporarily_clear_interpreter_stack()
    with (
        outside_transforms,
        torch.inference_mode(inference),
        torch.set_grad_enabled(gradients),
        mode,
    ):
        yield
