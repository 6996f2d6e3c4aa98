"""Fixers of a model's inputs for the table of `input_repairs` that try other shapes: those of a
message, other ranks, other lengths.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
Numbers in a message are sizes at (batch, length) = `model_attempts.SIZE`, the size of the search.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from regraft.verification.child.drivers import described_shapes
from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    POSITIONS,
    Dim,
    Slot,
    Spec,
)
from regraft.verification.child.drivers.field_tables import HEADS
from regraft.verification.child.drivers.forward_inputs import FIXED_SHAPE_KINDS, POSITION_KINDS
from regraft.verification.child.drivers.input_fixers import (
    LARGEST,
    InputProblem,
    with_changed_dims,
    with_changed_slot,
)
from regraft.verification.child.drivers.model_attempts import SIZE

Dims = tuple[Dim, ...]
SHAPE = r"[(\[]((?:\d+,? ?)+)[)\]]"  # a shape in numbers
# The shape of a mask that is added to scores.
_ADDITIVE = (BATCH, Dim(1), LENGTH, LENGTH)
_MOST_ADDED = 4  # the most positions that a model is expected to add to its input


def take_described_shape(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has a shape that the error states in words."""
    for name, slot in problem.spec.items():
        for reshaped in described_shapes.slots_from_message(problem.failed.text, slot):
            yield {**problem.spec, name: reshaped}


