"""Make variants of a call in which axes of equal size, such as those of queries and keys, become
unequal, in case that they were equal by chance, and in which axes have a single element."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, is_mask, map_tensors, tensors
from regraft.verification.child.checks.size_variants import SIZES, is_feature_width, is_small

_CALLS, _TRIES = 6, 24  # the most calls that are made of one call, and that are tried for them
_CHOICES = 12  # the most choices of axes for one size
_SINGLE_CALLS, _SINGLE_TRIES = 3, 10  # the same for calls with a single element along some axes
_BALANCED_CALLS, _BALANCED_TRIES = 1, 4  # the same for calls with one axis longer, one shorter
_HEADS_DIM, _WITH_HEADS = 1, 4  # the dimension of heads, in tensors of so many dimensions

Axis = tuple[int, int]  # the number of a tensor in its call, and the number of a dimension


@dataclass(frozen=True, slots=True)
class _Size:
    """A size with all the axes of a call that have it."""

    size: int
    axes: tuple[Axis, ...]

    @property
    def shorter(self) -> int:
        """Return the size of the axes that are not chosen: their own, or 2 for a single head."""
        return max(self.size, 2)

    def choices(self) -> Iterator[tuple[Axis, ...]]:
        """Yield at most `_CHOICES` choices of some, but not all, of the axes: one dimension of all
        tensors, a dimension of one tensor, two dimensions."""
        dims = dict.fromkeys(dim for _, dim in self.axes)
        choices = (
            *(tuple(axis for axis in self.axes if axis[1] == dim) for dim in dims),
            *((axis,) for axis in self.axes),
            *itertools.combinations(self.axes, 2),
        )
        partial_choices = (choice for choice in choices if choice != self.axes)
        yield from itertools.islice(dict.fromkeys(partial_choices), _CHOICES)


def lengthen_axes(
    call: Call, accepts: Callable[[Call], bool], limit: int = _CALLS
) -> Iterator[Call]:
    """Yield at most `limit` calls that `accepts` accepts and in which some of the axes of a size
    are twice as long as the others: the keys but not the queries, the width but not the height of
    images. At most `_TRIES` calls of affordable size are tried.

    Sizes that few axes share come first; batches and widths of features come last. A single head
    becomes two, and four where it is chosen. Longer axes repeat their rows in random order.
    """
    candidates = (
        _lengthen(call, size, choice)
        for size in _shared_sizes(tensors(call))
        for choice in size.choices()
    )
    affordable = (candidate for candidate in candidates if is_small(tensors(candidate)))
    accepted = filter(accepts, itertools.islice(affordable, _TRIES))
    yield from itertools.islice(accepted, limit)


def shorten_axes(call: Call, accepts: Callable[[Call], bool]) -> Iterator[Call]:
    """Yield at most `_SINGLE_CALLS` calls that `accepts` accepts and in which some axes have a
    single element, as the first row only; at most `_SINGLE_TRIES` are tried.

    One dimension of all tensors is tried first, then all axes of a size, then axes one by one. What
    drops dimensions of size 1, or broadcasts along them, does so in such a call. Batches and widths
    of features alone stay: a width of 1 would be broadcast along the weights of a norm.
    """
    choices = _choices_to_shorten(tensors(call))
    candidates = (_shorten(call, choice) for choice in choices)
    accepted = filter(accepts, itertools.islice(candidates, _SINGLE_TRIES))
    yield from itertools.islice(accepted, _SINGLE_CALLS)


def balance_axes(call: Call, accepts: Callable[[Call], bool]) -> Iterator[Call]:
    """Yield at most `_BALANCED_CALLS` calls that `accepts` accepts and in which one of two equal,
    even axes of a tensor is half as long and the other twice: images of as many pixels that are
    wider than high. Tensors with both axes change alike; a longer axis repeats its rows."""
    pairs = dict.fromkeys(
        (size, first, second)
        for tensor in tensors(call)
        for first, second in itertools.combinations(range(1, tensor.dim()), 2)
        if (size := tensor.shape[first]) == tensor.shape[second] and size > 2 and size % 2 == 0
    )
    candidates = (_balance(call, *pair) for pair in itertools.islice(pairs, _BALANCED_TRIES))
    yield from itertools.islice(filter(accepts, candidates), _BALANCED_CALLS)


def _balance(call: Call, size: int, short: int, long: int) -> Call:
    """Return a labelled copy of the call in which tensors with two dimensions of a size have half
    of the first and the second twice."""

    def balance(tensor: Any) -> Any:
        """Return a tensor with both dimensions changed; one without them as it is."""
        if tensor.dim() <= long or not tensor.shape[short] == tensor.shape[long] == size:
            return tensor
        half = tensor.narrow(short, 0, size // 2)
        return torch.cat([half, half.flip(long)], long).contiguous()

    label = f"{size} -> {size // 2} in dimension {short} and {2 * size} in dimension {long} only"
    return map_tensors(call, balance, label, SIZES)


def _choices_to_shorten(call_tensors: list[Any]) -> list[tuple[Axis, ...]]:
    """Return axes of more than one element that may be shortened together, in the order of the
    trials: those of one size and dimension, those of one size, single ones; no batches or features
    alone."""
    axes = {
        (number, dim): size
        for number, tensor in enumerate(call_tensors)
        for dim, size in enumerate(tensor.shape)
        if size > 1
    }
    by_dim: dict[tuple[int, int], list[Axis]] = {}
    by_size: dict[int, list[Axis]] = {}
    for axis, size in axes.items():
        by_dim.setdefault((size, axis[1]), []).append(axis)
        by_size.setdefault(size, []).append(axis)

    def may_be_shortened(choice: tuple[Axis, ...]) -> bool:
        """Return whether some axes are neither batches alone nor have a width of features alone."""
        return any(dim for _, dim in choice) and not all(
            is_feature_width(call_tensors[number], dim) for number, dim in choice
        )

    groups = (*by_dim.values(), *by_size.values(), *([axis] for axis in axes))
    return list(filter(may_be_shortened, dict.fromkeys(map(tuple, groups))))


def _shorten(call: Call, choice: tuple[Axis, ...]) -> Call:
    """Return a labelled copy of the call in which some axes have their first row only."""
    numbers = itertools.count()

    def shorten(tensor: Any) -> Any:
        """Return the next tensor with the chosen axes shortened."""
        number = next(numbers)
        for _, dim in (axis for axis in choice if axis[0] == number):
            tensor = tensor.narrow(dim, 0, 1)
        return tensor.contiguous()

    return map_tensors(call, shorten, f"size 1 in {_places(choice)} only", SIZES)


def _places(choice: tuple[Axis, ...]) -> str:
    """Return the axes in words."""
    return " and ".join(f"dimension {dim} of tensor {number}" for number, dim in choice)


def _shared_sizes(call_tensors: list[Any]) -> list[_Size]:
    """Return the sizes that at least two axes of some tensors have, in the order of the trials; of
    axes of length 1 only those of heads, no axes of length 0."""
    axes_by_size: dict[int, list[Axis]] = {}
    for number, tensor in enumerate(call_tensors):
        for dim, size in enumerate(tensor.shape):
            if size > 1 or (size == 1 and _has_heads(tensor, dim)):
                axes_by_size.setdefault(size, []).append((number, dim))
    sizes = [_Size(size, tuple(axes)) for size, axes in axes_by_size.items() if len(axes) > 1]

    def sort_key(size: _Size) -> tuple[bool, bool, int]:
        """Return a key that puts sizes of widths of features alone last, then those of batches
        alone, and among the others those that few axes share first."""
        has_features_only = all(
            is_feature_width(call_tensors[number], dim) for number, dim in size.axes
        )
        has_batches_only = all(dim == 0 for _, dim in size.axes)
        return has_features_only, has_batches_only, len(size.axes)

    return sorted(sizes, key=sort_key)


def _has_heads(tensor: Any, dim: int) -> bool:
    """Return whether a dimension is the second of four in a tensor of real numbers that is no
    mask."""
    is_heads_dim = dim == _HEADS_DIM and tensor.dim() == _WITH_HEADS
    return bool(is_heads_dim and tensor.is_floating_point() and not is_mask(tensor))


def _lengthen(call: Call, size: _Size, choice: tuple[Axis, ...]) -> Call:
    """Return a labelled copy of the call in which the axes of the size are cut to `size.shorter`,
    those in `choice` lengthened to twice as much by rows that are drawn with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    length = 2 * size.shorter
    random_rows = torch.randint(0, size.size, (length - size.size,), generator=generator)
    order = torch.cat([torch.arange(size.size), random_rows])
    numbers = itertools.count()

    def lengthen(tensor: Any) -> Any:
        """Return the next tensor with the axes of the size lengthened or cut."""
        number = next(numbers)
        for dim in range(tensor.dim()):
            if (number, dim) in size.axes:
                rows = order if (number, dim) in choice else order[: size.shorter]
                tensor = tensor.index_select(dim, rows)
        return tensor.contiguous()

    label = f"{size.size} -> {length} in {_places(choice)} only"
    return map_tensors(call, lengthen, label, SIZES)
