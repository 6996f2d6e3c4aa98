"""Fixers of a model's inputs for statements that unpack one (its shape, or its parts) or name its
axes.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from regraft.verification.child.checks.arguments_in_source import literal_value
from regraft.verification.child.drivers import described_shapes
from regraft.verification.child.drivers.argument_slots import BATCH, Dim, Slot, Spec
from regraft.verification.child.drivers.described_shapes import parsed_statement
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot

_EINSUM_SIZE = 4  # the size of an axis that only a letter or an index tells of


def take_unpacked_shape(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has the axes that the innermost statement of the error unpacks its
    shape to, as `b, c, h, w = x.shape` does; nothing where `x` is not an input or a name tells
    nothing."""
    unpacked = described_shapes.unpacked_shape(problem.statement)
    if unpacked is None or unpacked[0] not in problem.spec:
        return
    name, axes = unpacked
    pictures = re.search("im(g|age)|pict|video|frame|pixel", name) is not None
    for reshaped in described_shapes.slots_of_axes(
        axes, problem.spec[name], problem.config, pictures=pictures
    ):
        yield {**problem.spec, name: reshaped}


def take_unbound_axis(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has as many elements along an axis as the innermost statement of
    the error unpacks it to, as `x, y, w, h = boxes.unbind(-1)` does; nothing for another
    statement."""
    names, value = described_shapes.unpacking(problem.statement) or ((), None)
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(name), attr="unbind")):
            axes = [*value.args, *(keyword.value for keyword in value.keywords)]
        case _:
            return
    axis = literal_value(axes[0]) if axes else 0
    dims = problem.spec[name].dims if name in problem.spec else ()
    if isinstance(axis, int) and -len(dims) <= axis < len(dims):
        place = axis % len(dims)
        unbound = (*dims[:place], Dim(len(names)), *dims[place + 1 :])
        yield with_changed_slot(problem.spec, name, dims=unbound)


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


def add_indexed_dimensions(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has as many dimensions as the innermost statement of the error has
    indices for it, as `x[:, i, :, :]` does: further ones of a few elements, then of one, before the
    last."""
    for node in ast.walk(parsed_statement(problem.statement)):
        match node:
            case ast.Subscript(ast.Name(name), ast.Tuple(indices)) if name in problem.spec:
                dims = problem.spec[name].dims
                taken = [index for index in indices if not _takes_no_axis(index)]
                missing = len(taken) - len(dims)
                for size in (_EINSUM_SIZE, 1) if missing > 0 and len(dims) > 1 else ():
                    added = (Dim(size),) * missing
                    new_dims = (*dims[:-1], *added, dims[-1])
                    yield with_changed_slot(problem.spec, name, dims=new_dims)


def _takes_no_axis(index: ast.expr) -> bool:
    """Return whether an index is None or an ellipsis."""
    return isinstance(index, ast.Constant) and (index.value is None or index.value is Ellipsis)


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


def take_einsum_ranks(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with an axis for each letter that the equation of an `einsum` in the innermost
    statement of the error has for them: of inputs that had as many axes the letters stand for
    these, other letters for `_EINSUM_SIZE`. Nothing is yielded for another statement."""
    for letters_by_name in map(_einsum_operands, ast.walk(parsed_statement(problem.statement))):
        slots = {name: problem.spec[name] for name in letters_by_name if name in problem.spec}
        fitting = {n: s.dims for n, s in slots.items() if len(s.dims) == len(letters_by_name[n])}
        dim_by_letter = {
            letter: dim
            for name, dims in fitting.items()
            for letter, dim in zip(letters_by_name[name], dims, strict=True)
        }
        changed = {
            name: replace(
                slot,
                dims=tuple(
                    dim_by_letter.get(letter, Dim(_EINSUM_SIZE)) for letter in letters_by_name[name]
                ),
            )
            for name, slot in slots.items()
        }
        if changed:
            yield {**problem.spec, **changed}


def _einsum_operands(node: ast.AST) -> dict[str, str]:
    """Return by name the letters of each operand that is a name, where a node is a call of `einsum`
    with a constant equation; {} for any other node, and for equations with an ellipsis."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="einsum") | ast.Name("einsum"),
            args=[ast.Constant(str(equation)), *operands],
        ) if "." not in equation:
            terms = equation.replace(" ", "").partition("->")[0].split(",")
            pairs = zip(operands, terms, strict=False)
            return {operand.id: term for operand, term in pairs if isinstance(operand, ast.Name)}
    return {}
