"""`regraft.watch(model)`: record the calls of a model, as inputs for `optimize` and `bench`."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from regraft.execution.nested import copy_leaf, map_leaves


class CallNotRecorded(UserWarning):
    """The warning that a call of a watched model was not recorded; the message says why."""


@contextlib.contextmanager
def watch(model: Any, *, most: int = 4) -> Iterator[list[Any]]:
    """Record the first calls of a model in a `with` block, and give the list of them.

    The list is what `regraft.optimize(model, calls)` and `regraft.bench(model, calls)` take: each
    call is a tuple of its positional arguments, or a dictionary of all arguments by name where
    some were passed by name. Of calls with arguments of the same shapes and types the first one is
    recorded, and at most `most` calls. Arguments are copied before the model sees them: tensors on
    their device, without history. The model computes what it computes without `watch`; a call
    whose arguments cannot be copied or named is left out, with a CallNotRecorded warning.

    Raises ValueError where `most` is below 1.
    """
    if most < 1:
        raise ValueError(f"most is {most}: at least one call has to be recorded")
    calls: list[Any] = []
    signatures: set[str] = set()

    def record(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Append a copy of a call to `calls`, unless there are `most` already or one of the same
        structure, shapes and types; warn where it cannot be copied."""
        if len(calls) >= most:
            return
        try:
            signature = _signature_of((args, kwargs))
            if signature not in signatures:
                signatures.add(signature)
                calls.append(_copied_call(model, args, kwargs))
        except Exception as problem:  # noqa: BLE001 - the user's objects; the run goes on
            message = f"a call of {type(model).__name__} was not recorded: {problem}"
            warnings.warn(message, CallNotRecorded, stacklevel=2)

    handle = model.register_forward_pre_hook(record, prepend=True, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _copied_call(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a copy of a call: the tuple of its arguments, or a dictionary of all arguments by name
    where some were passed by name. Raise TypeError where an argument cannot be passed by name, and
    what `copy.deepcopy` raises."""
    if not kwargs:
        return map_leaves(args, _copied_leaf)
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise TypeError(f"{name} cannot be passed by name, and other arguments are")
        else:
            arguments[name] = value
    return map_leaves(arguments, _copied_leaf)


def _copied_leaf(value: Any) -> Any:
    """Return a copy of an argument; a tensor loses its history, and keeps `requires_grad`."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    with torch.inference_mode(False):  # a copy made in inference mode could not be trained on
        return copy_leaf(value).requires_grad_(value.requires_grad)


def _signature_of(arguments: Any) -> str:
    """Return a text that is equal for arguments of the same structure, tensor shapes, dtypes and
    devices, plain values and types of other objects."""
    return repr(map_leaves(arguments, _described_leaf))


def _described_leaf(value: Any) -> Any:
    """Return (shape, dtype, device) of a tensor, a number, string or None as it is, and of any
    other value the type."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype), str(value.device)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain else type(value)
