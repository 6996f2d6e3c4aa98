"""Splits of tensors into parts whose sizes, or ends, the host holds in a list, or into rows over
which a loop runs."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise

import torch

from regraft.splitting.program.residual import Branch, HostStep, Step
from regraft.splitting.program.residual_expressions import method_call
from regraft.splitting.program.statements import raise_message
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import HostValue, StaticValue, TensorValue, Value
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.elements import get_element, get_shape, make_tuple
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_number, index_elements

# the methods, and functions of torch, that take sizes of parts, or ends
SPLITS = frozenset({"split", "split_with_sizes", "tensor_split"})
# the names of that argument
NUMBERS = (
    "split_size_or_sections",
    "split_size",
    "split_sizes",
    "indices_or_sections",
    "indices",
)


def take_parts(
    state: Specialisation,
    node: ast.Call,
    function_name: str,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Return the parts of a tensor that `split_by_list` or `move_rows_first` gives; None where
    neither gives any. args: the tensor, and what follows."""
    parts = split_by_list(state, node, function_name, args, keywords)
    return move_rows_first(state, node, function_name, args, keywords) if parts is None else parts


def move_rows_first(
    state: Specialisation,
    node: ast.Call,
    function_name: str,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Return, for `unbind` along a dimension of open size over which a loop runs at once, the
    tensor with this dimension first: its rows are the parts. None for any other call."""
    tensor = keywords.get("input", args[0] if args else None)
    dim = keywords.get("dim", args[1] if len(args) > 1 else state.static(0))
    is_loop = function_name == "unbind" and getattr(node, "at_once", "") == "loop"
    if not is_loop or not isinstance(tensor, TensorValue) or not isinstance(dim, StaticValue):
        return None
    rank = tensor.example.ndim
    if dim.example not in range(-rank, rank) or dim.example % rank not in open_dimensions(tensor):
        return None
    code = method_call(tensor.code, "movedim", dim.code, ast.Constant(0))
    return state.bind_if_tensor(run_operation(state, node, code, [tensor]))


def split_by_list(
    state: Specialisation,
    node: ast.Call,
    function_name: str,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Return the parts of a tensor whose sizes (`split`) or ends (`tensor_split`) are a list that
    the host computes, as a tuple of slices; None for other functions and other arguments.

    args: the tensor, and what follows. The host raises RuntimeError for sizes that are not those of
    parts of the tensor, as torch does. Raises Unsplittable for a list whose length is not known,
    and a dimension that is not.
    """
    if function_name not in SPLITS or not args or not isinstance(args[0], TensorValue):
        return None
    options = {**dict(zip(("tensor", "numbers", "dim"), args, strict=False)), **keywords}
    arguments = [options[key] for key in ("numbers", *NUMBERS) if key in options]
    if not arguments or not is_list_of_host(state, arguments[0]):
        return None
    numbers, dim, rank = arguments[0], options.get("dim", state.static(0)), args[0].example.ndim
    if not isinstance(dim, StaticValue) or dim.example not in range(-rank, rank):
        raise state.refuse(node, f"{function_name} needs a dimension that is known and there")
    parts = list_numbers(state, node, numbers)
    if parts is None:
        raise state.refuse(
            node,
            f"{function_name} into a number of parts that is known only at run time is not"
            " supported: loop over slices",
        )
    tensor = state.bind_if_tensor(args[0])
    axis = dim.example % rank
    if function_name == "tensor_split":
        bounds: list[Value] = [state.static(None), *parts, state.static(None)]
    else:
        bounds = add_sizes(state, node, parts)
        size = get_element(state, get_shape(state, tensor), axis)
        append_size_check(state, node, parts, bounds[-1], size)
    slices = [
        take_slice(state, node, tensor, axis, lower, upper) for lower, upper in pairwise(bounds)
    ]
    slices = open_parts(state, node, slices, tensor, axis)
    state.values_decide_sizes = True
    # the host takes the slices, so that the sizes of a part are those of inputs of its regions
    return make_tuple(state, [state.bind_in_host(part) for part in slices])


def is_list_of_host(state: Specialisation, numbers: Value) -> bool:
    """Return whether a value is a list or tuple of whole numbers that the host computes from values
    of tensors, not from sizes alone."""
    if not isinstance(numbers, HostValue) or not isinstance(numbers.example, (list, tuple)):
        return False
    if not all(type(number) is int for number in numbers.example):
        return False
    if isinstance(numbers.code, (ast.List, ast.Tuple)):
        return any(
            isinstance(part, ast.Name) and isinstance(state.names.get(part.id), HostValue)
            for part in numbers.code.elts
        )
    return True


def list_numbers(state: Specialisation, node: ast.Call, numbers: Value) -> list[Value] | None:
    """Return the elements of a list or tuple of numbers, each under a name or static; None for a
    list whose length is not known."""
    if numbers.fields:
        elements: list[Value] | None = [
            get_element(state, numbers, place) for place in numbers.fields
        ]
    else:
        elements = index_elements(state, node, numbers)
    return elements and [bind_number(state, element) for element in elements]


def add_sizes(state: Specialisation, node: ast.Call, sizes: list[Value]) -> list[Value]:
    """Return 0 and the sums of the first one, two and so on of the sizes, each under a name."""
    bounds: list[Value] = [state.static(0)]
    for size in sizes:
        code = ast.BinOp(bounds[-1].code, ast.Add(), size.code)
        bounds.append(bind_number(state, run_code(state, node, code)))
    return bounds


def append_size_check(
    state: Specialisation, node: ast.Call, sizes: list[Value], total: Value, size: Value
) -> None:
    """Append a step by which the host raises RuntimeError for sizes of parts below 0, and for a sum
    of them, `total`, that is not the size of what is split."""
    reason = (
        f"{state.frame.path}:{node.lineno}: the sizes of the parts of a split have to be 0 or more,"
        " and to sum to the size of the tensor"
    )
    zero = ast.Constant(0)
    tests: list[ast.expr] = [
        ast.Compare(part.code, [ast.Lt()], [zero]) for part in sizes if not are_static([part])
    ]
    tests.append(ast.Compare(total.code, [ast.NotEq()], [size.code]))
    step = HostStep(raise_message("RuntimeError", reason), (state.frame.path, node.lineno))
    sides: list[tuple[ast.expr | None, list[Step]]] = [
        (ast.BoolOp(ast.Or(), tests), [step]),
        (None, []),
    ]
    state.steps.append(Branch(sides, node.lineno, state.frame.path, ["", ""]))


def take_slice(
    state: Specialisation, node: ast.Call, tensor: Value, axis: int, lower: Value, upper: Value
) -> TensorValue:
    """Return the part of a tensor between two bounds along one dimension."""
    everything = ast.Slice(None, None, None)
    bounds = ast.Slice(lower.code, upper.code, None)
    index = ast.Tuple([*[everything] * axis, bounds], ast.Load())
    code = ast.Subscript(tensor.code, index, ast.Load())
    part = run_operation(state, node, code, [tensor, lower, upper])
    assert isinstance(part, TensorValue)
    return part


def open_parts(
    state: Specialisation, node: ast.Call, parts: list[TensorValue], tensor: Value, axis: int
) -> list[TensorValue]:
    """Return the parts of a tensor along one dimension with open sizes: in the second world they
    have other sizes, which sum to the same. Raises Unsplittable where the tensor has too few rows
    for that."""
    sizes = [part.example.shape[axis] for part in parts]
    second_sizes = choose_other_sizes(sizes, tensor.second_example.shape[axis])
    if second_sizes is None:
        raise state.refuse(
            node,
            f"{sum(sizes)} rows are too few to follow a split into {len(sizes)} parts: let the"
            f" first example call have {len(sizes)} rows or more here",
        )
    twins = torch.split(tensor.second_example, second_sizes, axis)
    return [replace(part, twin=twin) for part, twin in zip(parts, twins, strict=True)]


def choose_other_sizes(sizes: list[int], total: int) -> list[int] | None:
    """Return sizes that sum to `total` and differ from all of `sizes`, place by place; None where
    there are none."""
    second_sizes = [int(size == 0) for size in sizes]
    surplus = total - sum(second_sizes)
    for place, size in enumerate(sizes):
        if surplus >= 0 and second_sizes[place] + surplus != size:
            second_sizes[place] += surplus
            return second_sizes
    return None
