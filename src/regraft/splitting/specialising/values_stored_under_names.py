"""Assignments to names: a tuple or a record is stored as its elements."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.record_classes import fields_of, is_record
from regraft.splitting.program.residual import HostStep, TensorStep
from regraft.splitting.program.residual_expressions import (
    holds_tensor,
    is_named_result,
    is_single_integer,
    name,
)
from regraft.splitting.program.statements import Assign, assigned_names, read_names
from regraft.splitting.program.values import (
    NO_TWIN,
    EitherValue,
    HostValue,
    LostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
    make_value,
)
from regraft.splitting.specialising.code_running import is_constant_tensor, read_number, run_code
from regraft.splitting.specialising.elements import (
    get_element,
    get_part_name,
    list_region_elements,
    rebuild_value,
    take_apart,
)
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length
from regraft.splitting.specialising.state import Specialisation

# the parts of an expression that a region can compute from shapes
ARITHMETIC_NODES = (
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Load,
)


def is_size(state: Specialisation, value: Value) -> bool:
    """Return whether a value is an int that is computed from shapes alone, by operations that a
    region can do (no `/`, no powers), and differs between the worlds."""
    if not isinstance(value, HostValue) or type(value.example) is not int or value.twin is NO_TWIN:
        return False
    nodes = list(ast.walk(value.code))
    shape_bases = {
        id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "shape"
    }
    return all(
        isinstance(node, ARITHMETIC_NODES)
        and not isinstance(node, (ast.Div, ast.Pow))
        and (
            not isinstance(node, ast.Name) or id(node) in shape_bases or node.id in state.size_names
        )
        for node in nodes
    )


def bind_number(state: Specialisation, value: Value) -> Value:
    """Return the value, as an operand of a region: a number of the host is first assigned to a new
    name, unless it has one or is a size that the region itself computes."""
    if (
        not isinstance(value, HostValue)
        or not isinstance(value.example, (int, float))
        or isinstance(value.code, ast.Name)
    ):
        return value
    if is_size(state, value):
        return value  # the region computes it
    return state.bind_in_host(
        replace(value, twin=NO_TWIN) if value.second_example == value.example else value
    )


def append_assignment(state: Specialisation, key: str, code: ast.expr, by_region: bool) -> None:
    """Append the step `key = code` to `state.steps`, of a region if `by_region`, else of the host;
    `state.names` stays."""
    state.steps.append(
        TensorStep(Assign(key, code), state.location) if by_region else HostStep(Assign(key, code))
    )


def store_name(state: Specialisation, key: str, value: Value) -> None:
    """Assign a value to the name `key` of `state.names`, by steps unless it is a constant; a tuple
    or a record is stored as its elements.

    A constant that a loop of unknown length assigns becomes a variable of the host. Tests that read
    the name imply nothing any more.
    """
    state.implied_tests = {
        condition: test
        for condition, test in state.implied_tests.items()
        if key not in read_names(test)
    }
    if isinstance(value, StaticValue) and (
        key not in state.varying_names or literal(value.example) is None
    ):
        state.names[key] = value
        return
    if isinstance(value, EitherValue):
        store_either(state, key, value)
        return
    if isinstance(value, TensorValue):
        value = split_result(state, value)
    if value.fields or isinstance(value, RecordValue):
        store_fields(state, key, value)
        return
    is_of_region = is_size(state, value)
    append_assignment(state, key, value.code, isinstance(value, TensorValue) or is_of_region)
    (state.note_size if is_of_region else state.size_names.discard)(key)
    bound_value = state.bind_name(
        key, convert_to_host(value) if isinstance(value, StaticValue) else value
    )
    if isinstance(value, StaticValue):
        is_none = value.example is None  # what is None stays apart from what may be None
        state.names[key] = state.static(None) if is_none else bound_value.with_constant(True)


def store_either(state: Specialisation, key: str, value: EitherValue) -> None:
    """Append the host's assignment of an EitherValue, whose expression is a name, to the name
    `key`, and let `key` hold it in `state.names`."""
    assert isinstance(value.code, ast.Name)
    state.copied_from[key] = value.code.id
    append_assignment(state, key, value.code, False)
    state.names[key] = value.with_name(key)


def split_result(state: Specialisation, value: TensorValue) -> Value:
    """Return the tuple, list or record that a region computes as a value of its elements, each
    under a new name; a tensor as it is."""
    if type(value.example) is tuple or is_named_result(value.example):
        codes = [element.code for element in take_apart(state, value)]
        return HostValue(value.example, ast.Tuple(codes, ast.Load()), value.twin)
    if type(value.example) is list:
        return list_region_elements(state, value)
    return open_record(state, value) if is_record(type(value.example)) else value


def store_fields(state: Specialisation, key: str, value: Value) -> None:
    """Store each element of a tuple, or field of a record, under a name of its own
    (`get_part_name`), and let the name `key` hold the tuple of these; raise Unsplittable where the
    source uses one of these names."""
    elements = [bind_copy(state, get_element(state, value, place)) for place in value.fields]
    clashing_names = {get_part_name(key, place) for place in value.fields} & state.reserved_names
    if clashing_names:
        raise state.refuse(
            value.code,
            f"{min(clashing_names)} is also the name for an element of {key}; call it another",
        )
    for place, element in zip(value.fields, elements, strict=True):
        store_name(state, get_part_name(key, place), element)
    state.names[key] = rebuild_value(state, key, value)


def open_record(state: Specialisation, value: TensorValue) -> RecordValue:
    """Assign an object of named fields, and each of its fields that holds a tensor, to new names in
    the current region; return it as a RecordValue built from these names and constants: the object
    itself cannot leave the region."""
    object_name = state.fresh_name()
    append_assignment(state, object_name, value.code, True)
    codes = []
    for field in fields_of(type(value.example)):
        example = getattr(value.example, field)
        second_example = getattr(value.second_example, field)
        code: ast.expr = ast.Attribute(name(object_name), field, ast.Load())
        if holds_tensor(example):
            field_name = state.fresh_name()
            twin = NO_TWIN if value.twin is NO_TWIN else second_example
            store_name(state, field_name, TensorValue(example, code, twin))
            code = name(field_name)
        elif literal(example) is not None and type(example) is type(second_example):
            code = literal(example) or code if example == second_example else code
        codes.append(ast.keyword(field, code))
    state.bind_name(object_name, value)
    construction = ast.Call(
        state.alias_global(type(value.example).__name__, type(value.example)), [], codes
    )
    return RecordValue(value.example, construction, value.twin)


def bind_copy(state: Specialisation, value: Value) -> Value:
    """Return the value, assigned to a new name if its expression is a name; a static value as it
    is."""
    return (
        bind_fresh(state, value)
        if isinstance(value.code, ast.Name) and not isinstance(value, StaticValue)
        else value
    )


def bind_fresh(state: Specialisation, value: Value) -> Value:
    """Assign a value to a new name, and return it under this name; a tuple or a record with its
    elements under theirs."""
    key = state.fresh_name()
    store_name(state, key, value)
    return state.names[key]


def save_from_stores(state: Specialisation, target: ast.expr, value: Value) -> Value:
    """Return an element of the right side of an assignment, under a new name if storing to `target`
    may change what it reads, or it is a variable itself; any other element, and a static one, as it
    is."""
    if isinstance(value, (StaticValue, LostValue)):
        return value
    stored_names = {state.variable_name(target_name) for target_name in assigned_names(target)}
    stores_in_containers = any(
        isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(target)
    )
    if stores_in_containers or any(
        key in stored_names or key.partition("__")[0] in stored_names
        for key in read_names(value.code)
    ):
        return bind_fresh(state, value)
    return bind_copy(state, value)


def read_slice_bound(state: Specialisation, node: ast.expr, value: Value) -> Value:
    """Return a bound of a slice: the host reads a tensor of one integer, which is known if no input
    decides it; other values stay as they are. Raise Unsplittable for other tensors."""
    if not isinstance(value, TensorValue) and not isinstance(value.example, torch.Tensor):
        return value
    if not is_single_integer(value.example):
        raise state.refuse(node, "a bound of a slice is a tensor, but not a single whole number")
    if isinstance(value, StaticValue) or is_constant_tensor(state, value):
        return state.static(value.example.item())
    return state.bind_in_host(read_number(state, value))


def index_container(state: Specialisation, node: ast.AST, code: ast.expr) -> Value:
    """Run an index into a container of the host, whose expression is `code`, and return the
    element: a tensor under a fresh name, anything else as a value of the host."""
    value = run_code(state, node, code)
    is_tensor = isinstance(value.example, torch.Tensor)
    return state.bind_in_host(value) if is_tensor else convert_to_host(value)


def take_missing_element(state: Specialisation, code: ast.expr, base: Value, example: Any) -> Value:
    """Return an element of a list of unknown length at a place that the list lacks in the example,
    assigned to a new name by the host.

    example: the value that stands for it; in the second world the list's last element does.
    """
    return state.bind_in_host(make_value(example, code, base.second_example[-1]))


def index_elements(state: Specialisation, node: ast.AST, sequence: Value) -> list[Value] | None:
    """Return the elements of a list of the host, one by one; the list is first assigned to a new
    name, and the elements are noted as pending. None for anything but a list, and for one whose
    length is not known."""
    if not isinstance(sequence.example, list) or not has_definite_length(
        state, sequence := bind_fresh(state, sequence)
    ):
        return None
    places = map(ast.Constant, range(len(sequence.example)))
    elements = [
        index_container(state, node, ast.Subscript(sequence.code, place, ast.Load()))
        for place in places
    ]
    if state.pending[-1] is not None:
        state.pending[-1].extend(elements)
    return elements
