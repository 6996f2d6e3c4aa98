"""Runs of residual code on the example and in the second world, which give the values of
expressions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from regraft.splitting.errors import ReadInside, Unrunnable, Unsplittable
from regraft.splitting.observing.call_observation import Observed, observe
from regraft.splitting.program.example_with_larger_sizes import Longer
from regraft.splitting.program.residual_expressions import (
    holds_tensor,
    method_call,
    storage_key,
    tensors_in,
)
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.value_kinds_and_parts import has_kind, is_independent, lists_in
from regraft.splitting.program.values import (
    NO_TWIN,
    ComputedValue,
    HostValue,
    RecordValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.clamped_sizes import settle_clamped_sizes
from regraft.splitting.specialising.constant_tables import check_host_operands
from regraft.splitting.specialising.followed_code import NotRun
from regraft.splitting.specialising.list_lengths_and_aliases import length_depends, note_ragged
from regraft.splitting.specialising.objects_made_in_forward import holds_stand_in
from regraft.splitting.specialising.sizes_by_numbers import open_sizes_by_numbers
from regraft.splitting.specialising.slice_widths import fix_widths
from regraft.splitting.specialising.state import Specialisation

# most operations in the second world: so many times those on the example, of which 10 more count
OPERATION_FACTOR = 20


def is_constant_tensor(state: Specialisation, value: Value) -> bool:
    """Return whether a tensor holds the same for every input, sizes included: it is equal in both
    worlds, and no input decides it, or the names that its expression reads."""
    return value.twin is NO_TWIN and (
        is_independent(value) or all(map(state.is_constant, read_names(value.code)))
    )


def list_constant_tensors(state: Specialisation, code: ast.expr) -> list[torch.Tensor]:
    """Return the tensors of all names that hold the same for every input, without those whose
    memory a varying name shares. Return [] where the code reads no such name."""
    if not any(is_independent(state.names[key]) for key in read_names(code) if key in state.names):
        return []
    values = state.names.values()
    varying_storages = {
        storage_key(tensor)
        for tensor in tensors_in([value.example for value in values if not is_independent(value)])
    }
    constants = tensors_in([value.example for value in values if is_independent(value)])
    return [tensor for tensor in constants if storage_key(tensor) not in varying_storages]


def run_code(state: Specialisation, node: ast.AST, code: ast.expr) -> ComputedValue:
    """Run residual code on the example, and in the second world if it may differ there; return the
    value with `code` as its expression: a TensorValue if the result holds a tensor, else a
    HostValue.

    Code that may fail is counted in `state.fallible_operations`. No step is appended, unless the
    host has to check a size of the result (`settle_clamped_sizes`). Raises what
    `run_in_world` raises, and Unsplittable for a result whose number of dimensions sizes decide.
    """
    observation = run_in_world(state, node, code, None)
    operands = list_operands(state, code)
    is_resized = is_resized_in(observation, operands)
    state.fallible_operations += observation.by_values or (
        observation.by_sizes and (is_resized or has_host_integer(operands))
    )
    state.operations += observation.operations
    state.values_decide_sizes = state.values_decide_sizes or bool(observation.shapes)
    twin = NO_TWIN
    if is_resized or isinstance(observation.result, (list, dict, set)):
        limit = OPERATION_FACTOR * (observation.operations + 10)
        twin = run_in_world(state, node, code, observation.shapes, limit).result
    if isinstance(observation.result, list):
        note_length(state, code, observation.result, twin)
    check_dimensions(state, node, observation.result, twin)
    # a result of the host's numbers is as constant as they are
    is_of_host = has_kind(operands, HostValue)
    value_class = TensorValue if holds_tensor(observation.result) else HostValue
    value = value_class(
        observation.result,
        code,
        twin,
        constant=observation.constant and twin is NO_TWIN and not is_of_host,
    )
    if not isinstance(value, TensorValue):
        return value
    opened = open_sizes_by_numbers(state, node, value)
    fixed = fix_widths(state, node, value, opened)
    return fixed or settle_clamped_sizes(state, node, opened, observation)


def list_operands(state: Specialisation, code: ast.expr) -> list[Value]:
    """Return the values of the names that residual code reads."""
    return [state.names[key] for key in read_names(code) if key in state.names]


def is_resized_in(observation: Observed, operands: list[Value]) -> bool:
    """Return whether residual code that was run may meet other sizes in the second world: data
    decided a size in the run, or an operand differs there."""
    return bool(observation.shapes) or any(operand.twin is not NO_TWIN for operand in operands)


def has_host_integer(operands: list[Value]) -> bool:
    """Return whether one of the operands is an int of the host."""
    return any(
        isinstance(operand, HostValue) and isinstance(operand.example, int) for operand in operands
    )


def note_length(state: Specialisation, code: ast.expr, result: list[Any], twin: list[Any]) -> None:
    """Note the lists in `result`, what residual code gives, as ragged (of unknown length) if they
    have other lengths in `twin`, the result in the second world, or depend on data."""
    note_ragged(state, result, [twin])
    if length_depends(state, code):
        state.ragged.update((id(inner_list), inner_list) for inner_list in lists_in(result))


def check_dimensions(state: Specialisation, node: ast.AST, result: Any, twin: Any) -> None:
    """Raise Unsplittable for a result whose tensors have another number of dimensions in `twin`,
    the result in the second world."""
    pairs = zip(tensors_in([result]), tensors_in([twin]), strict=False)
    if twin is not NO_TWIN and any(
        tensor.ndim != second_tensor.ndim for tensor, second_tensor in pairs
    ):
        raise state.refuse(
            node, "sizes decide how many dimensions there are, which is not supported"
        )


def depends_on_sizes(state: Specialisation, node: ast.AST, code: ast.expr) -> bool:
    """Return whether code takes another number of operations, or cannot be run, in the second
    world, where sizes are larger; False where no size differs. Raises Unsplittable for code that
    cannot be run on the example."""
    observation = run_in_world(state, node, code, None)
    if not is_resized_in(observation, list_operands(state, code)):
        return False
    try:
        second_observation = run_in_world(
            state, node, code, observation.shapes, OPERATION_FACTOR * (observation.operations + 10)
        )
    except Unsplittable:
        return True
    return second_observation.operations != observation.operations


def run_in_world(
    state: Specialisation,
    node: ast.AST,
    code: ast.expr,
    shapes: tuple[torch.Size, ...] | None,
    operation_limit: float = math.inf,
) -> Observed:
    """Run residual code in one world and return what is observed.

    shapes: for the second world, the shapes that data decided in the first; None for the first.
    operation_limit: the most operations. Raises Unrunnable for code that fails or exceeds the
    limit, in the second world, too, whose sizes another example call may decide otherwise;
    Unsplittable for code that draws random numbers, changes a tensor from outside, assigns an
    attribute of a module, or gets an object that forward makes, and ReadInside where it reads a
    tensor's value on the way to a tensor.
    """
    is_second = shapes is not None
    if any(
        key in state.globals and holds_stand_in(state, state.globals[key])
        for key in read_names(code)
    ):
        raise state.refuse(
            node, "an object that forward makes goes into something that cannot be followed"
        )
    scope = state.scope(
        {
            key: value.second_example if is_second else value.example
            for key, value in state.names.items()
        }
    )
    compiled = compile(ast.fix_missing_locations(ast.Expression(code)), state.frame.path, "eval")
    stored_count = len(state.stored_attributes)
    try:
        with second_world(state, code, shapes) if shapes is not None else nullcontext():
            observation = observe(
                lambda: eval(compiled, scope), list_constant_tensors(state, code), operation_limit
            )
    except (Exception, NotRun) as problem:
        raise state.refuse(node, reason_of_failure(problem, is_second), Unrunnable) from problem
    refuse_effects(state, node, observation, stored_count)
    return observation


def second_world(state: Specialisation, code: ast.expr, shapes: tuple[torch.Size, ...]) -> Longer:
    """Return the mode in which code runs in the second world. shapes: as in `run_in_world`.

    Where the host checks sizes that bounds decide, the result of `bincount` has no more numbers
    than its `minlength`. Inside of other code the host could not check its size.
    """
    counts_numbers = isinstance(code, ast.Call) and ast.unparse(code.func).endswith("bincount")
    state.clamps.count += counts_numbers
    return Longer(shapes, keeps_least_sizes=counts_numbers and state.clamps.guarded)


def reason_of_failure(problem: BaseException, is_second: bool) -> str:
    """Return the reason why code that raised an error cannot be run in a world, the second one or
    the first."""
    failure = "cannot be run with other sizes" if is_second else "cannot be run on the example"
    reason = f"{failure}: {type(problem).__name__}: {problem}"
    if is_second:
        return reason
    return (
        f"{reason}; both sides of each decision are followed with one example call, of the first 8"
        " that one on which all of it runs: give a call that runs here, too"
    )


def refuse_effects(
    state: Specialisation, node: ast.AST, observation: Observed, stored_count: int
) -> None:
    """Raise Unsplittable, or ReadInside, for what code did that was run, and that the host would
    not do again: see `run_in_world`.

    stored_count: the number of attributes of modules that were assigned before.
    """
    if len(state.stored_attributes) > stored_count:
        reason = "an attribute of a module is assigned in a call that cannot be followed"
        raise state.refuse(node, reason)
    if observation.random:
        reason = "random numbers are drawn here; every run of the network would differ"
        raise state.refuse(node, reason)
    if observation.changed:
        raise state.refuse(node, "a tensor that is used elsewhere is changed in place")
    if observation.reads and holds_tensor(observation.result):
        reason = "a value of a tensor is read inside a call that cannot be followed"
        raise state.refuse(node, reason, ReadInside)


def read_in_worlds(
    state: Specialisation, node: ast.AST, value: Value, function: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """Return `function` of a tensor's example and of its value in the second world; the first twice
    if the second's sizes do not fit. Raises Unrunnable where it fails on the example."""
    state.operations += 1
    try:
        example = function(value.example)
    except Exception as problem:
        reason = f"cannot be run on the example: {type(problem).__name__}: {problem}"
        raise state.refuse(node, reason, Unrunnable) from problem
    try:
        return example, function(value.second_example)
    except Exception:  # noqa: BLE001  (another number of rows than `if len(rows) == 1` lets through)
        return example, example


def read_number(state: Specialisation, value: Value) -> HostValue:
    """Return the number that the host reads of a tensor of one element; raise Unsplittable for a
    tensor of several."""
    code = method_call(state.bind_result(value), "item")
    example, second_example = read_in_worlds(state, value.code, value, torch.Tensor.item)
    return HostValue(example, code, NO_TWIN if example == second_example else second_example)


def run_operation(
    state: Specialisation, node: ast.expr, code: ast.expr, operands: list[Value]
) -> Value:
    """Run an operation on the example and return its value: a tensor where the result holds one,
    else a value of the host where an operand is one or a record, else a constant. No step is
    appended. Raises what `run_code` raises, and Unsplittable for a result but None without tensors
    of operands with tensors, which the host would have to compute."""
    value = run_code(state, node, code)
    if isinstance(value, TensorValue):
        return value
    if has_kind(operands, TensorValue) and not (
        value.example is None and value.second_example is None
    ):
        raise state.refuse(
            node, f"gives a {type(value.example).__name__} from tensors, which is not supported"
        )
    if has_kind(operands, HostValue) or has_kind(operands, RecordValue):
        check_host_operands(state, node, operands)
        return value
    return state.static(value.example, code)
