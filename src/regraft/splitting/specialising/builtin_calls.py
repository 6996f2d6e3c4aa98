"""Evaluation of calls of Python's built-in functions, such as `max` and `zip`, and of functions of
`math`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import TRUTHS
from regraft.splitting.program.residual_expressions import holds_tensor, method_call, name
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.code_running import (
    is_constant_tensor,
    read_in_worlds,
    run_code,
    run_operation,
)
from regraft.splitting.specialising.constant_tables import check_host_operands
from regraft.splitting.specialising.elements import (
    get_element,
    get_shape,
    make_list,
    make_tuple,
    take_elements,
)
from regraft.splitting.specialising.host_sets import is_closed, is_host_set, make_set
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length
from regraft.splitting.specialising.number_builtins import test_type_of_number, zip_rows
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.sums_and_extremes import (
    has_mixed_types,
    reduce_list,
    select_extreme,
)
from regraft.splitting.specialising.values_stored_under_names import read_slice_bound

# the built-in functions that are supported
PURE_BUILTINS = frozenset(
    {
        "int",
        "float",
        "bool",
        "len",
        "range",
        "enumerate",
        "zip",
        "min",
        "max",
        "sum",
        "abs",
        "bin",
        "chr",
        "ord",
        "round",
        "list",
        "tuple",
        "dict",
        "reversed",
        "set",
        "slice",
        "sorted",
        "isinstance",
        "hasattr",
        "getattr",
        "str",
        "any",
        "all",
        "type",
        "divmod",
        "callable",
    }
)


@dataclass(frozen=True)
class BuiltinCall:
    """A call of a built-in function: its operands, positional ones first, and its residual code."""

    node: ast.Call
    function_name: str
    operands: list[Value]
    code: ast.Call

    @property
    def tensors(self) -> list[TensorValue]:
        """Return the operands that regions compute."""
        return [operand for operand in self.operands if isinstance(operand, TensorValue)]

    @property
    def function(self) -> Any:
        """Return the built-in function itself."""
        return getattr(builtins, self.function_name)


def call_builtin(
    state: Specialisation,
    node: ast.Call,
    function_name: str,
    operands: list[Value],
    code: ast.Call,
) -> Value:
    """Return the value of a call of a built-in function of Python: what its handler in BUILTINS
    gives, else a constant if all operands are static, else a value of the host, whose expression is
    the call.

    Raises Unsplittable for functions outside PURE_BUILTINS, and tensors that no handler takes.
    operands: the positional ones first, then those of the keywords.
    """
    if function_name not in PURE_BUILTINS:
        raise state.refuse(node, f"{function_name}() is not supported")
    if function_name == "range":
        operands = [read_slice_bound(state, node, operand) for operand in operands]
        code = ast.Call(code.func, [operand.code for operand in operands], [])
    call = BuiltinCall(node, function_name, operands, code)
    handler = BUILTINS.get(function_name)
    value = handler(state, call) if handler is not None else None
    if value is not None:
        return value
    if call.tensors:
        raise state.refuse(node, f"{function_name}() of a tensor is not supported")
    value = run_code(state, node, code)
    if are_static(operands):
        return state.static(value.example, code)
    among = TRUTHS if function_name in ("bool", "any", "all") else None
    return replace(convert_to_host(value), among=among)


# Each of the following evaluates the functions to which BUILTINS maps it. It returns None where the
# host runs the function as it stands.


def measure_length(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of len(): a constant for a list of known length, a set of known members and
    what has its elements one by one, such as a tuple; the first size for a tensor; None for other
    operands, with which the host runs the function."""
    operand = call.operands[0]
    if is_host_set(operand) and is_closed(state, operand):
        return state.static(len(operand.example))
    if has_definite_length(state, operand) or (isinstance(operand, HostValue) and operand.fields):
        return state.static(len(operand.example))
    tensors = call.tensors
    return get_element(state, get_shape(state, tensors[0]), 0) if tensors else None


