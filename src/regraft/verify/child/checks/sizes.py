"""Calls of other sizes: batches of 17, prime lengths, long inputs, and sizes around the constants of the code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.constants import Constants
from regraft.verify.child.tree import Call, map_leaves, tensors

BATCH, LENGTHS, LONG, WIDE = 17, (11, 13), 307, 1013
_ELEMENTS = 1 << 22  # of the inputs of one call together
_SIZES = 3  # different sizes of a call that are changed


def resized_calls(call: Call, constants: Constants, *, features: bool) -> Iterator[Call]:
    """Yield a call with each of its sizes changed: that of the batch, then others; with `features` widths, too.

    The new size is given to every dimension of the old one, and to whole numbers that equal it. Rows are repeated in
    random order, so that indices stay in their range. The original may refuse such a call.
    """
    tensors = _tensors(call)
    sizes = _sizes(tensors, features)
    around = [c + step for c in constants.sizes for step in (-1, 0, 1)]
    wide = _widths(tensors)
    sides = {tensor.shape[-1] for tensor in tensors if _is_image(tensor)}
    for number, size in enumerate(sizes):
        lengths = _even_widths() if size in wide and size % 2 == 0 else (*LENGTHS, WIDE if size in wide else LONG)
        if size in sides:
            lengths = (size + 1, size + size // 2, 2 * size)
        targets = (BATCH, *around) if number == 0 else (*lengths, *around)
        each = max((tensor.numel() // size for tensor in tensors if size in tensor.shape), default=1)
        targets = (*targets, *(count // each + 1 for count in constants.counts))
        for target in dict.fromkeys(targets):
            if target not in (size, 0, 1) and _elements(tensors, size, target) <= _ELEMENTS:
                yield _resized(call, size, target, f"{size} -> {target} in every dimension of that size")


def _even_widths() -> tuple[int, ...]:
    """Widths for features that come in pairs or halves, as those of rotary embeddings: no powers of two."""
    return tuple(2 * length for length in (*LENGTHS, WIDE // 2))


def _tensors(call: Call) -> list[Any]:
    return [tensor for tensor in tensors(call) if tensor.dim() > 0]


def _sizes(tensors: list[Any], features: bool) -> list[int]:
    """The batch first, then the other sizes, but for widths of features in the last dimension."""
    if not tensors:
        return []
    wide = _widths(tensors)
    sizes = [tensor.shape[0] for tensor in tensors[:1]]
    sizes += [size for tensor in tensors for size in tensor.shape[1:] if size > 1 and (features or size not in wide)]
    return list(dict.fromkeys(sizes))[:_SIZES]


def _widths(tensors: list[Any]) -> set[int]:
    """Return the last dimensions that hold features: those of numbers, but for the sides of images."""
    return {
        tensor.shape[-1]
        for tensor in tensors
        if tensor.is_floating_point() and tensor.dim() > 1 and not _is_image(tensor)
    }


def _is_image(tensor: Any) -> bool:
    """Whether a tensor is a batch of square images or videos, channels first."""
    return bool(tensor.is_floating_point() and tensor.dim() > 3 and tensor.shape[-1] == tensor.shape[-2] > 2)


def _elements(tensors: list[Any], size: int, target: int) -> float:
    return float(sum(t.numel() * (target / size) ** list(t.shape).count(size) for t in tensors if t.numel()))


def _resized(call: Call, size: int, target: int, label: str) -> Call:
    return replace(with_sizes(call, {size: target}), label=label, beyond="sizes")


def with_sizes(call: Call, sizes: Mapping[int, int], *, features: bool = False) -> Call:
    """Return a call in which every dimension, and every whole number, of some sizes has another size.

    With `features` only the last dimensions of floating tensors do: places may be as many as features. Rows are
    repeated in random order.
    """
    generator = torch.Generator().manual_seed(0)
    orders: dict[int, Any] = {}
    for size, target in sizes.items():
        more = torch.randint(0, size, (target,), generator=generator)
        orders[size] = torch.cat([torch.arange(min(size, target)), more])[:target]

    def each(leaf: Any) -> Any:
        if type(leaf) is int and leaf > 2 and not features:
            return sizes.get(leaf, leaf)
        if not isinstance(leaf, torch.Tensor) or (features and not leaf.is_floating_point()):
            return leaf
        for dim, size in enumerate(leaf.shape):
            if size in orders and not (features and dim < leaf.dim() - 1):
                leaf = leaf.index_select(dim, orders[size])
        return leaf.contiguous()

    return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), call.label, call.beyond)


def is_affordable(call: Call, sizes: Mapping[int, int]) -> bool:
    """Whether the tensors of a call stay of moderate size with other sizes."""
    elements = (math.prod(sizes.get(size, size) for size in tensor.shape) for tensor in _tensors(call))
    return sum(elements) <= _ELEMENTS


def reranked_calls(call: Call) -> Iterator[Call]:
    """Yield a call whose floating tensors have a dimension more or less in front."""

    def mapped(fn: Any, label: str) -> Call:
        def each(leaf: Any) -> Any:
            return fn(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() > 1 else leaf

        return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), label, "sizes")

    yield mapped(lambda tensor: tensor.unsqueeze(0), "one more dimension")
    yield mapped(lambda tensor: tensor[0].contiguous(), "one dimension less")