def take_named_shape(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has another shape that the error names beside its own; of a shape
    of more dimensions also the first ones, since a mask has those of what it selects from."""
    texts = re.findall(SHAPE, problem.failed.text)
    shapes = [tuple(map(int, re.findall(r"\d+", text))) for text in texts]
    for name, slot in problem.spec.items():
        own_shape = shape_of(slot)
        for shape in shapes if own_shape and own_shape in shapes else ():
            if len(shape) > len(own_shape):  # the shape that a mask selects from
                yield _with_shape(problem.spec, name, shape[: len(own_shape)])
            if shape != own_shape:
                yield _with_shape(problem.spec, name, shape)


def refill_shape(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with as many elements as a shape has that the error names together with another
    number of elements: one dimension is changed in an input that has that other number, then the
    input has that shape, less its dimensions of one element. Nothing is yielded for a shape without
    elements."""
    wanted_shape = tuple(map(int, match[1].split(",")))
    wanted_count, element_count = math.prod(wanted_shape), int(match[2])
    if not wanted_count:
        return
    for name, slot in problem.spec.items():
        shape = shape_of(slot)
        if math.prod(shape) != element_count:
            continue
        for axis in reversed(range(len(shape))):
            row_elements = element_count // shape[axis]
            if wanted_count % row_elements == 0:
                dim = _dim_of_number(wanted_count // row_elements)
                dims = _with_dim(slot.dims, (axis,), dim)
                yield with_changed_slot(problem.spec, name, dims=dims)
        yield _with_shape(problem.spec, name, tuple(size for size in wanted_shape if size > 1))


def fit_split_sizes(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has, along a dimension of the size that had to be the sum of the
    sizes of parts, this sum."""
    wanted = sum(map(int, match[2].split(",")))
    for name, slot in problem.spec.items():
        for axis, size in enumerate(shape_of(slot)):
            if size == int(match[1]) and wanted:
                dims = _with_dim(slot.dims, (axis,), _dim_of_number(wanted))
                yield with_changed_slot(problem.spec, name, dims=dims)


def drop_surplus_dimensions(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one that has more dimensions than a pattern wants lacks those before
    the last one that are too many."""
    wanted, rank = int(match[1]), int(match[2])
    for name, slot in problem.spec.items():
        if len(slot.dims) == rank > wanted > 1:
            dims = (*slot.dims[: wanted - 1], slot.dims[-1])
            yield with_changed_slot(problem.spec, name, dims=dims)


def allow_for_added_positions(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs that have the size that the error wants once the model has added a few positions
    to them, such as a token for the whole image: one dimension, or the two equal last ones, whose
    product counts, are changed."""
    numbers = int(match[1]), int(match[2])
    for actual, wanted in (numbers, numbers[::-1]):
        for name, slot in problem.spec.items():
            for dims in _dims_before_addition(slot.dims, actual, wanted):
                yield with_changed_slot(problem.spec, name, dims=dims)


def _dims_before_addition(dims: Dims, actual: int, wanted: int) -> Iterator[Dims]:
    """Yield dimensions that are `wanted` once as many positions are added as make `actual` of the
    present ones, at most `_MOST_ADDED`."""
    sizes = [dim.at(SIZE) for dim in dims]
    for axis, size in enumerate(sizes):
        added = actual - size
        if 0 < added <= _MOST_ADDED and wanted > added:
            yield _with_dim(dims, (axis,), Dim(wanted - added))
    if len(sizes) > 2 and sizes[-1] == sizes[-2]:
        added = actual - sizes[-1] ** 2
        side = math.isqrt(max(0, wanted - added))
        if 0 < added <= _MOST_ADDED and side and side * side == wanted - added:
            yield (*dims[:-2], Dim(side), Dim(side))


def fit_width(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs that are so much narrower or wider that a layer gets the width it takes: all
    inputs of one width together, then each by itself.

    The model may compute features of a number that is a multiple of that width, as encodings of
    positions by sines do, or put the input beside others, whose widths then stay.
    """
    width, wanted_width = int(match[1]), int(match[2])
    own_widths = {
        name: slot.dims[-1].factor
        for name, slot in problem.spec.items()
        if slot.dims and not slot.dims[-1].of
    }
    for own_width in dict.fromkeys(own_widths.values()):
        names = [name for name, number in own_widths.items() if number == own_width]
        for new_width in _fitting_widths(own_width, width, wanted_width):
            for changed_names in (names, *([name] for name in names)):
                yield {
                    name: replace(slot, dims=(*slot.dims[:-1], Dim(new_width)))
                    if name in changed_names
                    else slot
                    for name, slot in problem.spec.items()
                }


def _fitting_widths(own_width: int, width: int, wanted_width: int) -> Iterator[int]:
    """Yield the widths of an input, `own_width` until now, with which a layer that got `width`
    would get `wanted_width`: in proportion, then beside other inputs."""
    if width == own_width:
        return
    if width % own_width == 0 and wanted_width % (width // own_width) == 0:
        yield wanted_width // (width // own_width)
    if width > own_width and wanted_width > width - own_width:
        yield wanted_width - (width - own_width)


def fit_proportion(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which one dimension, first each fixed one, then each other one but the batch,
    is larger or smaller in the proportion in which a layer takes more or fewer features than it
    got."""
    wanted = int(match["wanted"] or match["wanted_width"])
    actual = int(match["actual"] or match["actual_width"])
    places = [
        (name, axis, dim)
        for name, slot in problem.spec.items()
        for axis, dim in enumerate(slot.dims)
        if dim.of != "batch"
    ]
    for name, axis, dim in sorted(places, key=lambda place: bool(place[2].of)):
        if actual and dim.at(SIZE) * wanted % actual == 0:
            fitted = Dim(dim.at(SIZE) * wanted // actual)
            dims = _with_dim(problem.spec[name].dims, (axis,), fitted)
            yield with_changed_slot(problem.spec, name, dims=dims)


def exchange_numbers(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which a size that the error names is replaced by another number of the error,
    of at most `LARGEST`: in all dimensions of one input that have the size, and in each of them."""
    numbers = dict.fromkeys(map(int, re.findall(r"\d+", problem.failed.text)))
    sizes = [number for number in numbers if 0 < number <= LARGEST]
    for number in sizes:
        for name, slot in problem.spec.items():
            axes = [axis for axis, dim in enumerate(slot.dims) if dim.at(SIZE) == number]
            replacements = [size for size in sizes if size != number] if axes else []
            for dims in _exchanged_dims(slot.dims, axes, replacements):
                yield with_changed_slot(problem.spec, name, dims=dims)


def _exchanged_dims(dims: Dims, axes: list[int], sizes: list[int]) -> Iterator[Dims]:
    """Yield the dimensions with each of some sizes at all of the axes, and at each of them by
    itself."""
    for size in sizes:
        for changed_axes in {tuple(axes), *((axis,) for axis in axes)}:
            yield _with_dim(dims, changed_axes, _dim_of_number(size))


def give_batches(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which tensors whose first dimension is not the batch get one before it: all
    of them, then each by itself; nothing where no other tensor has a batch."""
    spec = problem.spec
    tensors = [name for name, slot in spec.items() if slot.dims]
    lacking = [name for name in tensors if spec[name].dims[0].of != "batch"]
    if len(lacking) == len(tensors):
        return
    for names in [lacking, *([name] for name in lacking)] if len(lacking) > 1 else [lacking]:
        if names:
            dims = {name: (BATCH, *spec[name].dims) for name in names}
            yield {**spec, **{name: replace(spec[name], dims=dims[name]) for name in names}}


def drop_single_dimensions(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one with more dimensions than the model expands to lacks one that is 1,
    as a mask without the dimension of heads; then those of which one lacks the length, such as a
    state to which the model adds this dimension itself."""
    rank = int(match[1])
    for name, slot in problem.spec.items():
        for axis, dim in enumerate(slot.dims):
            if len(slot.dims) > rank and dim == Dim(1):
                dims = (*slot.dims[:axis], *slot.dims[axis + 1 :])
                yield with_changed_slot(problem.spec, name, dims=dims)
    for name, slot in problem.spec.items():
        if slot.kind == "normal" and len(slot.dims) == rank and slot.dims[1] == LENGTH:
            yield with_changed_slot(problem.spec, name, dims=(slot.dims[0], *slot.dims[2:]))


def flatten_positions(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has a row for each position of the whole batch, where it meets a
    tensor with as many rows."""
    if POSITIONS.at(SIZE) in (int(match[1]), int(match[2])):
        for name, slot in problem.spec.items():
            if slot.dims[:2] == (BATCH, LENGTH):
                dims = (POSITIONS, *slot.dims[2:])
                yield with_changed_slot(problem.spec, name, dims=dims)


def change_ranks(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with shapes that are common for their kinds: first all inputs without a length,
    as rows of features with their labels, then those of an equal shape together, then each input by
    itself. Masks also become additive ones."""
    spec = problem.spec
    rows = {
        name: replace(slot, dims=tuple(dim for dim in slot.dims if dim.of != "length"))
        for name, slot in spec.items()
        if slot.kind not in FIXED_SHAPE_KINDS
    }
    if len(spec) > 1 and not rows.items() <= spec.items():
        yield {**spec, **rows}
    for names in _names_of_equal_shape(spec):  # as queries, keys and values are
        for dims in _common_shapes(spec[names[0]]):
            yield {**spec, **{name: replace(spec[name], dims=dims) for name in names}}
    for name, slot in spec.items():
        for dims in _common_shapes(slot):
            if dims != slot.dims:
                yield with_changed_slot(spec, name, dims=dims)
        if slot.kind == "mask":
            yield {**spec, name: Slot("additive", _ADDITIVE)}


def change_any_shape(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with lengths a few times larger, with fixed sizes twice or half as large, and
    with other ranks."""
    yield from _stretched_specs(problem.spec)
    yield from change_ranks(problem, match)


def _names_of_equal_shape(spec: Spec) -> list[list[str]]:
    """Return, for each shape that two inputs of real numbers or more share, the names of these
    inputs."""
    names_by_dims: dict[Dims, list[str]] = {}
    for name, slot in spec.items():
        if slot.kind == "normal":
            names_by_dims.setdefault(slot.dims, []).append(name)
    return [names for names in names_by_dims.values() if len(names) > 1]


def _common_shapes(slot: Slot) -> Iterator[Dims]:
    """Yield shapes that inputs of a slot's kind often have, perhaps its own among them; nothing for
    a kind whose shape is fixed and for an input without dimensions."""
    if not slot.dims or slot.kind in FIXED_SHAPE_KINDS:
        return
    if slot.kind in POSITION_KINDS:
        yield from (
            (BATCH,),
            (BATCH, Dim(2), LENGTH),
            (BATCH, LENGTH, Dim(2)),
            (LENGTH,),
            (BATCH, Dim(1), LENGTH),
        )
        return
    yield from _derived_shapes(slot.dims)
    width = slot.dims[-1] if not slot.dims[-1].of else Dim(32)
    yield from (
        (BATCH, LENGTH, width),
        (BATCH, width),
        (BATCH, LENGTH),
        (BATCH,),
        (BATCH, width, LENGTH),
        (BATCH, width, Dim(8), Dim(8)),
        (BATCH, Dim(8), Dim(8), width),
        (BATCH, Dim(2), LENGTH, width),
        (BATCH, Dim(HEADS), LENGTH, Dim(max(1, width.factor // HEADS))),
        (BATCH, LENGTH, LENGTH, width),
        (),
        (LENGTH, width),
        (POSITIONS, width),
    )


def _derived_shapes(dims: Dims) -> Iterator[Dims]:
    """Yield shapes that follow from a shape with at least one dimension, by its number of
    dimensions.

    Two: flat square patches (N, 3 * s * s) as images (N, 3, s, s). Three or more: a new second
    dimension of 2, then of 1. Four or more: without the second dimension. Five or more: the first
    two dimensions as one, if only the first depends on the call, such as frames as images.
    """
    side = math.isqrt(dims[-1].factor // 3)
    if len(dims) == 2 and side > 1 and dims[-1] == Dim(3 * side * side):  # patches of images, flat
        yield (dims[0], Dim(3), Dim(side), Dim(side))
    if len(dims) > 2:
        # of heads, 2 first: a dimension of 1 hides what it scales
        for number in (2, 1) if len(dims) == 3 else (1, 2):
            yield (dims[0], Dim(number), *dims[1:])
    if len(dims) > 3:
        yield (dims[0], *dims[2:])
    if len(dims) > 4 and dims[0].of and not dims[1].of:
        # all frames of a batch as a batch of images
        yield (Dim(dims[0].factor * dims[1].factor, dims[0].of), *dims[2:])


def _stretched_specs(spec: Spec) -> Iterator[Spec]:
    """Yield inputs with all lengths 2, 4 and 16 times as large; then inputs of which one has a
    fixed size from 8 to 512 doubled or halved, at all axes that have it, then at fewer of the
    last."""
    for factor in (2, 4, 16):
        longer = with_changed_dims(spec, functools.partial(_stretched_length, factor=factor))
        if longer != spec:
            yield longer
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            for new_factor in _stretched_factors(dim):
                axes = [i for i, d in enumerate(slot.dims) if d == dim and i >= axis]
                dims = _with_dim(slot.dims, axes, Dim(new_factor))
                yield with_changed_slot(spec, name, dims=dims)


def _stretched_length(dim: Dim, factor: int) -> Dim:
    """Return a dimension that depends on the length with a `factor` times larger factor; other
    dimensions unchanged."""
    return Dim(factor * dim.factor, dim.of) if dim.of == "length" else dim


def _stretched_factors(dim: Dim) -> tuple[int, ...]:
    """Return twice and half of a fixed size from 8 to 512; () for other dimensions."""
    is_stretched = not dim.of and 8 <= dim.factor <= 512
    return (2 * dim.factor, dim.factor // 2) if is_stretched else ()


def shape_of(slot: Slot) -> tuple[int, ...]:
    """Return the numbers of elements along the dimensions of an input at the size of the search."""
    return tuple(dim.at(SIZE) for dim in slot.dims)


def _with_shape(spec: Spec, name: str, shape: tuple[int, ...]) -> Spec:
    """Return a copy of a specification of inputs in which one has a shape that an error names in
    numbers."""
    return with_changed_slot(spec, name, dims=tuple(map(_dim_of_number, shape)))


def _with_dim(dims: Dims, axes: Iterable[int], new_dim: Dim) -> Dims:
    """Return the dimensions with `new_dim` at some axes."""
    return tuple(new_dim if axis in axes else dim for axis, dim in enumerate(dims))


def _dim_of_number(number: int) -> Dim:
    """Return the dimension that a number in an error message stands for: the batch, the length or
    all positions if it has their number at the size of the search, else a fixed one."""
    dims = {dim.at(SIZE): dim for dim in (POSITIONS, LENGTH, BATCH)}
    return dims.get(number, Dim(number))
