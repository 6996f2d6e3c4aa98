"""Samples that are made of a region's samples: with other numbers, other values and other sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch

from regraft.splitting.checking.rounding_test import change_floats
from regraft.splitting.compiling.size_limits import Sample, varying_axes
from regraft.splitting.program.residual import Region

WHOLE_NUMBERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
COMPARED_SIZES = (1, 2, 3, 17, 64, 257)  # sizes beside those of the samples
EVERY_SIZE = 64  # the largest size up to which every size is compared where limits need it
LARGE = 1e4  # exponential functions overflow, squares do not
MAX_ELEMENTS = 1_000_000  # elements of an input that is made for a comparison

Axis = tuple[int, int]  # the number of an input, and of a dimension


def change_numbers(sample: Sample) -> Iterator[Sample]:
    """Yield two changed samples: with its tensors of one number (without dimensions) a little
    larger, and a little smaller. Yield nothing where it has no such tensor."""
    for step in (1, -1) if any(tensor.dim() == 0 for tensor in sample) else ():
        yield tuple(
            change_number(tensor, step) if tensor.dim() == 0 else tensor for tensor in sample
        )


def change_number(number: torch.Tensor, step: int) -> torch.Tensor:
    """Return a tensor of one number changed: whole numbers by `step` (1 or -1), floats by a quarter
    of themselves and 0.5 in that direction; a truth value becomes its opposite."""
    if number.dtype == torch.bool:
        return ~number
    return number + step if not number.is_floating_point() else number * (1 + step / 4) + step / 2


def change_whole_numbers(sample: Sample, *, may_be_sizes: bool) -> Iterator[Sample]:
    """Yield the sample with the whole numbers of its tensors negated and, unless they may be sizes,
    another with the numbers shifted up to the largest of their type. Tensors without dimensions
    stay as they are; yield nothing where no other tensor holds whole numbers."""
    for change in (torch.neg,) if may_be_sizes else (torch.neg, towards_largest):
        changed = tuple(
            change(tensor) if tensor.dim() and tensor.dtype in WHOLE_NUMBERS else tensor
            for tensor in sample
        )
        if any(new is not old for new, old in zip(changed, sample, strict=True)):
            yield changed


def enlarge_floats(sample: Sample) -> Sample:
    """Return the sample with each tensor of floats multiplied so that its largest absolute value is
    `LARGE`."""
    return tuple(change_floats(tensor, _enlarge) for tensor in sample)


def _enlarge(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor times the factor, at most `LARGE` squared, by which its largest absolute
    value becomes `LARGE`; an empty tensor as it is."""
    if not tensor.numel():
        return tensor
    return tensor * (LARGE / tensor.abs().max().clamp(min=1 / LARGE))


def with_negative_zero(sample: Sample) -> Sample:
    """Return the sample with negative zero as the first number of each floating-point tensor; with
    a second zero the order of equal numbers would matter."""
    return tuple(change_floats(tensor, _with_negative_zero) for tensor in sample)


def _with_negative_zero(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of the tensor with negative zero as its first number; an empty one as it is."""
    numbers = tensor.clone(memory_format=torch.contiguous_format).view(-1)
    numbers[:1] = -0.0
    return numbers.view(tensor.shape)


def towards_largest(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor of whole numbers plus a number, so that its largest is the largest of its
    type, or 2**60 for int64, where sums still fit."""
    largest = 2**60 if tensor.dtype == torch.int64 else torch.iinfo(tensor.dtype).max
    return tensor + (largest - tensor.max()) if tensor.numel() else tensor


def resized_samples(region: Region, *, every_size: bool) -> Iterator[Sample]:
    """Yield samples of other sizes: those sizes that differ between the region's samples become
    each of `COMPARED_SIZES`, or with `every_size` every size up to `EVERY_SIZE`. Yield nothing
    where no sizes differ.

    First all sizes change together, where sizes whose difference is always the same keep it, then
    each group of sizes that are always equal alone. Where a number of the host is no position among
    so many elements, a sample follows in which it is one.
    """
    generator = torch.Generator().manual_seed(0)
    groups = axes_by_sizes(region)
    if not groups:
        return
    sample = max(region.samples, key=lambda tensors: min(map(torch.Tensor.numel, tensors)))
    first_sizes = next(iter(groups))
    together = {
        axis: constant_difference(sizes, first_sizes)
        for sizes, axes in groups.items()
        for axis in axes
    }
    alone = [dict.fromkeys(axes, 0) for axes in groups.values()] if len(groups) > 1 else []
    for offsets in (together, *alone):
        for size in range(1, EVERY_SIZE + 1) if every_size else COMPARED_SIZES:
            sizes = {axis: size + offset for axis, offset in offsets.items()}
            resized = resize(sample, sizes, generator)
            yield resized
            if (with_positions := fit_positions(region, resized, size)) is not None:
                yield with_positions


def fit_positions(region: Region, sample: Sample, size: int) -> Sample | None:
    """Return the sample with those whole numbers of the host that are no positions among `size`
    elements replaced by positions; None where all are."""
    changed = tuple(
        tensor % max(size, 1)
        if key in region.numbers and tensor.dtype == torch.int64 and not -size <= tensor < size
        else tensor
        for key, tensor in zip(region.inputs, sample, strict=True)
    )
    return None if all(map(operator.is_, changed, sample)) else changed


def axes_by_sizes(region: Region) -> dict[tuple[int, ...], list[Axis]]:
    """Return the axes (number of the input, dimension) whose size differs between the region's
    samples, grouped by the sizes that they have in the samples."""
    groups: dict[tuple[int, ...], list[Axis]] = {}
    axes = varying_axes(region)
    for place, key in enumerate(region.inputs):
        for dim in axes.get(key, ()):
            sizes = tuple(sample[place].shape[dim] for sample in region.samples)
            groups.setdefault(sizes, []).append((place, dim))
    return groups


def constant_difference(sizes: tuple[int, ...], first_sizes: tuple[int, ...]) -> int:
    """Return by how much `sizes` exceed `first_sizes` if that is the same in all samples; else
    0."""
    differences = {size - first for size, first in zip(sizes, first_sizes, strict=True)}
    return differences.pop() if len(differences) == 1 else 0


def resize(sample: Sample, sizes: dict[Axis, int], generator: torch.Generator) -> Sample:
    """Return a sample of other sizes along the axes in `sizes`; an axis keeps its size where that
    or the new one is 0 or less, or the tensor would have more than `MAX_ELEMENTS`.

    Rows are repeated or left out; floating-point numbers move a little at random, so that none are
    equal.
    """
    resized = list(sample)
    for (place, dim), size in sizes.items():
        tensor = resized[place]
        row_elements = tensor.numel() // max(tensor.shape[dim], 1)
        if tensor.shape[dim] and size > 0 and row_elements * size <= MAX_ELEMENTS:
            rows = torch.arange(size) % tensor.shape[dim]
            resized[place] = perturb_floats(tensor.index_select(dim, rows), generator)
    return tuple(resized)


def perturb_floats(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the tensor with each floating-point number a little larger or smaller, at random; a
    tensor of other numbers as it is."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    return tensor * (1 + noise / 16) + noise / 1024


def change_values(sample: Sample, factor: float) -> Sample:
    """Return the sample with values for which other rows may be chosen.

    Floats are multiplied by the factor; truth values are all True where it is positive, and all
    False otherwise; integers stay.
    """
    return tuple(
        torch.full_like(tensor, factor > 0)
        if tensor.dtype == torch.bool
        else tensor * factor
        if tensor.is_floating_point()
        else tensor
        for tensor in sample
    )
