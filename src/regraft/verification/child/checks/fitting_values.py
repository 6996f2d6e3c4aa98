"""Make tensors, pairs and tuples whose shapes fit the inputs of a call: masks, positions, biases,
states, cosines and sines."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, tensors

_WIDTHS = 4  # the most widths of the features that the layers of a module take
_CONTEXT_LENGTH = 7  # positions of a sequence beside an image
_LENGTHS = re.compile(r"(^|_)len(s|gths?)?$")  # names of numbers of positions in each row


def feature_widths(module: Any) -> tuple[int, ...]:
    """Return the last dimensions of a module's matrices, the most frequent first, at most
    `_WIDTHS`; () where it has none."""
    matrices = (
        [parameter for parameter in module.parameters() if parameter.dim() > 1]
        if module is not None
        else []
    )
    widths = Counter(int(matrix.shape[-1]) for matrix in matrices)
    return tuple(width for width, _ in widths.most_common(_WIDTHS))


def tensors_like(call: Call, name: str, widths: Sequence[int]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tensor that fits the inputs of a call; the name decides
    which come first. Yield nothing for a call without tensors.

    `widths` are those of the features that the module's layers take, the most frequent first.
    """
    inputs = [tensor for tensor in tensors(call) if tensor.dim()]
    if not inputs:
        return
    floats = [tensor for tensor in inputs if tensor.is_floating_point()]
    first = (floats or inputs)[0]
    random_tensors = _RandomTensors(first.dtype if floats else torch.float32)
    rows, length = first.shape[0], first.shape[1] if first.dim() > 1 else first.shape[0]
    if name.endswith("mask"):
        yield from _masks_like(inputs, rows, random_tensors)
    if _LENGTHS.search(name):
        yield "lengths", _lengths_like(rows, length)
    integers = _integers_like(rows, length)
    if name.endswith(("ids", "index", "indices", "positions")):
        yield from integers
    sequences = _sequence_shapes(first, widths[0] if widths else 0)
    for shape in (*sequences, *_shapes_like(first), *_shapes_of_widths(first, widths)):
        yield random_tensors.of_shape(*shape)
    yield from integers


def _sequence_shapes(first: Any, width: int) -> list[tuple[int, ...]]:
    """Return the shapes of a sequence of features beside an input: for each of its tokens, or what
    an image attends to; [] for other inputs, and where `width` is 0."""
    if not width:
        return []
    if first.dim() == 2 and not first.is_floating_point():
        return [(*first.shape, width)]
    return [(first.shape[0], _CONTEXT_LENGTH, width)] if first.dim() > 3 else []


