"""Sums, maxima and minima of tensors and numbers, and their positions."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

import torch

from regraft.splitting.program.possible_constants import distinct_constants
from regraft.splitting.program.residual_expressions import is_display, method_call, name
from regraft.splitting.program.use_marks import mark_uses
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import NO_TWIN, EitherValue, HostValue, TensorValue, Value
from regraft.splitting.specialising.assignment_targets import store
from regraft.splitting.specialising.code_running import read_number, run_operation
from regraft.splitting.specialising.elements import take_elements
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.tensor_calls import concatenate_list


def is_single_value(value: Value) -> bool:
    """Return whether a value is a tensor of one element, or an EitherValue whose tensor is."""
    return (
        isinstance(value, (TensorValue, EitherValue))
        and isinstance(value.example, torch.Tensor)
        and value.example.numel() == 1
    )


def has_mixed_types(operands: list[Value]) -> bool:
    """Return whether inputs decide the type of the sum, maximum or minimum of these numbers: they
    have several types, and not all are known now. A single list or tuple stands for its
    elements."""
    first = operands[0].example
    is_sequence = len(operands) == 1 and isinstance(first, (list, tuple))
    numbers = [*first] if is_sequence else [operand.example for operand in operands]
    kinds = {type(number) for number in numbers}
    return not are_static(operands) and kinds <= {bool, int, float} and len(kinds) > 1


def reduce_list(
    state: Specialisation, node: ast.Call, function_name: str, tensors: Value, code: ast.expr
) -> Value:
    """Return `sum`, `max` or `min` of tensors in a list of the host, as a tensor under a new name;
    raise Unsplittable for `max` and `min` of tensors of several values, and what the host does not
    hold."""
    function = getattr(builtins, function_name)
    are_single = all(
        isinstance(tensor, torch.Tensor) and tensor.numel() == 1 for tensor in tensors.example
    )
    if not isinstance(tensors, HostValue) or not (function_name == "sum" or are_single):
        raise state.refuse(node, f"{function_name}() of what this holds is not supported")
    with torch.no_grad():
        example, second_example = function(tensors.example), function(tensors.second_example)
    return state.bind_in_host(
        TensorValue(example, code, NO_TWIN if tensors.twin is NO_TWIN else second_example)
    )


def select_extreme(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value]
) -> Value:
    """Return `max` or `min` of tensors of one element each, also beside numbers: the first of the
    largest or smallest. A single operand stands for its elements.

    Raises Unsplittable for keywords, and tensors of several values or types. The result may share
    memory with each candidate.
    """
    candidates = operands if len(operands) > 1 else take_elements(state, node, operands[0])
    are_single = all(
        type(candidate.example) in (int, float) or is_single_value(candidate)
        for candidate in candidates
    )
    if (
        are_single
        and not node.keywords
        and len(candidates) > 1
        and any(not isinstance(candidate, TensorValue) for candidate in candidates)
    ):
        return decide_extreme(state, node, function_name, candidates)
    if (
        node.keywords
        or not are_single
        or len({(candidate.example.dtype, candidate.example.shape) for candidate in candidates}) > 1
    ):
        raise state.refuse(
            node,
            f"{function_name}() of tensors that are not single values of one type is not supported",
        )
    where_code = state.alias_global("where", torch.where)
    best = candidates[0]
    for candidate in candidates[1:]:
        sign = ast.Gt() if function_name == "max" else ast.Lt()
        codes = [state.bind_result(candidate), state.bind_result(best)]
        selection = ast.Call(where_code, [ast.Compare(codes[0], [sign], [codes[1]]), *codes], [])
        best = run_operation(state, node, selection, [candidate, best])
    best = state.require_single_kind(node, best)
    assert isinstance(best, TensorValue)
    return state.merge_aliases(best, candidates)  # one of them itself, which `+=` would change


def decide_extreme(
    state: Specialisation, node: ast.Call, function_name: str, candidates: list[Value]
) -> Value:
    """Return `max` or `min` of tensors and numbers of Python by comparing two at a time: each
    comparison is a decision, after which the value is one or the other."""
    names = [state.fresh_name() for _ in candidates]
    for key, candidate in zip(names, candidates, strict=True):
        store(state, ast.Name(key, ast.Store()), candidate)
    best: ast.expr = name(names[0])
    for key in names[1:]:
        test = ast.Compare(name(key), [ast.Gt() if function_name == "max" else ast.Lt()], [best])
        selection = ast.fix_missing_locations(
            ast.copy_location(ast.IfExp(test, name(key), best), node)
        )
        mark_uses(selection)
        selection.either = True  # type: ignore[attr-defined]
        value, larger = state.evaluate(selection), state.fresh_name()
        store(state, ast.Name(larger, ast.Store()), value)
        best = name(larger)
    return value


def find_extreme_position(
    state: Specialisation, node: ast.Call, function_name: str, sequence: Value
) -> Value:
    """Return what `numpy.argmax` or `numpy.argmin` (`function_name`) gives for a list or tuple of
    tensors of one element each, as a number that the host reads: the first position of the largest
    or smallest.

    Raises Unsplittable for other elements, and tensors of different dtypes.
    """
    examples = list(sequence.example)
    are_single = all(
        isinstance(example, torch.Tensor) and example.numel() == 1 for example in examples
    )
    if not are_single or len({example.dtype for example in examples}) != 1:
        raise state.refuse(
            node,
            f"{function_name}() of what is no list of tensors of one element and one type each is"
            f" not supported: write torch.stack(values).{function_name}()",
        )
    if is_display(sequence):
        stack = state.alias_global("stack", torch.stack)
        stacked = run_operation(state, node, ast.Call(stack, [sequence.code], []), [sequence])
    else:
        stacked = concatenate_list(state, node, torch.stack, [sequence], {})
    code = method_call(state.bind_result(stacked), function_name)
    position = read_number(state, run_operation(state, node, code, [stacked]))
    has_length = is_display(sequence) or has_definite_length(state, sequence)
    positions = distinct_constants(range(len(examples))) if has_length else None
    return replace(position, among=positions)
