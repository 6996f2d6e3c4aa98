"""Calls of the functions of torch, each run as one operation of a region, and of its tests of types
and of equal tensors."""

from __future__ import annotations

from regraft.splitting.errors import ReadInside
from regraft.splitting.program.residual_expressions import is_torch
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.call_operands import (
    TYPE_TESTS,
    Call,
    has_tensor,
    is_python_function,
)
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.list_splits import take_parts
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.tensor_calls import (
    COMPARISONS,
    check_scalars,
    check_squeeze,
    compare_tensors,
    read_single_numbers,
)


def call_type_test(state: Specialisation, call: Call) -> Value | None:
    """Call a function that asks for the type of a tensor, and return its constant result; None for
    another function."""
    if call.function not in TYPE_TESTS:
        return None
    return state.static(run_code(state, call.node, call.code).example)


def call_comparison(state: Specialisation, call: Call) -> Value | None:
    """Return the truth of `torch.equal` or `torch.allclose`, which compare whole tensors; None for
    other calls, and without a tensor."""
    if call.function not in COMPARISONS or not has_tensor(call):
        return None
    return compare_tensors(state, call.node, call.function, call.args, call.keywords)


def call_torch(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call of a function of torch, run as one operation; None for other
    functions, and for one in Python that reads values, which can be followed.

    Raises ReadInside for one that reads values and is not written in Python.
    """
    if not is_torch(call.function):
        return None
    parts = take_parts(state, call.node, call.function_name, call.args, call.keywords)
    if parts is not None:
        return parts
    check_scalars(state, call.node, call.operands)
    check_squeeze(state, call.node, call.function_name, call.args, call.keywords)
    try:
        code = read_single_numbers(state, call.code, call.operands)
        return run_operation(state, call.node, code, call.operands)
    except ReadInside:
        if not is_python_function(call.function):
            raise
    return None