def _shapes_of_widths(first: Any, widths: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of further features beside features for each position, of each of some
    widths but their own; [] for other inputs."""
    if first.dim() != 3 or not first.is_floating_point():
        return []
    return [(*first.shape[:-1], width) for width in widths if width != first.shape[-1]]


def _masks_like(
    inputs: Sequence[torch.Tensor], rows: int, random_tensors: _RandomTensors
) -> Iterator[tuple[str, Any]]:
    """Yield four masks, each after its description, for each length of the inputs: one of random
    numbers, of shape (rows, 1, 1, length), and three of truth values, of that shape, of shape
    (rows, length) and of shape (length, 1), in which one of three is False."""
    for keys in _sequence_lengths(inputs):
        yield random_tensors.of_shape(rows, 1, 1, keys)
        visible = torch.arange(rows * keys).remainder(3).view(rows, keys) != 1
        for mask in (visible[:, None, None], visible, visible[0, :, None]):
            yield f"true and false, shape {list(mask.shape)}", mask


def _lengths_like(rows: int, length: int) -> torch.Tensor:
    """Return a number of positions for each row: all in the first of several, fewer from row to
    row, at least one; half of them in a single row."""
    if rows == 1:
        return torch.tensor([(length + 1) // 2])
    return (length - torch.arange(rows) * max(1, length // 3)).clamp(min=min(1, length))


def _integers_like(rows: int, length: int) -> list[tuple[str, Any]]:
    """Return three tensors of integers, each after its description: one of shape (rows, length)
    that counts up from 0 and starts again halfway, one of shape (rows,), its first column, and one
    of shape (rows, length) for a choice of two, such as segments of a text: ones and zeros."""
    restarting = torch.arange(length).remainder(max(2, length // 2)).expand(rows, length).clone()
    alternating = torch.arange(1, length + 1).remainder(2).expand(rows, length).clone()
    return [
        ("whole numbers that start again", restarting),
        ("one number each", restarting[:, 0].clone()),
        ("ones and zeros", alternating),
    ]


class _RandomTensors:
    """Makes random tensors of one number format, each with its shape in words."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._generator = torch.Generator().manual_seed(0)

    def of_shape(self, *shape: int) -> tuple[str, Any]:
        """Return the shape in words and the next normal random tensor of that shape."""
        tensor = torch.randn(shape, generator=self._generator).to(self._dtype)
        return f"shape {list(shape)}", tensor


def _shapes_like(first: Any) -> list[tuple[int, ...]]:
    """Return shapes of tensors that go with an input: its own first, then those that share
    dimensions with it, () last; a shape may come several times."""
    rows, last = first.shape[0], first.shape[-1]
    shapes: list[tuple[int, ...]] = [tuple(first.shape)]
    if first.dim() > 1:
        length = first.shape[1]
        shapes += [
            tuple(first.shape[:-1]),
            (length, length),
            (rows, 1, length, length),
            (rows, last),
        ]
    return [*shapes, (last,), (rows,), ()]


def _sequences(call: Call) -> list[Any]:
    """Return the tensors of a call that are sequences of features: of three dimensions, with
    numbers of floating point."""
    return [tensor for tensor in tensors(call) if tensor.dim() == 3 and tensor.is_floating_point()]


def _sequence_lengths(inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return the different lengths of the first two inputs of three dimensions, and that of the two
    joined; the only length where there is a single such input, () where there is none."""
    lengths = [tensor.shape[1] for tensor in inputs if tensor.dim() == 3]
    return tuple(
        dict.fromkeys((*lengths[:2], *([lengths[0] + lengths[1]] if len(lengths) > 1 else [])))
    )


def pairs_like(call: Call, module: Any) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a pair of a cosine and a sine, each of shape (length, size
    of a head), for the lengths of the inputs of three dimensions; then those of shape (1, length,
    size of a head)."""
    inputs = _sequences(call)
    head_sizes = _head_sizes(module, inputs)
    generator = torch.Generator().manual_seed(0)
    lengths = _sequence_lengths(inputs)
    for rows, length, size in itertools.product(((), (1,)), lengths, head_sizes):
        angles = (
            torch.rand((*rows, length, size // 2), generator=generator)
            .to(inputs[0].dtype)
            .repeat_interleave(2, -1)
        )
        yield f"a pair of shape {list(angles.shape)}", (angles.cos(), angles.sin())


def tables_like(call: Call, module: Any) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a table with a sine and a cosine for each position and
    feature of a head, of shape (length, twice the size of a head), then one of half that width,
    for the lengths of the inputs of three dimensions, and those without a class token."""
    inputs = _sequences(call)
    widths = [width for size in _head_sizes(module, inputs) for width in (2 * size, size)]
    lengths = [part for length in _sequence_lengths(inputs) for part in (length, length - 1)]
    for length, width in itertools.product(dict.fromkeys(lengths), dict.fromkeys(widths)):
        yield _RandomTensors(inputs[0].dtype).of_shape(length, width)


def tuples_like(call: Call, count: int) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tuple of `count` tensors, the first ones shaped like the
    first input of a call, the last one of a shape that goes with it (no single number, which many
    functions do not depend on); nothing where `count` is 0 and for a call without tensors of
    floating-point numbers."""
    floats = [tensor for tensor in tensors(call) if tensor.dim() and tensor.is_floating_point()]
    if not floats or not count:
        return
    like = floats[0]
    random_tensors = _RandomTensors(like.dtype)
    for last in dict.fromkeys(shape for shape in _shapes_like(like) if shape):
        shapes = [tuple(like.shape)] * (count - 1) + [last]
        parts = tuple(random_tensors.of_shape(*shape)[1] for shape in shapes)
        yield f"{count} tensors of shapes {', '.join(str(list(shape)) for shape in shapes)}", parts


def _head_sizes(module: Any, inputs: Sequence[torch.Tensor]) -> list[int]:
    """Return possible sizes of attention heads, without duplicates: integer attributes of the
    module and its submodules with "head_dim" in their names, then the last size of the first input
    divided, rounded down, by each attribute with "heads" in its name (none without inputs)."""
    sizes = [
        (name, size)
        for part in module.modules()
        for name, size in vars(part).items()
        if type(size) is int
    ]
    named_sizes = [size for name, size in sizes if "head_dim" in name]
    head_counts = [size for name, size in sizes if "heads" in name and size] if inputs else []
    computed_sizes = [inputs[0].shape[-1] // count for count in head_counts]
    return list(dict.fromkeys([*named_sizes, *computed_sizes]))
