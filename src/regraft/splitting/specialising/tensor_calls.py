"""Calls of torch that take more than to be run as one operation: comparisons of whole tensors,
sizes, tensors made of lists, and calls on constants."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable
from regraft.splitting.program.example_with_larger_sizes import lengthen
from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import TRUTHS
from regraft.splitting.program.residual import Branch, HostStep
from regraft.splitting.program.residual_expressions import (
    is_display,
    is_single_integer,
    method_call,
    name,
)
from regraft.splitting.program.statements import raise_message
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.values import NO_TWIN, HostValue, StaticValue, TensorValue, Value
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.deciding_modules import has_to_be_followed
from regraft.splitting.specialising.elements import get_element, get_shape, list_element_codes
from regraft.splitting.specialising.indexing import convert_list
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import read_slice_bound

# functions that compare whole tensors, and those that compare each element
COMPARISONS = {torch.equal: torch.eq, torch.allclose: torch.isclose}


def compare_tensors(
    state: Specialisation,
    node: ast.Call,
    function: Any,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Return the value of `torch.equal` or `torch.allclose`, as the truth of an operation on each
    element; raise Unsplittable for tensors whose dtypes differ, fewer than two tensors, and for
    `torch.allclose` of tensors whose shapes differ, or may differ."""
    examples = [
        example
        for argument in args
        for example in (argument.example, argument.second_example)
        if isinstance(example, torch.Tensor)
    ]
    may_differ = len({example.shape for example in examples}) > 1
    is_equal_call = function is torch.equal and not keywords and len(args) == 2
    if len(examples) < 4 or len({example.dtype for example in examples}) > 1:
        raise state.refuse(
            node,
            f"torch.{function.__name__} of tensors that differ in type is not supported: convert"
            " one of them",
        )
    if may_differ and is_equal_call:
        return compare_shapes_and_elements(state, node, *args)
    if may_differ:
        raise state.refuse(
            node,
            f"torch.{function.__name__} of tensors that may differ in shape is not supported",
        )
    compare = COMPARISONS[function]
    codes = (
        [argument.code for argument in args],
        [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
    )
    equal = ast.Call(state.alias_global(compare.__name__, compare), *codes)
    return evaluate_truth(
        state, run_operation(state, node, method_call(equal, "all"), [*args, *keywords.values()])
    )


def compare_shapes_and_elements(
    state: Specialisation, node: ast.Call, left: Value, right: Value
) -> Value:
    """Return the value of `torch.equal` of two tensors that may differ in shape: False for other
    sizes, which the host compares, else whether as many elements as both have are equal."""
    if left.example.ndim != right.example.ndim:
        return state.static(False)
    left, right = (value.with_code(state.bind_result(value)) for value in (left, right))
    shapes = [list_element_codes(get_shape(state, value)) or [] for value in (left, right)]
    pairs = [pair for pair in zip(*shapes, strict=True) if ast.dump(pair[0]) != ast.dump(pair[1])]
    if any(
        isinstance(size, ast.Constant) and isinstance(other, ast.Constant) for size, other in pairs
    ):
        return state.static(False)
    # as many elements as left has, for any sizes: those of right where the shapes are equal. In a
    # row, since torch.cat leaves out an empty tensor of one dimension.
    flat, *joined_rows = [flatten_to_row(value) for value in (left, right, left)]
    cat = state.alias_global("cat", torch.cat)
    joined = ast.Call(cat, [ast.List(joined_rows, ast.Load()), ast.Constant(1)], [])
    part = (ast.Slice(), ast.Slice(None, method_call(left.code, "numel")))
    common = ast.Subscript(joined, ast.Tuple([*part], ast.Load()), ast.Load())
    compare = ast.Call(state.alias_global("eq", torch.eq), [flat, common], [])
    elements = evaluate_truth(
        state, run_operation(state, node, method_call(compare, "all"), [left, right])
    )
    tests = [ast.Compare(size, [ast.Eq()], [other]) for size, other in pairs]
    return HostValue(
        torch.equal(left.example, right.example),
        ast.BoolOp(ast.And(), [*tests, elements.code]),
        torch.equal(left.second_example, right.second_example),
        among=TRUTHS,
    )


def flatten_to_row(value: Value) -> ast.expr:
    """Return code for the elements of a tensor as one row of two dimensions."""
    flat = value.code
    if value.example.ndim != 1:
        flat = method_call(flat, "reshape", ast.Constant(-1))
    return method_call(flat, "unsqueeze", ast.Constant(0))


def call_size(
    state: Specialisation, node: ast.Call, base: Value, method_name: str, operands: list[Value]
) -> Value:
    """Return the value of `x.size()`, `x.size(dim)`, `x.numel()` or `x.nelement()`; sizes may be
    known only at run time. Raises Unsplittable where `dim`, the index of the dimension, is not
    static, Unrunnable where there is no such dimension."""
    shape = get_shape(state, base)
    if method_name != "size":
        sizes = [list_element_codes(shape)] if base.example.ndim else []
        code: ast.expr = ast.Constant(1)
        for factor in (size for part in sizes for size in part or []):
            code = ast.BinOp(code, ast.Mult(), factor)
        value = run_code(state, node, code)
        return value if isinstance(shape, HostValue) else state.static(value.example)
    if not operands:
        return shape
    if not isinstance(operands[0], StaticValue):
        raise state.refuse(node, "size() of a dimension known only at run time is not supported")
    try:
        return get_element(state, shape, operands[0].example)
    except IndexError as problem:
        reason = f"cannot be run on the example: IndexError: {problem}"
        raise state.refuse(node, reason, Unrunnable) from problem


def convert_to_tensor(
    state: Specialisation, node: ast.AST, args: list[Value], keywords: dict[str, Value]
) -> tuple[ast.expr, list[Value]]:
    """Return code and operands for `torch.tensor` of a list of the host: its array, as a tensor of
    the dtype. Raises Unsplittable for a dtype that is not constant, other keywords and devices, and
    a list of unknown length without a dtype that is empty in the example."""
    dtype = args[1] if len(args) > 1 else keywords.get("dtype", state.static(None))
    device = keywords.get("device", state.static("cpu"))
    takes_others = set(keywords) - {"dtype", "device"} or str(device.example) != "cpu"
    if not isinstance(dtype, StaticValue) or takes_others:
        raise state.refuse(node, "torch.tensor of a host's list takes a constant dtype only")
    if dtype.example is None and not has_definite_length(state, args[0]):
        numbers = args[0].example
        if not numbers:
            reason = "torch.tensor of a list whose length is not known needs a dtype"
            raise state.refuse(node, reason)
        if not all(type(number) is float for number in numbers):
            append_error_for_untyped_list(state, node, args[0])
    array = convert_list(state, node, args[0])
    return (method_call(array.code, "to", dtype.code) if dtype.example else array.code), [array]


def append_error_for_untyped_list(state: Specialisation, node: ast.AST, numbers: Value) -> None:
    """Append a step by which the host raises RuntimeError for an empty list of whole numbers or
    truth values, of which torch would make floats."""
    reason = (
        "torch.tensor of an empty list gives floats here, which no example showed; write its dtype"
    )
    append_error_for_empty_list(state, node, numbers, "RuntimeError", reason)


def append_error_for_empty_list(
    state: Specialisation, node: ast.AST, values: Value, error: str, reason: str
) -> None:
    """Append a step by which the host raises an error of Python, with the place and a reason, for
    an empty list."""
    line = getattr(node, "lineno", 0)
    statement = raise_message(error, f"{state.frame.path}:{line}: {reason}")
    step = HostStep(statement, (state.frame.path, line))
    test = ast.UnaryOp(ast.Not(), state.write_for_host(values))
    state.steps.append(Branch([(test, [step]), (None, [])], line, state.frame.path, ["", ""]))


def concatenate_list(
    state: Specialisation,
    node: ast.AST,
    function: Any,
    args: list[Value],
    keywords: dict[Any, Value],
) -> Value:
    """Return `torch.cat` or `torch.stack` of a list whose length only the host knows, as a tensor
    that NumPy makes in the host, which raises torch's error for an empty list. Raise Unsplittable
    for a dimension that is not constant, and other keywords, Unrunnable for a list that is empty in
    the example."""
    dim = args[1] if len(args) > 1 else keywords.get("dim", StaticValue(0, ast.Constant(0)))
    if not isinstance(dim, StaticValue) or set(keywords) - {"dim"}:
        raise state.refuse(node, "torch.cat of a host's list takes a constant dim only")
    if not isinstance(args[0].code, ast.Name):
        args = [state.bind_in_host(args[0]), *args[1:]]
    if not has_definite_length(state, args[0]):
        append_error_for_empty_list(state, node, args[0], *error_for_no_tensors(function))
    code = ast.Call(
        ast.Attribute(
            name("numpy"), "concatenate" if function is torch.cat else "stack", ast.Load()
        ),
        [args[0].code],
        [ast.keyword("axis", dim.code)],
    )
    try:
        tensor, twin = (
            function(tensors, dim.example) for tensors in (args[0].example, args[0].second_example)
        )
    except (RuntimeError, ValueError, IndexError) as problem:
        reason = f"cannot be run on the example: {type(problem).__name__}: {problem}"
        raise state.refuse(node, reason, Unrunnable) from problem
    axis = dim.example % tensor.ndim
    if id(args[0].example) in state.ragged and twin.shape[axis] == tensor.shape[axis]:
        twin, state.values_decide_sizes = lengthen(twin, [axis]), True
    return state.bind_in_host(
        TensorValue(tensor, code, NO_TWIN if twin.shape == tensor.shape else twin)
    )


def error_for_no_tensors(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the name and the message of the error that `torch.cat` or `torch.stack` raises for an
    empty list."""
    try:
        function([])
    except (RuntimeError, ValueError) as problem:
        return type(problem).__name__, str(problem)
    raise AssertionError(f"{function.__name__} takes an empty list")


def check_scalars(state: Specialisation, node: ast.AST, operands: list[Value]) -> None:
    """Raise Unsplittable for a value of the host among the operands of a tensor operation, unless
    it is a number, a slice or a list or tuple written out."""
    for operand in operands:
        is_plain_number = isinstance(operand.example, (int, float, bool)) or isinstance(
            operand.code, ast.Slice
        )
        if isinstance(operand, HostValue) and not is_plain_number and not is_display(operand):
            raise state.refuse(
                node,
                f"a {type(operand.example).__name__} of the host goes into a tensor operation",
            )


def check_squeeze(
    state: Specialisation,
    node: ast.AST,
    method_name: str,
    args: list[Value],
    keywords: dict[str, Value],
) -> None:
    """Raise Unsplittable for a `squeeze` over a dimension whose size is open, since the size would
    decide how many dimensions there are; do nothing for other methods."""
    if method_name != "squeeze" or not args or not isinstance(args[0].example, torch.Tensor):
        return
    options = (*args[1:], *keywords.values())
    requested = options[0].example if options else range(args[0].example.ndim)
    dims = requested if isinstance(requested, (tuple, range)) else (requested,)
    if {dim % max(args[0].example.ndim, 1) for dim in dims} & {*open_dimensions(args[0])}:
        raise state.refuse(
            node, "sizes decide how many dimensions there are, which is not supported"
        )


def read_single_numbers(state: Specialisation, code: ast.Call, operands: list[Value]) -> ast.Call:
    """Return the call with the numbers that the host reads in the place of tensors of one integer,
    as in `torch.arange(t)`; the call as it is where torch can run it without their values."""
    integer_tensors = [operand for operand in operands if is_single_integer(operand.example)]
    sequences = [
        operand
        for operand in operands
        if any(map(is_single_integer, operand.example if operand.fields else ()))
    ]
    if not (integer_tensors or sequences) or not has_to_be_followed(state, code):
        return code
    numbers = {
        id(operand.code): read_slice_bound(state, operand.code, operand).code
        for operand in integer_tensors
    }
    for sequence in sequences:
        numbers[id(sequence.code)] = read_elements(state, sequence)
    keywords = [
        ast.keyword(keyword.arg, numbers.get(id(keyword.value), keyword.value))
        for keyword in code.keywords
    ]
    return ast.Call(
        code.func, [numbers.get(id(argument), argument) for argument in code.args], keywords
    )


def read_elements(state: Specialisation, sequence: Value) -> ast.Tuple:
    """Return the expression of a tuple in which the host reads each tensor of one integer as a
    number; other elements stay."""
    parts = [get_element(state, sequence, place) for place in sequence.fields]
    codes = [
        read_slice_bound(state, part.code, part).code
        if is_single_integer(part.example)
        else part.code
        for part in parts
    ]
    return ast.Tuple(codes, ast.Load())


def run_constant_call(state: Specialisation, node: ast.Call, code: ast.Call) -> Value | None:
    """Return the value of a call with static arguments; None for a call that has to be followed,
    that raises, or that gives an object that may change.

    Runs the call several times, and raises Unsplittable for a call whose constant result differs
    between two runs. Results that are no constants, such as a module or a type, are not compared.
    """
    if has_to_be_followed(state, code):
        return None
    example, second_example = (run_code(state, node, code).example for _ in range(2))
    is_constant = literal(example) is not None
    if is_constant and (type(example) is not type(second_example) or example != second_example):
        raise state.refuse(node, "gives something else each time it is called")
    immutable_types = (torch.dtype, torch.device, torch.nn.Module, type)
    is_immutable = isinstance(example, immutable_types) or inspect.isroutine(example)
    return state.static(example) if is_constant or is_immutable else None


def is_predictable(function: Any) -> bool:
    """Return whether a function may be run on constants: a Python function or method, which is run
    twice to see that it gives the same, a function of math, or a method of plain data."""
    is_data_method = isinstance(
        getattr(function, "__self__", None), (tuple, str, range, dict, list)
    )
    module = getattr(function, "__module__", "")
    return (
        inspect.isfunction(function)
        or inspect.ismethod(function)
        or is_data_method
        or module == "math"
    )
