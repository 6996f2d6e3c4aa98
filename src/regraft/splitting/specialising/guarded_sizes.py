"""Steps in which the host raises ValueError for sizes that differ from those of the examples in a
way that the residual program does not follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch

from regraft.splitting.program.residual import BEYOND_LIMITS, HostStep
from regraft.splitting.program.residual_expressions import name, tensors_in
from regraft.splitting.program.statements import Check, read_names
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.values import TensorValue, Value
from regraft.splitting.specialising.sizes_by_numbers import run_variant
from regraft.splitting.specialising.state import Specialisation

SEVERAL = "the number or the sizes of several results depend on sizes that are not known"
MAX_TRIED = 64  # the largest size that is tried, unless the example has a larger one


def is_tensor(value: Value) -> bool:
    """Return whether a value is a single tensor that a region computes."""
    return isinstance(value, TensorValue) and isinstance(value.example, torch.Tensor)


def guard_sizes(
    state: Specialisation, node: ast.AST, value: TensorValue, dims_of_tensors: list[list[int]]
) -> TensorValue:
    """Return the value under a name, after a step in which the host raises ValueError unless the
    sizes of these dimensions of the tensor are those of the example. Raises Unsplittable for
    several tensors."""
    if not isinstance(value.example, torch.Tensor):
        raise state.refuse(node, SEVERAL)
    code = state.bind_result(value)
    sizes = {dim: value.example.shape[dim] for dim in dims_of_tensors[0]}
    tests: list[ast.expr] = [
        ast.Compare(write_size(code, dim), [ast.Eq()], [ast.Constant(size)])
        for dim, size in sizes.items()
    ]
    texts = " and ".join(f"{size} in dimension {dim}" for dim, size in sizes.items())
    test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
    append_check(state, test, f"the size of this tensor is {texts} in all examples")
    return value.with_code(code)


def append_check(state: Specialisation, test: ast.expr, text: str) -> None:
    """Append a step in which the host raises ValueError, with what held in the examples, where the
    test does not hold."""
    path, line = state.location
    message = (
        f"{path}:{line}: {BEYOND_LIMITS}; {text}: split again with an example call in which it is"
        " another one"
    )
    state.steps.append(HostStep(Check(test, message), state.location))


def range_around(size: int, sizes: set[int]) -> tuple[int, int]:
    """Return the first and the last of the sizes that follow each other without a gap around
    `size`, which is one of them."""
    low, high = size, size
    while low - 1 in sizes:
        low -= 1
    while high + 1 in sizes:
        high += 1
    return low, high


def guard_number_of_results(
    state: Specialisation, node: ast.AST, value: TensorValue
) -> TensorValue:
    """Return the value, after a step in which the host raises ValueError unless the size that
    decides how many tensors there are, as in `k.chunk(2)`, gives as many as in the example.

    Sizes up to `MAX_TRIED` are tried. Raises Unsplittable where several sizes may decide.
    """
    axes = [
        (key, dim)
        for key in sorted(read_names(value.code) & state.names.keys())
        if is_tensor(state.names[key])
        for dim in open_dimensions(state.names[key])
    ]
    if len(axes) != 1:
        raise state.refuse(node, SEVERAL)
    ((key, dim),) = axes
    size = state.names[key].example.shape[dim]
    sizes = set(list_equal_sizes(state, value, key, dim))
    if size not in sizes:
        raise state.refuse(node, SEVERAL)
    low, high = range_around(size, sizes)
    code = write_size(name(key), dim)
    test = ast.Compare(ast.Constant(low), [ast.LtE(), ast.LtE()], [code, ast.Constant(high)])
    text = f"the size in dimension {dim} of the tensor that is divided is from {low} to {high}"
    append_check(state, test, text)
    return value


def list_equal_sizes(
    state: Specialisation, value: TensorValue, key: str, dim: int
) -> Iterator[int]:
    """Yield the sizes of a dimension of the tensor `key` for which the code of a value gives as
    many tensors, of as many dimensions, as in the example."""
    tensor = state.names[key].example
    size = tensor.shape[dim]
    ranks = [result.ndim for result in tensors_in([value.example])]
    for other_size in range(max(MAX_TRIED, size) + 1 if size else 0):
        rows = torch.arange(other_size) % size
        try:
            result = run_variant(state, value.code, {key: tensor.index_select(dim, rows)})
        except Exception:  # noqa: BLE001  (whatever it raises for such a size)
            continue
        if [part.ndim for part in tensors_in([result])] == ranks:
            yield other_size


def write_size(code: ast.expr, dim: int) -> ast.expr:
    """Return the expression of a tensor's size in a dimension."""
    shape = ast.Attribute(code, "shape", ast.Load())
    return ast.Subscript(shape, ast.Constant(dim), ast.Load())
