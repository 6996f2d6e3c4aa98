"""Make variants of a recorded call with other sizes: batches of 17 and 8, prime lengths, long
inputs, and sizes around the constants of the code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, map_call, tensors
from regraft.verification.child.checks.code_constants import Constants

BATCH, LENGTHS, LONG, WIDE = 17, (11, 13), 307, 1013
EVEN_BATCH = 8  # a batch that divides into groups
SIZES = "sizes"  # the kind of these calls
_ELEMENTS = 1 << 22  # the most elements of the inputs of one call together
_SIZES = 3  # the most different sizes of a call that are changed


def resized_calls(call: Call, constants: Constants, *, features: bool) -> Iterator[Call]:
    """Yield a call with each of at most `_SIZES` of its sizes changed: the batch, then others; with
    `features` also widths. Calls with more than `_ELEMENTS` elements are left out.

    Every dimension of the old size gets the new size, and so do integers that equal the old size.
    New sizes are fixed lengths, sizes around constants, and sizes that exceed a count of elements.
    Rows are repeated in random order, so that indices stay in their range. The original may refuse
    such a call.
    """
    tensors = _non_scalar_tensors(call)
    sizes = _sizes_to_change(tensors, features)
    around_constants = [constant + step for constant in constants.sizes for step in (-1, 0, 1)]
    widths = _feature_widths(tensors)
    image_sides = {tensor.shape[-1] for tensor in tensors if _is_image(tensor)}
    for number, size in enumerate(sizes):
        lengths = (BATCH, EVEN_BATCH) if number == 0 else _new_lengths(size, widths, image_sides)
        for_counts = _lengths_for_counts(size, tensors, constants.counts)
        for target in dict.fromkeys((*lengths, *around_constants, *for_counts)):
            if target not in (size, 0, 1) and _count_elements(tensors, size, target) <= _ELEMENTS:
                label = f"{size} -> {target} in every dimension of that size"
                yield _resize(call, size, target, label)
                if number == 0 and _has_other_axis_of_batch(tensors, size):
                    yield _with_batch(call, size, target)


def odd_width_calls(call: Call) -> Iterator[Call]:
    """Yield a call with each of at most `_SIZES` even widths of features changed to odd ones,
    smaller by 1, a prime, and 1: halves of them are unequal or empty, and a single feature has no
    spread. The original may refuse such a call."""
    tensors = _non_scalar_tensors(call)
    even_widths = sorted(size for size in _feature_widths(tensors) if size and size % 2 == 0)
    for size in even_widths[:_SIZES]:
        for target in dict.fromkeys((size - 1, LENGTHS[-1], 1)):
            if _count_elements(tensors, size, target) <= _ELEMENTS:
                yield _resize(call, size, target, f"{size} -> {target} in every width of that size")


def _has_other_axis_of_batch(tensors: list[Any], size: int) -> bool:
    """Return whether a size, that of a batch, is also that of another dimension by chance, such as
    the three channels of pictures."""
    return any(size in tensor.shape[1:] for tensor in tensors)


def _with_batch(call: Call, size: int, target: int) -> Call:
    """Return a call in which the first dimension of the tensors with that size there is `target`,
    with rows that are repeated in turn."""

    def resize_leaf(leaf: Any) -> Any:
        """Return a tensor with another batch, any other argument as it is."""
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or leaf.shape[0] != size:
            return leaf
        return leaf.index_select(0, torch.arange(target) % size).contiguous()

    return map_call(call, resize_leaf, f"{size} -> {target} in the batch only", SIZES)


def _new_lengths(size: int, widths: set[int], image_sides: set[int]) -> tuple[int, ...]:
    """Return the sizes to try in the place of a size that is no batch: slightly larger for the
    sides of images, LENGTHS and LONG for lengths, LENGTHS and WIDE or even widths for widths of
    features."""
    if size in image_sides:
        return size + 1, size + size // 2, 2 * size
    if size not in widths:
        return *LENGTHS, LONG
    return _even_widths() if size % 2 == 0 else (*LENGTHS, WIDE)


def _lengths_for_counts(size: int, tensors: list[Any], counts: Iterable[int]) -> tuple[int, ...]:
    """Return, for each count, a value for `size` with which the largest tensor of that size has
    more elements than the count; () where `size` or another dimension is 0."""
    if size == 0:
        return ()
    elements_per_size = max(
        (tensor.numel() // size for tensor in tensors if size in tensor.shape), default=1
    )
    if elements_per_size == 0:  # another size is 0
        return ()
    return tuple(count // elements_per_size + 1 for count in counts)


def _even_widths() -> tuple[int, ...]:
    """Return the even widths to try, no powers of two, for features in pairs or halves as in rotary
    embeddings."""
    return tuple(2 * length for length in (*LENGTHS, WIDE // 2))


def _non_scalar_tensors(call: Call) -> list[Any]:
    """Return the tensors of a call that have at least one dimension."""
    return [tensor for tensor in tensors(call) if tensor.dim() > 0]


def _sizes_to_change(tensors: list[Any], features: bool) -> list[int]:
    """Return at most `_SIZES` different sizes: the first dimension of the first tensor (the batch),
    then those of further dimensions above 1; without `features` no widths of features."""
    if not tensors:
        return []
    widths = _feature_widths(tensors)
    sizes = [tensor.shape[0] for tensor in tensors[:1]]
    sizes += [
        size
        for tensor in tensors
        for size in tensor.shape[1:]
        if size > 1 and (features or size not in widths)
    ]
    return list(dict.fromkeys(sizes))[:_SIZES]


def _feature_widths(tensors: list[Any]) -> set[int]:
    """Return the last dimensions that contain features: those of real numbers, except for the sides
    of images."""
    return {tensor.shape[-1] for tensor in tensors if is_feature_width(tensor, tensor.dim() - 1)}


def is_feature_width(tensor: Any, dim: int) -> bool:
    """Return whether a dimension of a tensor contains features: the last of real numbers, except
    for the sides of images."""
    is_last = dim == tensor.dim() - 1 > 0
    return bool(is_last and tensor.is_floating_point() and not _is_image(tensor))


def _is_image(tensor: Any) -> bool:
    """Return whether a tensor is a batch of square images or videos, channels first, with sides
    above 2."""
    return bool(
        tensor.is_floating_point() and tensor.dim() > 3 and tensor.shape[-1] == tensor.shape[-2] > 2
    )


def _count_elements(tensors: list[Any], size: int, target: int) -> float:
    """Return the number of elements that the tensors would have together if every dimension of size
    `size` became `target`."""
    return float(
        sum(
            tensor.numel() * (target / size) ** list(tensor.shape).count(size)
            for tensor in tensors
            if tensor.numel()
        )
    )


def _resize(call: Call, size: int, target: int, label: str) -> Call:
    """Return a call with the label and with sizes marked as beyond, in which every dimension that
    equals `size` is `target`, and every integer, if `size` is above 2."""
    return replace(resize_dimensions(call, {size: target}), label=label, beyond=SIZES)


def resize_dimensions(call: Call, sizes: Mapping[int, int], *, features: bool = False) -> Call:
    """Return a call in which every dimension, and every integer above 2, that is a key of `sizes`
    has the new size.

    A longer dimension repeats rows in random order after the old rows, a shorter one has the first
    rows only; the order is the same in every run. With `features` only the last dimensions of
    floating-point tensors change, and no integers, because a length may equal the number of
    features.
    """
    generator = torch.Generator().manual_seed(0)
    orders: dict[int, Any] = {}
    for size, target in sizes.items():
        random_rows = torch.randint(0, size, (target,), generator=generator)
        orders[size] = torch.cat([torch.arange(min(size, target)), random_rows])[:target]

    def resize_leaf(leaf: Any) -> Any:
        """Return a tensor with the new sizes in its dimensions, an integer above 2 as its new size,
        and any other argument as it is. With `features` only the last dimension of floating tensors
        changes."""
        if type(leaf) is int and leaf > 2 and not features:
            return sizes.get(leaf, leaf)
        if not isinstance(leaf, torch.Tensor) or (features and not leaf.is_floating_point()):
            return leaf
        for dim, size in enumerate(leaf.shape):
            if size in orders and not (features and dim < leaf.dim() - 1):
                leaf = leaf.index_select(dim, orders[size])
        return leaf.contiguous()

    return map_call(call, resize_leaf, call.label, call.beyond)


def enlarged_points(call: Call) -> Iterator[Call]:
    """Yield a call in which images of a single point have 2 rows and 3 columns of other values:
    with one point their height cannot be confused with their width. Nothing where there is none.
    The original may refuse the call."""
    generator = torch.Generator().manual_seed(0)

    def enlarge_leaf(leaf: Any) -> Any:
        """Return an image of one point with further points, and any other argument as it is."""
        if not _is_point(leaf):
            return leaf
        factors = torch.rand(2, 3, generator=generator) + 0.5
        return leaf * factors.to(leaf.dtype)

    if any(map(_is_point, tensors(call))):
        yield map_call(call, enlarge_leaf, "images of one point -> 2 x 3 points", SIZES)


def _is_point(leaf: Any) -> bool:
    """Return whether an argument is a batch of images of a single point, channels first."""
    return bool(
        isinstance(leaf, torch.Tensor)
        and leaf.is_floating_point()
        and leaf.dim() > 3
        and tuple(leaf.shape[-2:]) == (1, 1)
    )


def moved_features(call: Call) -> tuple[Call, ...]:
    """Return calls whose features are in another dimension: in floating-point tensors of three to
    five dimensions the last dimension becomes the second one, also with a further dimension of
    size 1 at the end, or the second one the last."""
    return (
        _with_moved_dimension(call, -1, 1),
        _with_moved_dimension(call, -1, 1, longer=True),
        _with_moved_dimension(call, 1, -1),
    )


def _with_moved_dimension(call: Call, source: int, target: int, *, longer: bool = False) -> Call:
    """Return a call in whose floating-point tensors of three to five dimensions the dimension
    `source` is at `target`, followed by one of size 1 if `longer`."""

    def move(leaf: Any) -> Any:
        """Return a tensor with its dimension moved, and any other argument as it is."""
        if not (
            isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and 3 <= leaf.dim() <= 5
        ):
            return leaf
        moved = leaf.movedim(source, target).contiguous()
        return moved.unsqueeze(-1) if longer else moved

    return map_call(call, move, call.label, call.beyond)


def is_affordable(call: Call, sizes: Mapping[int, int]) -> bool:
    """Return whether the tensors of a call would have at most `_ELEMENTS` elements together if each
    dimension whose size is a key of `sizes` got the new size."""
    elements = (
        math.prod(sizes.get(size, size) for size in tensor.shape)
        for tensor in _non_scalar_tensors(call)
    )
    return sum(elements) <= _ELEMENTS


def is_small(tensors: Iterable[Any]) -> bool:
    """Return whether some tensors have at most `_ELEMENTS` elements together."""
    return bool(sum(tensor.numel() for tensor in tensors) <= _ELEMENTS)


def reranked_calls(call: Call) -> Iterator[Call]:
    """Yield two calls: one in which tensors of two or more dimensions get a dimension of size 1 in
    front, and one in which they are reduced to their first row. The original may refuse them."""

    def map_tensors(change: Any, label: str) -> Call:
        """Return the call with `change` of each tensor of two or more dimensions."""

        def map_leaf(leaf: Any) -> Any:
            """Return the changed tensor; any other argument as it is."""
            return change(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() > 1 else leaf

        return map_call(call, map_leaf, label, SIZES)

    yield map_tensors(lambda tensor: tensor.unsqueeze(0), "one more dimension")
    yield map_tensors(lambda tensor: tensor[0].contiguous(), "one dimension less")
