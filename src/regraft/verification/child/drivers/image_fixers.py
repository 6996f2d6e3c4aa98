"""Fixers of a model's inputs for errors about the sizes of images.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from regraft.verification.child.drivers.argument_slots import BATCH, GRID, Dim, Slot, Spec
from regraft.verification.child.drivers.described_shapes import AXIS_FRAMES, AXIS_SIDES
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot
from regraft.verification.child.drivers.shape_fixers import shape_of

_PATCH_PIXELS = (4, 1, 8, 16, 64)  # the numbers of pixels of usual patches, likely ones first
# The heights and widths of the images that published classifiers take, small ones first.
_USUAL_SIDES = (28, 48, 64, 84, 96, 128, 224, 227, 256, 299)


def take_image_size(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one is images of one channel, of the size to which the error says that
    they were to be resized, in place of the sizes that it had: an image for each row of the batch,
    then one for all rows."""
    sizes, wanted_sizes = (tuple(map(int, re.findall(r"\d+", text))) for text in match.groups())
    for name, slot in problem.spec.items():
        if slot.dims and shape_of(slot)[-len(sizes) :] == sizes:
            for rows in (BATCH, Dim(1)):
                dims = (rows, Dim(1), *map(Dim, wanted_sizes))
                yield with_changed_slot(problem.spec, name, dims=dims)


def take_convolved_rank(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one, whose sizes the error says a convolution got, is images of one
    channel, or such a video for a convolution of three dimensions."""
    rank, sizes = int(match[1]), tuple(map(int, re.findall(r"\d+", match[2])))
    places = (Dim(AXIS_FRAMES), *map(Dim, AXIS_SIDES[:1] * 2))[5 - rank :]
    for name, slot in problem.spec.items():
        if slot.dims and shape_of(slot) == sizes and rank > 3:
            dims = (BATCH, Dim(1), *places)
            yield with_changed_slot(problem.spec, name, dims=dims)


def fit_image_sides(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one, square images or a video, is so much smaller or larger that it
    has as many patches along a side, or as many in all, as a table of positions beside them."""
    sizes = int(match[1]), int(match[2])
    counts = [sizes, sizes[::-1]]
    roots = math.isqrt(sizes[0]), math.isqrt(sizes[1])
    if (roots[0] ** 2, roots[1] ** 2) == sizes:
        counts += [roots, roots[::-1]]
    for name, slot in problem.spec.items():
        for actual, wanted in counts if is_image(slot) else ():
            side, remainder = divmod(slot.dims[-1].factor * wanted, max(1, actual))
            if side and not remainder and actual <= slot.dims[-1].factor:
                dims = (*slot.dims[:-2], Dim(side), Dim(side))
                yield with_changed_slot(problem.spec, name, dims=dims)


def take_images_of_width(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one, whose last of three dimensions has one of the two sizes in the
    error, is images of so many channels: a layer whose weight stands before two dimensions of size
    one takes the channels there."""
    sizes = {int(match[1]), int(match[2])}
    for name, slot in problem.spec.items():
        if slot.kind == "normal" and len(slot.dims) == 3 and slot.dims[-1] in map(Dim, sizes):
            dims = (BATCH, slot.dims[-1], Dim(GRID), Dim(GRID))
            yield with_changed_slot(problem.spec, name, dims=dims)


def take_usual_sides(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one, square images, has other sides that are usual: a layer behind
    convolutions takes as many features as images of one size give."""
    for name, slot in problem.spec.items():
        if is_image(slot):
            for side in _USUAL_SIDES:
                dims = (*slot.dims[:-2], Dim(side), Dim(side))
                yield with_changed_slot(problem.spec, name, dims=dims)


def is_image(slot: Slot) -> bool:
    """Return whether a slot has square images, or a video of such, of a fixed size, channels
    first."""
    if slot.kind != "normal" or len(slot.dims) not in (4, 5):
        return False
    height, width = slot.dims[-2:]
    return height == width and not height.of and height.factor > 1


def fit_channels_beside(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one, images or a video, has so many more or fewer channels that a layer
    gets the width that it takes: the model puts other channels beside them, and makes a feature of
    each of the pixels of a patch."""
    difference = int(match[2]) - int(match[1])
    for name, slot in problem.spec.items():
        if len(slot.dims) < 4 or slot.dims[1].of:
            continue
        for pixels in _PATCH_PIXELS:
            channels = slot.dims[1].factor + difference // pixels
            if difference and difference % pixels == 0 and channels > 0:
                dims = (slot.dims[0], Dim(channels), *slot.dims[2:])
                yield with_changed_slot(problem.spec, name, dims=dims)