def collect_elements(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return a list of the host, or a tuple, of the elements for list() or tuple() of a tensor, or
    of a tuple or record whose elements are known one by one, and list() of nothing; None for other
    operands, with which the host runs the function."""
    if call.function_name == "list" and not call.operands:
        return make_list(state, call.node, [])
    if not call.operands or not (call.tensors or call.operands[0].fields):
        return None
    elements = take_elements(state, call.node, call.operands[0])
    if call.function_name == "list":
        return make_list(state, call.node, elements)
    return make_tuple(state, elements)


def collect_set(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of set(): a set of the host; None for a constant where the function changes
    no set."""
    may_change = getattr(call.node, "changes", False) or not call.operands
    if are_static(call.operands) and not may_change:
        return None
    codes = [
        literal(list(operand.example)) or operand.code
        if isinstance(operand, StaticValue)
        else operand.code
        for operand in call.operands
    ]
    return make_set(state, call.node, ast.Call(name("set"), codes, []), call.operands)


def find_extreme(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of max() or min(): the largest or smallest of operands of which one is a
    tensor (`select_extreme`), or of a list of tensors (`reduce_list`); None for other operands,
    with which the host runs the function. Raises Unsplittable for numbers of several types."""
    if any(isinstance(operand, (TensorValue, EitherValue)) for operand in call.operands):
        return select_extreme(state, call.node, call.function_name, call.operands)
    return reduce_sequence(state, call)


def reduce_sequence(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return sum(), max() or min() of one list that holds tensors, as a tensor under a new name.

    Returns None for numbers of one type, for numbers that are all static, and for several arguments
    of which one is a tensor: these need nothing special. Raises Unsplittable for other numbers of
    several types, and for lists that `reduce_list` refuses.
    """
    if len(call.operands) == 1 and holds_tensor(call.operands[0].example):
        return reduce_list(state, call.node, call.function_name, call.operands[0], call.code)
    if not call.tensors and has_mixed_types(call.operands):
        raise state.refuse(
            call.node,
            f"{call.function_name}() of numbers of several types is not supported: make all float",
        )
    return None


def call_on_elements(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the tensor that a built-in such as abs() gives, which torch computes for each element
    of a tensor as one operation; None without a tensor."""
    if not call.tensors:
        return None
    return run_operation(state, call.node, call.code, call.operands)


def reverse_list(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return reversed() of a list of the host as a value of the host: the call itself is its
    expression, and no step is added. None for any other operand."""
    if not isinstance(call.operands[0].example, list):
        return None
    return convert_to_host(run_code(state, call.node, call.code))


def pair_elements(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of zip() or enumerate(): as a tuple of tuples where the elements of all
    operands are known one by one, and as a list of the host where another operand is a tensor, or
    may be one; None for other operands, and where all are static."""
    if are_static(call.operands):
        return None
    rows = zip_rows(state, call.node, call.function_name, call.operands)
    if rows is not None:
        return rows
    if call.tensors:
        code = ast.Call(name("list"), [bind_operands(state, call)], [])
        return convert_to_host(run_code(state, call.node, code))
    return None


def bind_operands(state: Specialisation, call: BuiltinCall) -> ast.Call:
    """Return the code of a call with names in the place of its operands, so that the host can run
    it; raise Unsplittable for an object that only the network has, such as a list of modules."""
    codes = [bind_operand(state, operand) for operand in call.operands]
    check_host_operands(state, call.node, [*map(convert_weight, call.operands)])
    count = len(call.code.args)
    keywords = [
        ast.keyword(keyword.arg, code)
        for keyword, code in zip(call.code.keywords, codes[count:], strict=True)
    ]
    return ast.Call(call.code.func, codes[:count], keywords)


def bind_operand(state: Specialisation, operand: Value) -> ast.expr:
    """Return an expression by which the host reads an operand, which a step computes where it is
    no name."""
    operand = convert_weight(operand)
    if isinstance(operand, HostValue) and not isinstance(operand.code, ast.Name):
        operand = state.bind_in_host(operand)
    return state.write_for_host(operand)


def convert_weight(operand: Value) -> Value:
    """Return a constant tensor as one that regions compute; any other value as it is."""
    if isinstance(operand, StaticValue) and isinstance(operand.example, torch.Tensor):
        return TensorValue(operand.example, operand.code)
    return operand


def test_type(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of isinstance() or type() of a tensor or a value of the host; None for other
    operands."""
    if not call.tensors and isinstance(call.operands[0], HostValue):
        return test_type_of_number(state, call.node, call.function_name, call.operands, call.code)
    return inspect_tensor(state, call)


def inspect_tensor(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of a built-in whose result the type of a tensor decides, not its values,
    such as hasattr(): a constant; None where no operand is a tensor."""
    return state.static(run_code(state, call.node, call.code).example) if call.tensors else None


def read_tensor(state: Specialisation, call: BuiltinCall) -> Value | None:
    """Return the value of int(), float() or bool() of a tensor: a constant if no input decides the
    tensor, else a number that the host reads by `item()`; bool() of a list of known length. None
    for other operands."""
    tensors = call.tensors
    if call.function is bool and call.operands and has_definite_length(state, call.operands[0]):
        return state.static(bool(call.operands[0].example))
    if not tensors or len(call.operands) != 1:
        return None
    if is_constant_tensor(state, tensors[0]):
        return state.static(call.function(tensors[0].example))
    number = method_call(state.bind_result(tensors[0]), "item")
    example, second_example = read_in_worlds(state, call.node, tensors[0], call.function)
    among = TRUTHS if call.function_name == "bool" else None
    code = ast.Call(name(call.function_name), [number], [])
    return HostValue(example, code, second_example, among=among)


BUILTINS: dict[str, Callable[[Specialisation, BuiltinCall], Value | None]] = {
    "abs": call_on_elements,
    "bool": read_tensor,
    "callable": inspect_tensor,
    "enumerate": pair_elements,
    "float": read_tensor,
    "hasattr": inspect_tensor,
    "int": read_tensor,
    "isinstance": test_type,
    "len": measure_length,
    "list": collect_elements,
    "max": find_extreme,
    "min": find_extreme,
    "reversed": reverse_list,
    "round": call_on_elements,
    "set": collect_set,
    "sum": reduce_sequence,
    "tuple": collect_elements,
    "type": test_type,
    "zip": pair_elements,
}
