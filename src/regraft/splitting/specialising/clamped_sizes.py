"""Sizes that are equal in both worlds and still depend on other sizes, such as the three rows of
`k[:3]` where a mask chose the rows `k`: they are opened, or the host checks them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.nested import map_leaves
from regraft.splitting.observing.call_observation import Observed
from regraft.splitting.program.example_with_larger_sizes import lengthen
from regraft.splitting.program.residual_expressions import is_builtin_container, tensors_in
from regraft.splitting.program.size_questions import Shape
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.symbolic_sizes import Unknown
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.values import TensorValue, Value
from regraft.splitting.specialising.guarded_sizes import (
    SEVERAL,
    guard_number_of_results,
    guard_sizes,
    is_tensor,
)
from regraft.splitting.specialising.sizes_by_numbers import run_variant
from regraft.splitting.specialising.state import Specialisation


def settle_clamped_sizes(
    state: Specialisation, node: ast.AST, value: TensorValue, observation: Observed
) -> TensorValue:
    """Return the value with those sizes open that are equal in both worlds, although they depend on
    open sizes: on symbols for these, as PyTorch computes them, or else on runs with smaller sizes.

    With `state.clamps.guarded` the host checks instead that these sizes are as in the example. It
    checks all sizes that are equal in both worlds where none depends on open sizes, but a call
    narrows and may raise for others, and the size that decides the number of results where that
    may depend on it. Raises Unsplittable where the host cannot check.
    """
    if not is_suspect(state, value, observation):
        return value
    closed = list_closed_dimensions(value)
    if not any(closed):
        return value
    try:
        shapes, may_raise = state.symbolic.shapes(value.code, state.names)
    except Unknown:
        shapes, may_raise = try_smaller_sizes(state, value), True
    if [*map(len, shapes)] != [example.ndim for example in tensors_in([value.example])]:
        return guard_number_of_results(state, node, value)
    pairs = zip(closed, shapes, strict=True)
    clamped = [[dim for dim in dims if shape[dim] is None] for dims, shape in pairs]
    if any(clamped):
        state.clamps.count += 1
        return (guard_sizes if state.clamps.guarded else open_sizes)(state, node, value, clamped)
    is_narrow = may_raise and calls_narrow(value.code)
    return guard_sizes(state, node, value, closed) if is_narrow else value


def list_closed_dimensions(value: TensorValue) -> list[list[int]]:
    """Return, for each tensor in a value, the dimensions whose sizes are equal in both worlds; []
    where the worlds have different numbers of tensors."""
    examples, twins = tensors_in([value.example]), tensors_in([value.second_example])
    if len(examples) != len(twins):
        return []
    return [
        [dim for dim in range(example.ndim) if example.shape[dim] == twin.shape[dim]]
        for example, twin in zip(examples, twins, strict=True)
    ]


def try_smaller_sizes(state: Specialisation, value: TensorValue) -> list[Shape]:
    """Return the shape of each tensor in a value, with None for the sizes that change where the
    operands have 0, 1 or 2 elements in their open dimensions; code that raises there says nothing.

    Returns [] where another number of tensors results.
    """
    shapes: list[Shape] = [tuple(example.shape) for example in tensors_in([value.example])]
    for count in (0, 1, 2):
        names = {
            key: shrink(state.names[key], count)
            for key in read_names(value.code) & state.names.keys()
            if isinstance(state.names[key], TensorValue)
        }
        try:
            results = tensors_in([run_variant(state, value.code, names)])
        except Exception:  # noqa: BLE001  (whatever it raises for such sizes)
            continue
        if [result.ndim for result in results] != [*map(len, shapes)]:
            return []
        shapes = [
            drop_different_sizes(shape, result.shape)
            for shape, result in zip(shapes, results, strict=True)
        ]
    return shapes


def drop_different_sizes(shape: Shape, other_shape: torch.Size) -> Shape:
    """Return a shape with None for the sizes that are others in another shape of the same rank."""
    pairs = zip(shape, other_shape, strict=True)
    return tuple(size if size == other else None for size, other in pairs)


def shrink(value: Value, count: int) -> Any:
    """Return the example of a value, of a tensor with at most `count` elements in each open
    dimension."""
    tensor = value.example
    for dim in open_dimensions(value) if isinstance(tensor, torch.Tensor) else ():
        tensor = tensor.narrow(dim, 0, min(count, tensor.shape[dim]))
    return tensor


def open_sizes(
    state: Specialisation, node: ast.AST, value: TensorValue, dims_of_tensors: list[list[int]]
) -> TensorValue:
    """Return the value with these dimensions of its tensors open. Raises Unsplittable for tensors
    in other containers than tuples and lists."""
    dims = iter(dims_of_tensors)

    def lengthen_next(tensor: Any) -> Any:
        """Return the next tensor with its dimensions lengthened; other values as they are."""
        return lengthen(tensor, next(dims)) if isinstance(tensor, torch.Tensor) else tensor

    if not is_plain(value.example):
        raise state.refuse(node, SEVERAL)
    return replace(value, twin=map_leaves(value.second_example, lengthen_next))


def is_plain(value: Any) -> bool:
    """Return whether a value is a tensor or constant, or consists of tuples and lists of these."""
    if type(value) in (tuple, list):
        return all(map(is_plain, value))
    return not is_builtin_container(value)


def is_suspect(state: Specialisation, value: TensorValue, observation: Observed) -> bool:
    """Return whether a result may have a size that is the same from a bound on: an operand has open
    sizes, or values decide one, and an operation cuts; or one divides, and fewer sizes are open
    than of an operand."""
    operands = [state.names[key] for key in read_names(value.code) & state.names.keys()]
    counts = [len(open_dimensions(operand)) for operand in operands if is_tensor(operand)]
    if not (observation.shapes or any(counts)):
        return False
    has_lost = is_tensor(value) and len(open_dimensions(value)) < max(counts, default=0)
    return observation.clamps or (observation.divides and has_lost)


def calls_narrow(code: ast.expr) -> bool:
    """Return whether the code takes a part that has to be there as a whole."""
    nodes = ast.walk(code)
    return any(isinstance(child, ast.Attribute) and child.attr == "narrow" for child in nodes)
