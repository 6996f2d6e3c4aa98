"""Fixers of a model's inputs for statements that unpack one: its shape, or its parts.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from regraft.verification.child.drivers import described_shapes
from regraft.verification.child.drivers.argument_slots import BATCH, Dim, Slot, Spec
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot


def take_unpacked_shape(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has the axes that the innermost statement of the error unpacks its
    shape to, as `b, c, h, w = x.shape` does; nothing where `x` is not an input or a name tells
    nothing."""
    unpacked = described_shapes.unpacked_shape(problem.statement)
    if unpacked is None or unpacked[0] not in problem.spec:
        return
    name, axes = unpacked
    for reshaped in described_shapes.slots_of_axes(axes, problem.spec[name], problem.config):
        yield {**problem.spec, name: reshaped}


def add_missing_dimensions(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has further dimensions of size 1 behind the first, as many as were
    missing where a shape was unpacked; nothing where fewer than two were (`change_ranks` does)."""
    expected_rank, rank = int(match[1]), int(match[2])
    if expected_rank - rank < 2:
        return
    added = [Dim(1)] * (expected_rank - rank)
    for name, slot in problem.spec.items():
        if len(slot.dims) == rank:
            dims = (*slot.dims[:1], *added, *slot.dims[1:])
            yield with_changed_slot(problem.spec, name, dims=dims)


def give_two_parts(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has the two parts that the innermost statement of the error unpacks
    it to, as `h, c = state` or `rows, columns = index` do: two tensors in the shape of the first
    input, in its own, and in its own without the second dimension, and one tensor with a first
    dimension of 2. Nothing is yielded where another statement failed."""
    names, value = described_shapes.unpacking(problem.statement) or ((), None)
    name = value.id if isinstance(value, ast.Name) else ""
    if len(names) != 2 or name not in problem.spec:
        return
    slot = problem.spec[name]
    first_dims = next((other.dims for other in problem.spec.values() if other.dims), slot.dims)
    for dims in dict.fromkeys((first_dims, slot.dims, (BATCH, *slot.dims[2:]))):
        yield {**problem.spec, name: Slot("pair", dims)}
    yield with_changed_slot(problem.spec, name, dims=(Dim(2), *slot.dims[1:]))
