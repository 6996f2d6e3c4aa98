"""A bound for results whose sizes the values of tensors decide: on made-up values, such as those of
an input times 10, `torch.bincount` would take gigabytes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from regraft.splitting.sampling.decision_recorder import TooLong

MAX_ELEMENTS = 2**24  # of a result, or rows of one


class TooLarge(TooLong, RuntimeError):
    """Signals that values ask for a result with more elements than `MAX_ELEMENTS`."""


@contextlib.contextmanager
def bounded_results() -> Iterator[None]:
    """In the `with` block let functions of torch raise TooLarge where the values of a tensor ask
    for too many elements."""
    with contextlib.ExitStack() as stack:
        for owner, name, count in _FUNCTIONS:
            function = _bounded(getattr(owner, name), count)
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


def _bounded(function: Callable[..., Any], count: Callable[..., int]) -> Callable[..., Any]:
    """Return a function that raises TooLarge where `count` of its arguments is too large, and else
    calls `function`."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        """Return what the function gives; raise TooLarge."""
        elements = count(*args, **keywords)
        if elements > MAX_ELEMENTS:
            raise TooLarge(
                f"the values of a tensor ask torch.{function.__name__} for {elements} elements;"
                f" splitting takes {MAX_ELEMENTS}"
            )
        return function(*args, **keywords)

    return call


def _count_bins(values: Any = None, *_: Any, **keywords: Any) -> int:
    """Return how many elements `torch.bincount` gives, and `F.one_hot` for each of its own without
    a number of classes; 0 for what is no tensor of whole numbers with elements."""
    tensor = keywords.get("input", values)
    is_tensor = isinstance(tensor, torch.Tensor) and tensor.numel() and not tensor.is_complex()
    return int(tensor.max()) + 1 if is_tensor and not tensor.is_floating_point() else 0


def _count_classes(values: Any = None, num_classes: int = -1, **keywords: Any) -> int:
    """Return how many elements `F.one_hot` gives where values decide the number of classes, else
    0."""
    tensor = keywords.get("input", keywords.get("tensor", values))
    decide = isinstance(tensor, torch.Tensor) and num_classes == -1
    return tensor.numel() * _count_bins(tensor) if decide else 0


def _count_repeats(values: Any = None, repeats: Any = None, *_: Any, **keywords: Any) -> int:
    """Return how many rows `torch.repeat_interleave` gives for a tensor of repeats, else 0."""
    counts = values if repeats is None else repeats
    is_tensor = isinstance(counts, torch.Tensor) and not counts.is_floating_point()
    return int(counts.sum()) if is_tensor else 0


_FUNCTIONS: tuple[tuple[Any, str, Callable[..., int]], ...] = (
    (torch, "bincount", _count_bins),
    (torch.Tensor, "bincount", _count_bins),
    (torch.nn.functional, "one_hot", _count_classes),
    (torch, "repeat_interleave", _count_repeats),
    (torch.Tensor, "repeat_interleave", _count_repeats),
)
